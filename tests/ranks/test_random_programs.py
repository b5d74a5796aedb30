"""Random programs: the right ones raise no alarm, a planted defect is found."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from tests.ranks.programs import world
from tests.ranks.random_programs import DEFECTS, random_program

from tilelet.diag.core import UserError
from tilelet.ranks.explore import Explorer


def findings(text: str, ranks: int, folder: Path) -> list[str]:
    """Return the codes found in a few schedules."""
    file = folder / "random_program.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("random_program", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = np.ones((ranks, 1, 32), np.float32)
    config = world(ranks).distributed_config
    compiled = module.host.compile(x, x.copy(), config=world(ranks))
    arguments = {"x": x, "y": np.zeros_like(x)}
    explorer = Explorer(
        "random", compiled.program, arguments, config, seeded=8, covered=40, steps=6000
    )
    try:
        return [d.code for d, _ in explorer.explore().findings]
    except UserError as error:
        return [error.code]


@pytest.mark.parametrize("seed", range(8))
def test_right_programs_raise_no_alarm(seed: int, tmp_path: Path) -> None:
    assert findings(*random_program(seed), tmp_path) == []


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.parametrize("seed", [1, 2])
def test_planted_defects_are_found(seed: int, defect: str, tmp_path: Path) -> None:
    found = findings(*random_program(seed, defect), tmp_path)
    assert any(code.startswith("E17") for code in found)
