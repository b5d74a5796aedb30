"""Replays that reuse tiles give the outputs of complete runs of the edited program."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Mapping
from typing import Any

import pytest
from tests.diverge.faults import model_cases, sites
from tests.diverge.score import HERE, case_of, load

from tilelet.diag.core import UserError
from tilelet.divergence.case import GoldenCase
from tilelet.divergence.edits import Edit, apply_edit
from tilelet.divergence.outer_values import with_outer_values
from tilelet.divergence.replay import Replay
from tilelet.divergence.scoped_edits import ScopedEdits
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program, walk

PROGRAMS = [
    "programs/paged_gqa",
    "programs/int8",
    "held_out_2/group_route",
    "held_out_2/rope_cache",
]
EDITS = 60


def case_at(path: str) -> GoldenCase:
    name = path.split("/")[1]
    return case_of(load(name, (HERE / f"{path}.py").read_text(encoding="utf-8")))


def complete_run(
    program: Program, arguments: Mapping[str, Any], edit: Edit
) -> dict[str, Any] | None:
    given = copy.deepcopy(dict(arguments))
    try:
        Interpreter().run(apply_edit(program, edit), given)
    except UserError:
        return None
    return given


@pytest.mark.parametrize("path", PROGRAMS)
def test_replays_equal_complete_runs(path: str) -> None:
    case = case_at(path)
    replay = Replay(with_outer_values(case.program), case.arguments)
    edits = ScopedEdits(replay.program, case.numbers)
    ops = [op for f in replay.program.functions.values() for op in walk(f.body)]
    found = [edit for op in ops for edit in edits.of(op)]
    tasks = set(replay.trace.submitted)
    different = 0
    for edit in random.Random(1).sample(found, EDITS):
        expected = complete_run(replay.program, case.arguments, edit)
        try:
            made = replay.outputs(edit, tasks)
        except UserError:
            assert expected is None, edit.text
            continue
        assert expected is not None, edit.text
        for name, array in made.items():
            assert array.tobytes() == expected[name].tobytes(), edit.text
        different += not case.passes(made)
    assert different > EDITS // 4


def test_control_programs_run_again() -> None:
    ((_, case),) = model_cases("qwen3/scope1", "split_accumulation")
    replay = Replay(case.program, case.arguments)
    shrunk = sites(case, "shrunk buffer", random.Random(1))
    assert shrunk
    for edit in shrunk[:4]:
        expected = complete_run(case.program, case.arguments, edit)
        for tasks in (None, set(replay.trace.submitted)):
            with pytest.raises(UserError) if expected is None else contextlib.nullcontext():
                made = replay.outputs(edit, tasks)
                assert expected is not None
                for name, array in made.items():
                    assert array.tobytes() == expected[name].tobytes(), edit.text


def test_a_replay_computes_only_what_changes() -> None:
    case = case_at("programs/paged_gqa")
    replay = Replay(with_outer_values(case.program), case.arguments)
    edits = ScopedEdits(replay.program, case.numbers)
    (kernel,) = replay.program.kernels
    last = [op for op in walk(kernel.body) if op.name == "row_expand_div"][-1]
    swapped = next(e for e in edits.of(last) if e.kind == "other op")
    replay.outputs(None, set(replay.trace.submitted))
    before = replay.steps
    replay.outputs(swapped, set(replay.trace.submitted))
    assert replay.steps - before < 0.3 * sum(part.steps for part in replay.parts)
