"""Generated programs of several ranks: native code gives what the interpreter gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.ranks.generated import RankProgram
from tests.ranks.programs import world

from tilelet.diag.core import UserError
from tilelet.ir.core import Op
from tilelet.ranks import native_calls
from tilelet.ranks.explore import Explorer, Late
from tilelet.ranks.races import HappensBefore
from tilelet.ranks.rank import Strand
from tilelet.ranks.scheduler import Random
from tilelet.runtime import RunConfig, compile_program
from tilelet.tasks.window import Window

SEEDS = range(6)


@pytest.fixture(autouse=True)
def _natively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_calls, "MAX_INTERPRETED", 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_native_code_agrees_with_the_interpreter(tmp_path: Path, seed: int) -> None:
    check_results(RankProgram(seed), tmp_path)


def check_results(program: RankProgram, folder: Path) -> None:
    main, config = program.load(folder), world(program.ranks).distributed_config
    found: list[dict[str, Any]] = []
    for engine in ("interp", "cpu", "cpu"):
        arguments = program.arguments()
        main(*arguments.values(), config=RunConfig(engine=engine, distributed_config=config))
        found.append(arguments)
    for name in ("y", "z"):
        assert found[0][name].any()
        assert found[1][name].tobytes() == found[0][name].tobytes(), name
        assert found[2][name].tobytes() == found[0][name].tobytes(), name


@pytest.mark.parametrize("seed", SEEDS)
def test_errors_do_not_depend_on_the_engine(tmp_path: Path, seed: int) -> None:
    program = RankProgram(seed, fails=True)
    main, config = program.load(tmp_path), world(program.ranks).distributed_config
    errors: list[str] = []
    for engine in ("interp", "cpu"):
        with pytest.raises(UserError) as raised:
            main(
                *program.arguments().values(),
                config=RunConfig(engine=engine, distributed_config=config),
            )
        errors.append(str(raised.value))
    assert "E0501" in errors[0]
    assert errors[0] == errors[1]


@pytest.mark.parametrize("policy", [Random, Late])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_observed_does_not_depend_on_the_engine(
    tmp_path: Path, seed: int, policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_observations(RankProgram(seed), policy, tmp_path, monkeypatch)


def check_observations(
    program: RankProgram, policy: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run one schedule on both engines, and compare every access with its clock."""
    seen: list[object] = []
    access = HappensBefore.access

    def noted(
        self: HappensBefore, strand: Strand, how: str, window: Window, op: Op, value: int = 0
    ) -> None:
        clock = sorted(strand.clock.items())
        seen.append((strand.title, how, window.name, window.bytes, op.loc, value, clock))
        access(self, strand, how, window, op, value)

    monkeypatch.setattr(HappensBefore, "access", noted)
    main, config = program.load(folder), world(program.ranks)
    arguments = program.arguments()
    passed = compile_program(main.specialize(*arguments.values()), config=config).program
    logs: list[list[object]] = []
    for is_native in (False, True):
        seen.clear()
        explorer = Explorer(
            "main", passed, arguments, config.distributed_config, is_native=is_native
        )
        findings, world_, _ = explorer.run(policy(3))
        logs.append([*seen, world_.steps, [f.diagnostic for f in findings]])
    assert logs[0] == logs[1]
    assert len(logs[0]) > 2
