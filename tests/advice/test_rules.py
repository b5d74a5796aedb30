"""Each rule alone: a finding at the fault, none without it, and a correct rewriting."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.advice import scripts
from tests.advice.fused_qk_rope import SCRIPT as FUSED_ROPE
from tests.advice.scripts import line_of, script

from tilelet.advice.core import Advice
from tilelet.advice.programs import ScriptPrograms, Setting
from tilelet.advice.proof import examine
from tilelet.advice.rules import RULES
from tilelet.device.machine.description import load_machine
from tilelet.equivalence.trials import Trials, difference, outputs_of
from tilelet.scripts.recording import RecordingOptions
from tilelet.scripts.target import Target

SETTING = Setting(load_machine("a2a3"), None, RecordingOptions(platform="a2a3", quiet=True))


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.chdir(tmp_path)


def programs(text: str) -> ScriptPrograms:
    Path("kernel.py").write_text(text, encoding="utf-8")
    return ScriptPrograms(Target("kernel.py", text=text), SETTING)


def found(text: str, rule: str) -> list[Advice]:
    """Return the findings of one rule for a script."""
    attempt = examine(programs(text), text, SETTING)
    assert attempt.subject is not None, attempt.why
    (chosen,) = [r for r in RULES if r.name == rule]
    return list(chosen.find(attempt.subject))


def lines(advice: list[Advice]) -> list[int]:
    return [a.loc.line for a in advice if a.loc]


def holds(text: str, advice: Advice) -> str:
    """Return how results differ after the rewriting; "" if they are equal and it is faster."""
    assert advice.text is not None
    own = programs(text)
    before, after = (examine(own, t, SETTING) for t in (text, advice.text))
    assert after.subject is not None, after.why
    assert before.subject is not None
    assert after.subject.costs.us < before.subject.costs.us
    return differs(own, text, advice.text, rounding=advice.rounding)


def differs(own: ScriptPrograms, a: str, b: str, *, rounding: bool) -> str:
    """Return how the outputs of two scripts differ on the first script's inputs."""
    tried = [examine(own, text, SETTING) for text in (a, b)]
    inputs = [Trials(run.program, given) for run, given in zip(tried[0].checked, own.inputs())]
    outputs = [outputs_of([run.program for run in a.checked], inputs) for a in tried]
    assert outputs[0] is not None
    assert outputs[1] is not None
    return difference(outputs[0], outputs[1], rounding=rounding)


def test_a_sum_in_a_loop_starts_with_its_first_product() -> None:
    text = script(scripts.ADDED_IN_LOOP)
    (advice,) = found(text, "added-product")
    assert lines([advice]) == [line_of(text, "acc = pl.add(acc, product)")]
    assert holds(text, advice) == ""
    assert advice.text is not None
    assert "for kb in pl.range(1, WIDE // TILE):" in advice.text
    assert "acc = pl.matmul_acc(acc, x[:, 0:TILE]," in advice.text
    assert "# the last rows" in advice.text
    assert found(advice.text, "added-product") == []


def test_a_loop_that_may_be_empty_has_no_first_product() -> None:
    """The length may be 0, and then there is no first product to start from."""
    text = script(
        scripts.ADDED_IN_LOOP.replace(
            "for kb in pl.range(WIDE // TILE):", "for kb in pl.range(pl.read(lengths, [0])):"
        )
    )
    advice = found(text, "added-product")
    assert all(a.text is None or "matmul_acc(acc" in a.text for a in advice)
    assert not any("pl.range(1," in (a.text or "") for a in advice)


def test_zeros_that_are_read_back() -> None:
    text = script(scripts.ZEROS_READ_BACK)
    (advice,) = found(text, "zeros-read-back")
    assert lines([advice]) == [line_of(text, "pl.slice(acc, [ROWS, TILE], [0, d0])")]
    assert holds(text, advice) == ""
    assert found(script(scripts.ADDED_IN_LOOP), "zeros-read-back") == []
    # Only the first addition to each sum finds zeros.
    assert found(script(scripts.SUM), "zeros-read-back") == []


def test_a_start_that_is_not_zero_is_noticed() -> None:
    """The rule keeps another start value; only the proof sees a store in between."""
    half = script(
        scripts.ZEROS_READ_BACK.replace("value=0.0)\n        acc", "value=0.5)\n        acc")
    )
    (advice,) = found(half, "zeros-read-back")
    assert "so_far = pl.full([ROWS, TILE], dtype=pl.FP32, value=0.5)" in (advice.text or "")
    assert holds(half, advice) == ""
    text = script(scripts.WRITTEN_SINCE)
    (advice,) = found(text, "zeros-read-back")
    assert "differs" in holds(text, advice)


def test_a_tensor_of_one_scope_is_a_tile() -> None:
    text = script(scripts.ONE_SCOPE)
    (advice,) = found(text, "one-scope-tensor")
    assert lines([advice]) == [line_of(text, "both = pl.create_tensor")]
    assert holds(text, advice) == ""
    assert found(script(scripts.ROUND_TRIP), "one-scope-tensor") == []


def test_launches_in_a_loop() -> None:
    text = script(scripts.LAUNCHES)
    (advice,) = found(text, "launch-in-loop")
    assert lines([advice]) == [line_of(text, "with pl.at", 2)]
    assert "`most`" in advice.diagnostic.message
    assert holds(text, advice) == ""
    # Iterations without carried values are tasks that can run in parallel.
    assert found(script(scripts.ONE_SCOPE), "launch-in-loop") == []


def test_loads_that_could_overlap() -> None:
    text = script(scripts.ADDED_IN_LOOP)
    (advice,) = found(text, "no-pipeline")
    assert lines([advice]) == [line_of(text, "for kb in pl.range(WIDE // TILE):")]
    assert holds(text, advice) == ""
    assert advice.text is not None
    assert found(advice.text, "no-pipeline") == []


