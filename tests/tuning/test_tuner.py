"""Tuning a script from end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.tuning.kernels import SCRIPT, InThisProcess, question

from tilelet.diag import UserError
from tilelet.equivalence.claims import Claim
from tilelet.tuning import evaluate, tuner
from tilelet.tuning.tune_result import TuneResult
from tilelet.tuning.tuner import Request, tune


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.chdir(tmp_path)


def tuned(folder: Path, text: str = SCRIPT, **settings: Any) -> TuneResult:
    machines = settings.pop("machines", ("a2a3",))
    settings.setdefault("executor", InThisProcess())
    return tune(Request(question(folder, text, machines), **settings))


def test_tiles_are_found_and_the_rest_is_left_alone(tmp_path: Path) -> None:
    outcome = tuned(tmp_path)
    assert set(outcome.winner.settings) <= {"TILE", "build_program.wide"}
    assert outcome.ratio > 1.5
    assert outcome.winner.verdict is not None
    assert outcome.winner.verdict.validated
    assert outcome.left_alone == {
        "ROWS": "a size of the program's parameters, or its inputs depend on it",
        "COLUMNS": "a size of the program's parameters, or its inputs depend on it",
        "UNUSED": "nothing depends on it",
    }
    # The script was not changed; the proposed change is a diff.
    assert (tmp_path / "kernel.py").read_text() == SCRIPT
    assert "-def build_program(wide: int = 64):\n" in outcome.patch


def test_a_number_that_says_what_to_compute_is_no_tile_size(tmp_path: Path) -> None:
    """Fewer repetitions are faster, but wrong: the golden notices."""
    outcome = tuned(tmp_path, vary={"TIMES": (1, 2), "TILE": (16, 64)})
    assert outcome.winner.settings == {"TILE": 64}
    assert [settings["TIMES"] for settings, _ in outcome.failed] == [1]


def test_the_winner_has_no_change_that_gains_nothing(tmp_path: Path) -> None:
    outcome = tuned(tmp_path, vary={"UNUSED": (8, 16, 32), "TILE": (16, 32, 64)})
    assert set(outcome.winner.settings) == {"TILE"}


def test_tiles_that_do_not_fit_are_dropped(tmp_path: Path) -> None:
    text = SCRIPT.replace("512", "65536")
    outcome = tuned(tmp_path, text, vary={"build_program.wide": (64, 65536)}, verify=0)
    statuses = {s.get("build_program.wide"): score.status for s, score in outcome.scores}
    assert statuses[65536] == evaluate.TOO_LARGE


def test_two_machines_give_a_front(tmp_path: Path) -> None:
    outcome = tuned(tmp_path, machines=("a2a3", "a5"), verify=0)
    front = [
        tuple(figures["us"] for figures in score.figures.values()) for _, score in outcome.pareto()
    ]
    assert front
    for a in front:
        assert not any(b != a and all(x <= y for x, y in zip(b, a)) for b in front)
    every = [tuple(f["us"] for f in s.figures.values()) for _, s in outcome.scores if s.is_modelled]
    for a in every:
        assert any(all(x <= y for x, y in zip(b, a)) for b in front)


@pytest.mark.parametrize("objective", ["gm_bytes", "tasks", "cpu_ms"])
def test_other_objectives(tmp_path: Path, objective: str) -> None:
    outcome = tuned(tmp_path, objective=objective, vary={"TILE": (16, 64)}, verify=1)
    figures = [s.figures["a2a3"][objective] for _, s in outcome.scores]
    assert outcome.winner.score.figures["a2a3"][objective] == min(figures)


def test_the_same_search_gives_the_same_outcome(tmp_path: Path) -> None:
    runs = [tuned(tmp_path, candidates=12, method="descent", verify=0, seed=3) for _ in range(2)]
    assert [s for s, _ in runs[0].scores] == [s for s, _ in runs[1].scores]
    assert runs[0].to_data() == runs[1].to_data()


def test_a_search_that_time_ends_says_how_to_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1000))  # each reading of the clock is a second later
    monkeypatch.setattr(tuner.time, "monotonic", lambda: float(next(clock)))
    outcome = tuned(tmp_path, seconds=2.0, method="descent", verify=0)
    assert outcome.timed_out_after is not None
    text = "\n".join(str(part) for part in outcome.parts())
    assert f"`--budget {outcome.timed_out_after} --method descent` gives this answer" in text
    again = tuned(tmp_path, candidates=outcome.timed_out_after, method="descent", verify=0)
    assert again.winner.settings == outcome.winner.settings
    assert [s for s, _ in again.scores] == [s for s, _ in outcome.scores]


def test_the_budget_counts_candidates(tmp_path: Path) -> None:
    outcome = tuned(tmp_path, candidates=20, method="descent", verify=0)
    # The winner without each of its changes is tried beyond the budget.
    assert len(outcome.scores) <= 20 + len(outcome.space)


def test_results_are_kept_and_continued(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    vary = {"TILE": (16, 32, 64)}
    first = tuned(tmp_path, results=file, vary=vary, verify=0)
    text = file.read_text()
    assert len(text.splitlines()) == 1 + len(first.scores)
    file.write_text(text[:-10])  # cut off in the middle of a line
    again = InThisProcess()
    second = tuned(tmp_path, results=file, vary=vary, verify=0, executor=again)
    assert second.winner.settings == first.winner.settings
    assert again.calls == 1 + 2  # the lost candidate, and the two profiles
    for line in file.read_text().splitlines():
        json.loads(line)


def test_results_of_something_else_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    vary = {"TILE": (16, 64)}
    tuned(tmp_path, results=file, vary=vary, verify=0)
    with pytest.raises(UserError, match="E1405"):
        tuned(tmp_path, SCRIPT.replace("64", "128"), results=file, vary=vary, verify=0)
    file.write_text("no such file\n")
    with pytest.raises(UserError, match="E1405"):
        tuned(tmp_path, results=file, vary=vary, verify=0)


@pytest.mark.parametrize(
    ("text", "settings", "code"),
    [
        (SCRIPT, {"vary": {"TYLE": ()}}, "E1401"),
        (SCRIPT, {"vary": {"ROWS": (32,)}}, "E1404"),
        (
            "import os\n" + SCRIPT.replace("16", "8 + 8").replace("wide: int = 64", "wide=ROWS"),
            {},
            "",
        ),
    ],
)
def test_what_cannot_be_varied_is_said(
    tmp_path: Path, text: str, settings: dict[str, Any], code: str
) -> None:
    if not code:
        text = text.replace("TIMES = 2", "TIMES = int(2)")
        code = "E1402"
    with pytest.raises(UserError, match=code):
        tuned(tmp_path, text, **settings)


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    class Interrupted(InThisProcess):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            if self.calls == 14:
                raise KeyboardInterrupt
            return super().submit(fn, *args, **kwargs)

    outcome = tuned(tmp_path, executor=Interrupted(), results=tmp_path / "r.jsonl")
    assert outcome.interrupted
    assert outcome.scores
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 1 + len(outcome.scores)


LENGTHS = SCRIPT.replace(
    "self, x:", "self, n: pl.Tensor[[1], pl.INT32], x:"
).replace(
    "for r in pl.range(0, ROWS, TILE):",
    "for b in pl.range(pl.read(n, [0]) // TILE):\n                r = b * TILE",
).replace(
    "    specs = [\n",
    '    specs = [\n        TensorSpec("n", (1,), pl.INT32, np.array([64], np.int32)),\n',
)  # fmt: skip


def test_a_tile_that_leaves_a_remainder_at_other_lengths_is_wrong(tmp_path: Path) -> None:
    """Blocks of 32 and 64 rows divide the script's 64 rows; blocks of 48 lose rows."""
    outcome = tuned(tmp_path, LENGTHS, vary={"TILE": (16, 32, 64)})
    assert outcome.winner.settings == {}
    assert {settings["TILE"] for settings, _ in outcome.failed} == {32, 64}
    assert all("other integers" in verdict.why for _, verdict in outcome.failed)


