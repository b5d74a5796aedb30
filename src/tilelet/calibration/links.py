"""Published times of transfers between ranks, beside the links of the machine files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.device.machine.description import Links, load_machine
from tilelet.diag.json_types import JsonObject

_TRANSFER, _EXCHANGE, _REDUCE = "one core, TGET", "all_to_all_v, one core", "all-reduce, all cores"
# Bytes, and ticks of 20 ns: the runtime takes 750 million of them for 15 s.
_TICKS = {4096: 36, 16384: 150, 65536: 580, 262144: 2410, 1 << 20: 9318, 4 << 20: 37924}
# Ranks, bytes to each peer, and microseconds (median).
_EXCHANGES = (
    (2, 8192, 29.0), (2, 65536, 210.0), (2, 1 << 20, 3400.0),
    (8, 24960, 589.0), (8, 65536, 1160.0), (8, 1 << 20, 18000.0),
)  # fmt: skip
# Machine, ranks, microseconds, and GB/s of each rank meanwhile.
_REDUCES = (("a2a3", 8, 437.0, 63.6), ("a5", 2, 531.0, 29.7))


@dataclass(frozen=True)
class LinkRow:
    """A published time between ranks, and what the links of the machine give."""

    family: str
    name: str
    machine: str
    published: float
    modelled: float

    @property
    def error(self) -> float:
        return self.modelled / self.published - 1


def link_rows() -> list[LinkRow]:
    a2a3 = _links("a2a3")
    rows = [
        LinkRow(_TRANSFER, f"{n >> 10} KB", "a2a3", ticks * 0.02, _by_one_core(a2a3, n))
        for n, ticks in _TICKS.items()
    ]
    for ranks, nbytes, us in _EXCHANGES:
        # A barrier before and after, and one transfer to every peer, one after the other.
        modelled = 2 * a2a3.signal_us + (ranks - 1) * _by_one_core(a2a3, nbytes)
        rows.append(LinkRow(_EXCHANGE, f"{ranks} ranks, {nbytes:,} B", "a2a3", us, modelled))
    for machine, ranks, us, rate in _REDUCES:
        modelled = us * rate / min(_links(machine).rank_gbs, _links(machine).link_gbs * (ranks - 1))
        rows.append(LinkRow(_REDUCE, f"{ranks} ranks, a product", machine, us, modelled))
    return rows


def _links(machine: str) -> Links:
    links = load_machine(machine).links
    assert links is not None
    return links


def _by_one_core(links: Links, nbytes: int) -> float:
    return links.start_us + nbytes / (min(links.core_gbs, links.link_gbs) * 1e3)


def link_spreads(rows: Sequence[LinkRow]) -> dict[str, float]:
    """Return, for each family, the largest ratio between modelled and published times."""
    found: dict[str, float] = {}
    for row in rows:
        off = float(np.exp(abs(np.log(row.modelled / row.published))))
        found[row.family] = max(found.get(row.family, 1.0), off)
    return found


def links_text(rows: Sequence[LinkRow]) -> str:
    lines = [f"{'between ranks':28}{'published':>12}{'modelled':>12}{'error':>9}  family"]
    lines += [
        f"{f'{row.machine}: {row.name}':28}{row.published:12.2f}{row.modelled:12.2f}"
        f"{row.error:+9.1%}  {row.family}"
        for row in rows
    ]
    for family, factor in link_spreads(rows).items():
        lines.append(f"{family}: within x {factor:.2f}")
    return "\n".join(lines)


def links_data(rows: Sequence[LinkRow]) -> list[JsonObject]:
    spreads = link_spreads(rows)
    return [
        {
            "name": row.name, "family": row.family, "machine": row.machine,
            "published_us": row.published, "modelled_us": round(row.modelled, 4),
            "factor": round(spreads[row.family], 4),
        }
        for row in rows
    ]  # fmt: skip
