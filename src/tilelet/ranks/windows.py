"""Window buffers that persist between runs: `persistent=True` of a worker."""

from __future__ import annotations

from tilelet.dataclasses import dataclass, field
from tilelet.ranks.host import Plan
from tilelet.ranks.memory import SymmetricBuffer


@dataclass
class KeptWindows:
    """The slices of window buffers, by program, name and ranks.

    zeroes  they are zeroed before each run
    """

    zeroes: bool = True
    _slices: dict[tuple[str, str, tuple[int, ...]], list[SymmetricBuffer]] = field(
        default_factory=dict[tuple[str, str, tuple[int, ...]], list[SymmetricBuffer]]
    )

    def copy_into(self, program: str, plan: Plan) -> None:
        """Initialize the windows of a plan with copies of their contents after the previous run."""
        for allocation in plan.allocations:
            known = self._slices.get((program, allocation.name, allocation.domain.ranks))
            if self.zeroes or known is None or known[0].nbytes != allocation.nbytes:
                continue
            for part, old in zip(allocation.slices, known):
                if part.data is not None and old.data is not None:
                    part.data[...] = old.data

    def use(self, program: str, plan: Plan) -> None:
        """Give the windows of a plan the memory of the previous run."""
        for allocation in plan.allocations:
            key = (program, allocation.name, allocation.domain.ranks)
            known = self._slices.get(key)
            if known is None or known[0].nbytes != allocation.nbytes:
                self._slices[key] = allocation.slices
                continue
            for part in known:
                part.allocation = allocation
                if self.zeroes and part.data is not None:
                    part.data.fill(0)
            allocation.slices = known
