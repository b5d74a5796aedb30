"""Published times between ranks, compared with the links of the machine files."""

from __future__ import annotations

from tilelet.calibration.links import link_rows, link_spreads, links_text


def test_transfers_are_near_and_the_builtin_exchange_is_a_lower_bound() -> None:
    rows = link_rows()
    spreads = link_spreads(rows)
    assert spreads["one core, TGET"] < 1.07
    assert spreads["all-reduce, all cores"] < 1.05
    exchanges = [row for row in rows if row.family == "all_to_all_v, one core"]
    assert all(row.modelled < row.published for row in exchanges)
    assert "all_to_all_v, one core: within x" in links_text(rows)
