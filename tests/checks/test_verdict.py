"""Which checks are made, and what the verdict says of them."""

from __future__ import annotations

import pytest
from tests.checks.programs import subject_of
from tests.checks.test_race import atomic_blocks

from tilelet.checks.findings import Status
from tilelet.checks.registry import CHECKS, chosen
from tilelet.checks.verdict import verdict_on
from tilelet.diag.catalogue.checks import UnknownCheck


def test_a_check_that_cannot_be_made_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_: object) -> None:
        raise UnknownCheck("what", [])

    monkeypatch.setattr("tilelet.checks.init.check", fails)
    verdict = verdict_on(subject_of(atomic_blocks), chosen(["init", "capacity"]))
    assert [p.status for p in verdict.parts] == [Status.NOT_CHECKED, Status.PROVED]
    assert verdict.parts[0].summary == "no check `what`"


def test_checks_are_chosen_by_name() -> None:
    assert [c.name for c in chosen(["limits", "capacity"])] == ["capacity", "limits"]
    assert chosen([]) == [c for c in CHECKS.values() if not c.opt_in]
    with pytest.raises(UnknownCheck, match="no check `limit`"):
        chosen(["limit"])
