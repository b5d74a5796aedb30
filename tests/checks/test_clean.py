"""Correct programs have no findings: the examples, and every variant of the models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.models.programs import NAMES, TINY, sizes_of

EXAMPLES = Path(__file__).parents[2] / "examples"
MACHINES = "a2a3,a5"


def verdicts(command_line: Run, *arguments: str) -> dict[str, dict[str, str]]:
    """Return the statuses of all checks by machine; there must be no finding."""
    code, out, err = command_line("check", "--format", "json", "--platforms", MACHINES, *arguments)
    found = json.loads(out)["verdicts"]
    assert [f for v in found for part in v["parts"] for f in part["findings"]] == []
    assert code == 0, err
    return {v["machine"]: {part["check"]: part["status"] for part in v["parts"]} for v in found}


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_examples(tilelet: Run, file: Path, thorough: bool) -> None:
    if not thorough and file.stem[:2] not in ("03", "09", "12"):
        pytest.skip("with --thorough")
    found = verdicts(tilelet, str(file))
    assert list(found) == MACHINES.split(",")
    for parts in found.values():
        assert parts["race"] in ("proved", "this run")
        assert parts["init"] == "this run"


@pytest.mark.parametrize("name", NAMES)
def test_qwen3(tilelet: Run, name: str, thorough: bool) -> None:
    """A reduced size, so capacity and alignment are not those of the real one."""
    if not thorough and name not in ("qwen3/scope1:wide", "qwen3/prefill:april"):
        pytest.skip("with --thorough")
    model, variant = name.split(":")
    sizes = [f"--{key.replace('_', '-')}={n}" for key, n in sizes_of(name, TINY).items()]
    only = ("--only", "memory,init,race,limits")
    found = verdicts(tilelet, *only, model, "--variant", variant, *sizes)
    assert all(status != "not checked" for parts in found.values() for status in parts.values())
