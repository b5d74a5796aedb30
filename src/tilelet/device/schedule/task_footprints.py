"""The parts of their arguments that tasks access, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.device.kernel.exact_footprint import ExactFootprint
from tilelet.device.kernel.view import DeviceKernel
from tilelet.device.schedule.arrays import Group, Stream
from tilelet.device.schedule.region_arrays import Ints


@dataclass(frozen=True, eq=False)
class Piece:
    """A box of one parameter that executions of a kernel read, or write.

    rows     which tasks of the group; `blocks` is the block of each
    regions  the window that each of them gets for the parameter
    starts   per axis, the start of the box in that window; None if unknown before the task runs
    extents  per axis, the extent of the box
    """

    param: int
    writes: bool
    rows: Ints
    blocks: Ints
    regions: Ints
    starts: Sequence[Ints] | None
    extents: tuple[int, ...] = ()


def task_footprints(stream: Stream, g: Group, kernel: DeviceKernel) -> Iterator[Piece]:
    """Yield all boxes that the tasks of a group access."""
    costs = np.broadcast_to(g.costs, (len(g.indices), g.blocks))
    scalars = {p: np.array(g.tasks.scalar_column(p)) for p in g.tasks.others}
    integers = {p: column for p, column in scalars.items() if column.dtype.kind == "i"}
    for cost in np.unique(costs).tolist():
        row, block = np.nonzero(costs == cost)
        of_class = {p: column[row] for p, column in integers.items()}
        signature = stream.signatures[int(cost)]
        found = ExactFootprint(kernel, signature, of_class, block)
        for (param, writes), boxes in found.boxes.items():
            if param not in g.tensors:
                continue
            regions = g.regions[g.tensors.index(param)][row]
            if boxes is None:
                yield Piece(param, writes, row, block, regions, None)
                continue
            for box in boxes:
                starts = found.starts(box, len(row))
                yield Piece(param, writes, row, block, regions, starts, box.extents)