FEWER = LENGTHS.replace("TIMES = 2", "TIMES = 2\nBLOCKS = 4").replace(
    "np.array([64], np.int32)", "np.array([BLOCKS * 16], np.int32)"
)


def test_a_number_that_decides_the_inputs_is_no_tile_size(tmp_path: Path) -> None:
    """Half of the blocks are twice as fast, and half of the problem."""
    outcome = tuned(tmp_path, FEWER.replace('"out"][:]', '"out"][: 16 * BLOCKS]'))
    assert "BLOCKS" in outcome.left_alone
    assert "BLOCKS" not in outcome.winner.settings


def test_a_number_that_decides_the_inputs_cannot_be_varied(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="E1404"):
        tuned(tmp_path, FEWER, vary={"BLOCKS": (2, 4)})


EXTENTS = SCRIPT.replace(
    "[ROWS, COLUMNS], pl.FP32]", '[pl.dynamic("N"), COLUMNS], pl.FP32]'
).replace("pl.range(0, ROWS, TILE)", "pl.range(0, pl.tensor.dim(x, 0), TILE)")


def test_an_extent_that_the_arguments_decide_is_no_tile_size(tmp_path: Path) -> None:
    assert "ROWS" in tuned(tmp_path, EXTENTS).left_alone


def test_the_winner_tells_how_far_it_is_known_to_be_right(tmp_path: Path) -> None:
    outcome = tuned(tmp_path, vary={"TILE": (16, 32)})
    assert outcome.winner.verdict is not None
    assert outcome.winner.verdict.claim is Claim.PROVED
    assert outcome.to_data()["best"]["claim"] == "proved"
    assert "proved" in outcome._verdict_text()


RACING = SCRIPT.replace(
    "                    with pl.at(level=pl.Level.CORE_GROUP):\n",
    "                    with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=[out]):\n"
    "                        out = pl.assemble(out, pl.slice(x, [TILE, wide], [r, c]), [r, c])\n"
    "                    with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=[out]):\n",
)


def test_nothing_is_proved_of_tasks_in_no_order(tmp_path: Path) -> None:
    outcome = tuned(tmp_path, RACING, vary={"TILE": (16, 32)})
    assert outcome.winner.settings
    assert outcome.winner.verdict is not None
    assert outcome.winner.verdict.claim is Claim.TRIED


def test_columns_of_a_length_are_proved(tmp_path: Path) -> None:
    """Data-dependent control flow is the same for all widths."""
    outcome = tuned(tmp_path, LENGTHS, vary={"build_program.wide": (64, 128)})
    assert outcome.winner.verdict is not None
    assert outcome.winner.settings
    assert outcome.winner.verdict.claim in (Claim.PROVED, Claim.TRIED)
