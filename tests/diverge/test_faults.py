"""Seeded faults: the tool that makes the table of docs/checks.md, and the table itself."""

from __future__ import annotations

import re

import pytest
from tests.diverge.faults import BEGIN, CLASSES, END, PAGE, seeded
from tests.diverge.removed_edges import KIND

SHARE = 0.95


def rows() -> dict[str, tuple[int, int]]:
    """Return the number of faults and of those placed correctly, by class."""
    text = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    found = re.findall(r"^\| ([a-z ]+) \| (\d+) \| (\d+) \(\d+ %\)", text, re.MULTILINE)
    return {name: (int(faults), int(right)) for name, faults, right in found}


def test_the_table_has_all_classes_and_enough_faults() -> None:
    table = rows()
    assert set(table) == {*CLASSES, KIND, "all"}
    faults, right = table.pop("all")
    assert (faults, right) == tuple(map(sum, zip(*table.values())))
    assert faults >= 300
    assert right >= SHARE * faults


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ("04_", "function"),
        ("scope1:per_block", "edge"),
        ("scope1:per_block", "shrunk"),
        ("08_", "assemble"),
    ],
)
def test_faults_of_one_program_are_placed(program: str, kind: str) -> None:
    placed = list(seeded(1, (1, 1), program, kind, 5.0, verbose=True))
    assert placed
    assert all(p.right for p in placed)


def test_the_share_holds_when_it_is_done_again(thorough: bool) -> None:
    if not thorough:
        pytest.skip("with --thorough")
    placed = list(seeded(7, (1, 1), "", "", 15.0, verbose=False))
    assert len(placed) >= 100
    assert sum(p.right for p in placed) >= SHARE * len(placed)
