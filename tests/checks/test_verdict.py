"""Which checks are made, and what the verdict says of them."""

from __future__ import annotations

import pytest

from tilelet.checks.registry import CHECKS, chosen
from tilelet.diag.catalogue.checks import UnknownCheck


def test_checks_are_chosen_by_name() -> None:
    assert [c.name for c in chosen(["limits", "capacity"])] == ["capacity", "limits"]
    assert chosen([]) == [c for c in CHECKS.values() if not c.opt_in]
    with pytest.raises(UnknownCheck, match="no check `limit`"):
        chosen(["limit"])