EARLY_EXIT = """
with pl.at(level=pl.Level.CORE_GROUP):
    for r in pl.range(ROWS):
        if pl.read(lengths, [r]) < 1:
            break
        out[r : r + 1, :] = pl.cast(x[r : r + 1, :], pl.FP32)
return out
"""


def test_a_loop_that_is_left_early_is_no_pipeline() -> None:
    assert found(script(EARLY_EXIT), "no-pipeline") == []
    whole = EARLY_EXIT.replace("break", "pass")
    assert len(found(script(whole), "no-pipeline")) == 1


def test_rows_that_are_thrown_away() -> None:
    text = script(scripts.PADDED)
    (advice,) = found(text, "discarded-rows")
    assert lines([advice]) == [line_of(text, "pl.matmul")]
    assert "8 of 16 rows" in advice.diagnostic.message
    whole = script(
        scripts.PADDED.replace("[8, TILE], [0, 0]", "[ROWS, TILE], [0, 0]").replace(
            "        out = pl.assemble(out, used, [8, d0])\n", ""
        )
    )
    assert found(whole, "discarded-rows") == []
    by_subscript = text.replace("pl.slice(padded, [8, TILE], [0, 0])", "padded[0:8, :]")
    assert lines(found(by_subscript, "discarded-rows")) == lines([advice])


def test_columns_that_are_thrown_away() -> None:
    text = script(scripts.PADDED_COLUMNS)
    (advice,) = found(text, "discarded-rows")
    assert lines([advice]) == [line_of(text, "pl.matmul")]
    assert "32 of 128 columns" in advice.diagnostic.message
    # Parts that are read by different iterations are all read.
    turns = text.replace("[ROWS, 96], [0, 0]", "[ROWS, 96], [0, part]")
    assert turns != text
    assert found(turns, "discarded-rows") == []


def test_a_tensor_between_two_loops() -> None:
    text = script(scripts.CROSSING)
    (advice,) = found(text, "crossing-tensor")
    assert lines([advice]) == [line_of(text, "for kb")]
    assert found(script(scripts.ROUND_TRIP), "crossing-tensor") == []


def test_an_operand_that_two_scopes_load() -> None:
    # With more tasks than cube cores; with few, two parallel scopes take less time than one.
    text = script(scripts.SHARED).replace("HIDDEN = 512", "HIDDEN = 4096")
    (advice,) = found(text, "shared-operand")
    assert lines([advice]) == [line_of(text, "with pl.at", 1)]
    assert holds(text, advice) == ""
    assert advice.text is not None
    assert found(advice.text, "shared-operand") == []


def test_results_that_are_placed_between_the_scopes() -> None:
    text = script(scripts.SHARED_APART)
    (advice,) = found(text, "shared-operand")
    assert advice.text is not None
    assert differs(programs(text), text, advice.text, rounding=False) == ""


def test_explicit_scopes_are_one_finding() -> None:
    text = script(scripts.SHARED.replace("pl.at(level=pl.Level.CORE_GROUP)", "pl.incore()"))
    (advice,) = found(text, "explicit-scope")
    assert "3 explicit scopes" in advice.diagnostic.message
    assert found(script(scripts.SHARED), "explicit-scope") == []


def test_faults_of_a_fused_rope() -> None:
    """A program with the faults of a published program has each finding of its review."""
    attempt = examine(programs(FUSED_ROPE), FUSED_ROPE, SETTING)
    assert attempt.subject is not None, attempt.why
    subject = attempt.subject
    places = {(r.name, a.loc.line) for r in RULES for a in r.find(subject) if a.loc is not None}
    for rule, part, which in (
        ("sequential-loop", "for h in pl.range(heads)", 1),  # launches in a loop over heads
        ("small-transfers", "q_rows = pl.assemble(q_rows, new_lo", 1),
        ("repeated-read", "pl.read(seq_lens, [b])", 1),
        ("repeated-read", "pl.read(seq_lens, [b])", 2),
        ("twin-loops", "for ob in pl.range(KV_BLOCKS)", 1),
        ("hidden-equality", "kv0 // head_dim", 1),
        ("round-trip", "with pl.at", 1),  # q_acc, k_acc and v_acc
        ("round-trip", "with pl.at", 3),
        ("round-trip", "with pl.at", 5),
    ):
        assert (rule, line_of(FUSED_ROPE, part, which)) in places, (rule, part)


def test_a_read_that_the_loop_moves_is_none() -> None:
    moved = FUSED_ROPE.replace("pl.read(seq_lens, [b])", "pl.read(seq_lens, [b + h - h])", 1)
    places = lines(found(moved, "repeated-read"))
    assert line_of(moved, "pl.read(seq_lens, [b + h - h])") not in places
    assert line_of(moved, "pl.read(seq_lens, [b])") in places


SMALL_BLOCKS = """
for step in pl.range(128):
    for r in pl.spmd(ROWS):
        out[r : r + 1, 0:TILE] = pl.neg(out[r : r + 1, 0:TILE])
return out
"""


def test_the_time_of_a_small_task_is_that_of_one_block() -> None:
    (advice,) = found(script(SMALL_BLOCKS), "small-tasks")
    subject = examine(programs(script(SMALL_BLOCKS)), script(SMALL_BLOCKS), SETTING).subject
    assert subject is not None
    (row,) = subject.profiles[0].functions
    assert row.count == 128 * 16
    (note,) = advice.diagnostic.notes
    assert note.startswith(f"128 tasks of 2048 blocks: {row.exec_us / row.count:.2f} us each, ")
    assert "fewer blocks" in advice.diagnostic.helps[0]
