"""Every known defect is found, named, and reproduced from its seed; corrected, it is clean."""

from __future__ import annotations

import pytest
from tests.ranks.defects import DEFECTS, Defect

from tilelet.diag.render import render_text
from tilelet.ranks.config import DistributedConfig
from tilelet.ranks.explore import Explorer


def explorer(defect: Defect) -> Explorer:
    config = DistributedConfig(device_ids=list(range(defect.ranks)))
    program = defect.program.lower()
    return Explorer("program", program, defect.arguments, config, cores=defect.cores)


@pytest.mark.parametrize("name", DEFECTS)
def test_it_is_found_and_replayed(name: str) -> None:
    defect = DEFECTS[name](False)
    result = explorer(defect).explore()
    codes = {d.code for d, _ in result.findings}
    assert codes == {defect.code}, result.line()
    first, seed = result.findings[0]
    text = render_text(first, color=False)
    assert defect.says in text
    if seed:  # those that are visible in the text have none
        again = [e.diagnostic for e in explorer(defect).replay(seed)]
        assert text in [render_text(d, color=False) for d in again]


@pytest.mark.parametrize("name", DEFECTS)
def test_mended_it_is_clean(name: str) -> None:
    result = explorer(DEFECTS[name](True)).explore()
    assert result.findings == []
    assert result.tried
