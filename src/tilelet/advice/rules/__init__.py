"""The rules, one module for each kind of fault; `RULES` is what there is."""

from __future__ import annotations

from tilelet.advice.core import Rule
from tilelet.advice.rules import (
    accumulate,
    arithmetic,
    fills,
    forwarding,
    launches,
    machine_use,
    neighbours,
    parallel,
    pipelines,
    private,
    reductions,
    text,
    traffic,
)
from tilelet.diag.catalogue import advice as problems

RULES = (
    Rule(
        "fill",
        problems.DeadFill,
        fills.find,
        (
            "A fill writes every byte once more, and under the runtime's rules the real "
            "writers wait for it. Fills that nothing reads are 66 of the 1,651 tasks of "
            "the published scope 3 of Qwen3-32B."
        ),
        rewrites=True,
        needs_proof=True,
    ),
    Rule(
        "zeros-read-back",
        problems.ZerosReadBack,
        fills.zeros_read_back,
        (
            "Tasks with a tensor that they read and write are ordered by the runtime, whichever "
            "windows of it they use: a sum that starts from zeros in memory is one chain of tasks."
        ),
        rewrites=True,
        needs_proof=True,
    ),
    Rule(
        "round-trip",
        problems.RoundTrip,
        neighbours.round_trips,
        (
            "A task is submitted, handed out and completed in 2 us of runtime, whatever it "
            "does; a value that leaves the chip is stored, and loaded again by the next task "
            "after it has waited for the first."
        ),
        rewrites=True,
        needs_proof=True,
    ),
    Rule(
        "shared-operand",
        problems.SharedOperand,
        neighbours.shared_operands,
        "K and V of a published layer both read the normalised rows, as do gate and up.",
        rewrites=True,
        needs_proof=True,
    ),
    Rule(
        "one-scope-tensor",
        problems.OneScopeTensor,
        private.find,
        (
            "The scores and exponentials of the published attention go out to global memory and "
            "back in every block of the context."
        ),
        rewrites=True,
        needs_proof=True,
    ),
    Rule(
        "launch-in-loop",
        problems.LaunchInLoop,
        launches.find,
        (
            "A reviewer of a published program counts 64 launches in a loop over heads; each task "
            "costs 2 us of runtime, and here waits for the one before."
        ),
        rewrites=True,
        needs_proof=True,
    ),
    Rule(
        "stored-and-loaded",
        problems.StoredAndLoaded,
        forwarding.find,
        ("The load waits for the store, and both take bandwidth for what is on chip already."),
        rewrites=True,
        needs_proof=True,
    ),
    Rule(
        "added-product",
        problems.AddedProduct,
        accumulate.find,
        (
            "Cube results reach the vector unit through memory on A2/A3; the accumulator of "
            "the cube adds for nothing."
        ),
        rewrites=True,
    ),
    Rule(
        "sum-in-memory",
        problems.SumInMemory,
        reductions.find,
        (
            "The largest single fault of the published programs: 32,000 of 33,411 tasks of "
            "scope 3 added to a sum in global memory. The published rewriting took it from "
            "63.0 to 3.3 ms."
        ),
        rewrites=True,
    ),
    Rule(
        "sequential-loop",
        problems.SequentialLoop,
        parallel.find,
        ("Runtimes since May 2026 order iterations of `pl.range` that touch the same tensor."),
        rewrites=True,
        needs_proof=True,
    ),
    Rule(
        "no-pipeline",
        problems.NoPipeline,
        pipelines.find,
        (
            "Load engines and compute units of a core work side by side; without a second buffer "
            "one waits for the other. In the tuned scope 3 every loop over the inner dimension is "
            "a pipeline."
        ),
        rewrites=True,
        needs_proof=True,
    ),
    Rule(
        "discarded-rows",
        problems.DiscardedRows,
        traffic.discarded_rows,
        "The published attention pads 8 query heads to 16 rows: half of each product is lost.",
    ),
    Rule(
        "crossing-tensor",
        problems.CrossingTensor,
        traffic.crossing_tensors,
        (
            "The published decode layer writes its q, k and v projections to memory in scope 1 and "
            "reads them back in scope 2."
        ),
    ),
    Rule(
        "small-tasks",
        problems.SmallTasks,
        machine_use.small_tasks,
        (
            "Submitting takes 0.55-0.72 us of one orchestrator, dispatch and completion 0.8 "
            "us of three schedulers (published for April and July 2026)."
        ),
    ),
    Rule(
        "few-tasks",
        problems.FewTasks,
        machine_use.few_tasks,
        "An A2/A3 has 24 cubes and 48 vector cores; a core without a task is idle.",
    ),
    Rule(
        "uneven-wave",
        problems.UnevenWave,
        machine_use.uneven_wave,
        "The program waits for the last tasks while the other cores are idle.",
    ),
    Rule(
        "orchestrator",
        problems.OrchestratorBound,
        machine_use.orchestrator_bound,
        "One orchestrator submits all tasks, one after the other: 0.55-0.72 us each.",
    ),
    Rule(
        "short-rows",
        problems.ShortRows,
        machine_use.short_rows,
        "Global memory of A2/A3 moves 512 bytes at a time, that of A5 128.",
    ),
    Rule(
        "empty-buffers",
        problems.EmptyBuffers,
        machine_use.empty_buffers,
        "Bytes moved by a product fall with the size of its tiles.",
    ),
    Rule(
        "repeated-read",
        problems.RepeatedRead,
        arithmetic.repeated_reads,
        "A scalar read of global memory takes hundreds of cycles when it misses.",
    ),
    Rule(
        "missing-root",
        problems.MissingRoot,
        arithmetic.missing_root,
        (
            "A published decode layer multiplied by `mean(x^2) + eps` itself, and its golden "
            "did the same, so that the comparison passed."
        ),
    ),
    Rule(
        "explicit-scope",
        problems.ExplicitScope,
        text.explicit_scopes,
        "Asked for by the analysis of a published decode layer.",
        is_about_text=True,
    ),
    Rule(
        "hidden-equality",
        problems.HiddenEquality,
        text.hidden_equalities,
        ("A published program divides by the head size what steps by the tile size; both are 128."),
        is_about_text=True,
    ),
    Rule(
        "stale-constant",
        problems.StaleConstant,
        text.stale_constants,
        "A published program's docstring names BATCH_TILE=4 where the code has 16.",
        is_about_text=True,
        rewrites=True,
    ),
    Rule(
        "look-alike",
        problems.LookAlike,
        text.look_alikes,
        "Found in published programs.",
        is_about_text=True,
        rewrites=True,
    ),
)
