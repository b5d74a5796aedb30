"""The rules, one module for each kind of fault; `RULES` is what there is."""

from __future__ import annotations

from tilelet.advice.core import Rule
from tilelet.advice.rules import (
    accumulate,
    arithmetic,
    fills,
    forwarding,
    machine_use,
    neighbours,
    parallel,
    reductions,
    text,
)
from tilelet.diag.catalogue import advice as problems

RULES = (
    Rule("fill", problems.DeadFill, fills.find, needs_proof=True),
    Rule("round-trip", problems.RoundTrip, neighbours.find, needs_proof=True),
    Rule("stored-and-loaded", problems.StoredAndLoaded, forwarding.find, needs_proof=True),
    Rule("added-product", problems.AddedProduct, accumulate.find),
    Rule("sum-in-memory", problems.SumInMemory, reductions.find),
    Rule("sequential-loop", problems.SequentialLoop, parallel.find, needs_proof=True),
    Rule("small-tasks", problems.SmallTasks, machine_use.small_tasks),
    Rule("few-tasks", problems.FewTasks, machine_use.few_tasks),
    Rule("uneven-wave", problems.UnevenWave, machine_use.uneven_wave),
    Rule("orchestrator", problems.OrchestratorBound, machine_use.orchestrator_bound),
    Rule("short-rows", problems.ShortRows, machine_use.short_rows),
    Rule("empty-buffers", problems.EmptyBuffers, machine_use.empty_buffers),
    Rule("repeated-read", problems.RepeatedRead, arithmetic.repeated_reads),
    Rule("missing-root", problems.MissingRoot, arithmetic.missing_root),
    Rule("hidden-equality", problems.HiddenEquality, text.hidden_equalities, is_about_text=True),
    Rule("stale-constant", problems.StaleConstant, text.stale_constants, is_about_text=True),
    Rule("look-alike", problems.LookAlike, text.look_alikes, is_about_text=True),
)
