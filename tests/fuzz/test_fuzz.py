"""The fuzz target finds mistakes of every kind, and reduces the programs that show them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.fuzz import any_op, quick
from tests.fuzz import pool as pools
from tests.fuzz.__main__ import main
from tests.fuzz.cases import INPUT_SETS, Case, draw
from tests.fuzz.families import FAMILIES
from tests.fuzz.faulty import STOPPED
from tests.fuzz.library import load_together
from tests.fuzz.mutations import mutated, spoilt
from tests.fuzz.pool import Pool, judged
from tests.fuzz.reduce import Fails, reduced
from tests.fuzz.usage import Usage, session_usage
from tests.fuzz.verdict import Prepared, finish, judge_all, prepare
from tests.generated.generator import FOCUSES

TEXT = """import tilelet.language as pl

@pl.jit
def main(x2: pl.Tensor[[4, 8], pl.FP32], r3: pl.Out[pl.Tensor[[4, 8], pl.FP32]]):
    for i6 in pl.range(2):
        pass
    with pl.incore():
        t4 = pl.neg(x2)
        t5 = {value}
        r3[:] = t5
    return r3
"""
PARAMS = (("x2", (4, 8), "FP32", 1, False), ("r3", (4, 8), "FP32", 2, False))


def text_case(value: str) -> Case:
    return Case(text=TEXT.format(value=value), style="jit", params=PARAMS)


@pytest.fixture(scope="module")
def cache(module_cache: Path) -> str:
    return str(module_cache)


def faulty(fault: str, cache: str) -> Iterator[Pool]:
    environment = {"FUZZ_FAULT": fault, "TILELET_CACHE_DIR": cache}
    pool = Pool(1, environment, "tests.fuzz.faulty")
    yield pool
    pool.close()


# --- cases ---------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_cases_again() -> None:
    first, again = ([draw(7, n) for n in range(40)] for _ in range(2))
    assert first == again
    assert len({(c.kernel().text, c.params) for c in first}) == len(first)
    assert {c.is_generated for c in first} == {True, False}
    assert any(c.inputs for c in first)


@pytest.mark.parametrize("family", FAMILIES)
def test_programs_of_every_family_are_taken(family: str, tmp_path: Path) -> None:
    for number in range(2):
        case = draw(7, number, family)
        assert case.family == family
        prepared = prepare(case, tmp_path)
        assert isinstance(prepared, Prepared), prepared
        assert len(prepared.trials) == INPUT_SETS
        assert all(isinstance(trial.expected, dict) for trial in prepared.trials)


def test_extents_and_scalars_differ_from_call_to_call(tmp_path: Path) -> None:
    seen: set[tuple[int, ...]] = set()
    for number in range(4):
        prepared = prepare(draw(7, number, "tails"), tmp_path)
        assert isinstance(prepared, Prepared)
        for trial in prepared.trials:
            assert type(trial.arguments["count"]) is int
            assert type(trial.arguments["factor"]) is float
            seen.add(trial.arguments["x"].shape)
    assert len(seen) > 4


def test_programs_of_any_op_are_taken(tmp_path: Path) -> None:
    """Nearly all calls in the table are valid."""
    drawn = [any_op.program(np.random.default_rng([1, n])) for n in range(60)]
    cases = [
        Case(text=text, style="jit", params=tuple((n, s, d, 1, False) for n, s, d in params))
        for text, params in drawn
    ]
    taken = [isinstance(prepare(case, tmp_path), Prepared) for case in cases]
    assert sum(taken) > 50
    called = set(re.findall(r"pl\.([a-z_0-9.]+)\(", "".join(text for text, _ in drawn)))
    assert len(called) > 100


@pytest.mark.parametrize("focus", FOCUSES)
def test_a_case_survives_json(focus: str) -> None:
    case = draw(3, 1, focus)
    assert (
        Case.from_json(json.loads(json.dumps(case.to_json()))).kernel().text == case.kernel().text
    )
    assert case.as_text().kernel().text == case.kernel().text


def test_texts_are_changed_in_their_bodies_only() -> None:
    text = draw(3, 2, "scopes").kernel().text
    head = text[: text.index("def main(")]
    changed = {mutated(text, np.random.default_rng(i)) for i in range(50)}
    assert len(changed) > 40
    assert all(new.startswith(head) for new in changed)
    bodies = [new[len(head) :].split("\n")[1:] for new in changed]
    assert all(not line or line.startswith("    ") for body in bodies for line in body)


def test_arguments_are_spoilt_without_a_mistake_of_our_own() -> None:
    arguments = draw(3, 2, "scopes").kernel().arguments()
    for choice in range(3000):
        spoilt(arguments, choice)


# --- programs in one library ---------------------------------------------------------------------


def test_programs_in_one_library_keep_their_names_apart(tmp_path: Path) -> None:
    cases = [text_case("pl.abs(t4)"), text_case("pl.add(t4, 1.0)"), text_case("t4")]
    prepared = [prepare(case, tmp_path) for case in cases]
    natives = load_together([(p.program, p.code) for p in prepared], "-O0")  # type: ignore[union-attr]
    for p, native in zip(prepared, natives):
        given = p.kernel.arguments()  # type: ignore[union-attr]
        native.run(given, 1, -1)
        np.testing.assert_array_equal(given["r3"], p.trials[0].expected["r3"])  # type: ignore[union-attr]


def test_programs_in_one_library_have_memory_of_their_own_size(tmp_path: Path) -> None:
    small = text_case("t4")
    wide = 1 << 18  # far more than the budget of memory for the small one
    text = small.text.replace("[4, 8]", f"[4, {wide}]").replace("= t5", "= pl.add(t5, pl.exp(t4))")
    params = tuple((name, (4, wide), *rest) for name, _, *rest in PARAMS)
    large = Case(text=text, style="jit", params=params)
    prepared = [prepare(case, tmp_path) for case in (small, large)]
    natives = load_together([(p.program, p.code) for p in prepared], "-O0")  # type: ignore[union-attr]
    assert natives[1].table.scratch_bytes > natives[0].table.scratch_bytes + 16 * wide
    for p, native in zip(prepared, natives):
        assert finish(p, native).kind == "right"  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def quick_runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile the runtime for the quick compiler."""
    if quick.command() is None:
        pytest.skip("no tcc")
    folder = tmp_path_factory.mktemp("quick")
    quick.prepare(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(quick.FOLDER, str(folder))
        yield


@pytest.mark.usefixtures("quick_runtime")
def test_the_quick_compiler_gives_the_same_bits(tmp_path: Path) -> None:
    cases = [*(draw(3, n, focus) for n in range(2) for focus in FOCUSES), text_case("pl.exp(t4)")]
    kinds = {said.kind for _, what, said in judge_all(cases, tmp_path, quick.LEVEL) if what == "is"}
    assert kinds <= {"right", "rejected"}


@pytest.mark.usefixtures("quick_runtime")
def test_the_quick_compiler_takes_stores_of_whole_cache_lines(tmp_path: Path) -> None:
    params = tuple((name, (4, 512), *rest) for name, _, *rest in PARAMS)
    wide = Case(text=text_case("t4").text.replace("4, 8", "4, 512"), style="jit", params=params)
    prepared = prepare(wide, tmp_path)
    assert isinstance(prepared, Prepared)
    assert "TL_LINE" in "".join(prepared.code.units)
    load_together([(prepared.program, prepared.code)], quick.LEVEL)


def test_functions_become_declarations_without_vectors() -> None:
    inline = "static inline __attribute__((always_inline, unused)) "
    text = (
        "typedef float tl_f32x8 __attribute__((vector_size(32)));\n"
        f"{inline}tl_f32x8 splat(float x) {{ return (tl_f32x8){{x}}; }}\n"
        f"{inline}float twice(float x) {{ if (x) {{ x += x; }} return x; }}\n"
        "typedef struct {\n    tl_f32x8 lanes;\n    int n;\n} fold;\n"
        "int outside(int a);\n"
    )
    header, functions = quick.split(text)
    assert "float twice(float x);\n" in header
    assert "float lanes[8];" in header
    assert "int outside(int a);" in header
    assert "splat" not in header
    assert "vector_size" not in header
    assert "\nfloat twice(float x) { if (x) { x += x; } return x; }" in functions
    assert f"{inline}tl_f32x8 splat" in functions


# --- verdicts ------------------------------------------------------------------------------------


def test_all_is_well(cache: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--programs", "12", "--seed", "11", "--jobs", "1", "--output", str(tmp_path)]
    assert main([*options, "--cache", cache]) == 0
    said = capsys.readouterr().out
    assert "SEED=11" in said
    assert "12 programs" in said


@pytest.mark.parametrize("fault", ["crash", "hang", "internal"])
def test_a_program_that_ends_its_process_is_told(
    fault: str, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "SHORT", 5.0)
    (pool,) = faulty(fault, cache)
    cases = [text_case("pl.abs(t4)"), text_case("t6"), text_case("pl.exp(t4)")]
    found = [v.kind for v in judged(pool, cases)]
    expected = "long" if fault == "hang" else fault  # of a text, which might have such a loop
    assert found == [expected, "rejected", expected]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
@pytest.mark.parametrize(("delay", "expected"), [("stopped", "right"), ("asleep", "long")])
def test_waiting_for_a_core_is_no_hang(
    delay: str, expected: str, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "SHORT", STOPPED / 2)
    monkeypatch.setattr(pools, "ASLEEP", STOPPED / 2)
    (pool,) = faulty(delay, cache)
    assert [v.kind for v in judged(pool, [text_case("pl.abs(t4)")])] == [expected]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
@pytest.mark.parametrize(
    ("child", "is_so"),
    [("while True: pass", lambda u: u.cpu > 0.5 and not u.is_asleep),
     ("import time; time.sleep(3600)", lambda u: u.is_asleep)],
)  # fmt: skip
def test_usage_of_a_session_includes_its_children(
    child: str, is_so: Callable[[Usage], bool]
) -> None:
    text = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", text], start_new_session=True)
    try:
        until = time.monotonic() + 60
        while not is_so(session_usage(process.pid)):
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("sanitize", [False, True])
def test_watched_memory(
    sanitize: bool,
    thorough: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not thorough:
        pytest.skip("compiling the runtime with sanitizers takes half a minute: --thorough")
    monkeypatch.setenv("FUZZ_FAULT", "overflow")
    monkeypatch.setattr("tests.fuzz.__main__.draw", lambda *_: text_case("pl.abs(t4)"))
    options = ["--programs", "1", "--seed", "5", "--jobs", "1", "--output", str(tmp_path)]
    options += ["--sanitize"] * sanitize
    assert main(options, worker="tests.fuzz.faulty") == int(sanitize)
    assert ("1 crash" in capsys.readouterr().out) == sanitize


def test_a_wrong_result_is_found_and_reduced(
    cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FUZZ_FAULT", "wrong")
    value = "pl.add(pl.maximum(t4, 0.0), pl.neg(t4))"
    monkeypatch.setattr("tests.fuzz.__main__.draw", lambda *_: text_case(value))
    options = ["--programs", "1", "--seed", "5", "--jobs", "1", "--output", str(tmp_path)]
    assert main([*options, "--cache", cache], worker="tests.fuzz.faulty") == 1
    said = capsys.readouterr().out
    text = (tmp_path / "fuzz_5" / "smallest_0.py").read_text()
    assert text in said
    assert text.count("\n") == TEXT.count("\n") - 3


# --- the reducer ---------------------------------------------------------------------------------


def using(word: str) -> Fails:
    def fails(cases: Sequence[Case]) -> int | None:
        return next((i for i, c in enumerate(cases) if word in c.kernel().text), None)

    return fails


@pytest.mark.parametrize("word", ["pl.matmul_acc(", "pl.pipeline("])
def test_what_does_not_matter_is_left_out(word: str) -> None:
    case = next(
        c
        for n in range(200)
        if len((c := draw(1, n, "accumulators")).tape) == 300 and word in c.kernel().text
    )
    text = reduced(case, using(word)).kernel().text
    assert word in text
    assert len(text.split("\n")) < 12
