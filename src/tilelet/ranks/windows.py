"""Window buffers that outlive a run: `persistent=True` of a worker."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilelet.ranks.host import Plan
from tilelet.tasks.window import Array


@dataclass
class KeptWindows:
    """The memory of window buffers, by program, name and ranks.

    zeroes  they are zeroed before each run
    """

    zeroes: bool = True
    _memory: dict[tuple[str, str, tuple[int, ...]], list[Array]] = field(
        default_factory=dict[tuple[str, str, tuple[int, ...]], list[Array]]
    )

    def use(self, program: str, plan: Plan) -> None:
        """Let the windows of a plan lie where those of the run before it lay."""
        for allocation in plan.allocations:
            key = (program, allocation.name, allocation.domain.ranks)
            known = self._memory.get(key)
            if known is None or len(known[0]) != allocation.nbytes:
                fresh = [s.data for s in allocation.slices if s.data is not None]
                self._memory[key] = fresh
                continue
            for part, data in zip(allocation.slices, known):
                if self.zeroes:
                    data.fill(0)
                part.data = data
