"""Why one task waits for another: `deps=`, creator of a tensor, or writer of a window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilelet.device.schedule.arrays import Stream

Ints = NDArray[np.int64]

KINDS = ("tensormap", "creator", "explicit")


def edge_kinds(stream: Stream, producer: Ints, consumer: Ints) -> Ints:
    """Return for each edge between two tasks the index of its kind in `KINDS`."""
    count = max(stream.count, 1)
    key = producer * count + consumer
    tasks = np.arange(stream.count)
    named = stream.deps * count + np.repeat(tasks, np.diff(stream.dep_ptr))
    kinds = np.where(np.isin(key, _creations(stream, tasks)), 1, 0)
    return np.where(np.isin(key, named), 2, kinds)


def _creations(stream: Stream, tasks: Ints) -> Ints:
    """Return edges from the first user of each temporary tensor to all others, as keys."""
    if not len(stream.arg_region):
        return np.zeros(0, np.int64)
    used = stream.regions.buffer[stream.arg_region]
    owner = np.repeat(tasks, np.diff(stream.arg_ptr))
    first = np.full(len(stream.regions.buffers), -1, np.int64)
    first[used[::-1]] = owner[::-1]  # the last assignment wins
    fresh = stream.regions.fresh[used]
    return np.unique(first[used[fresh]] * stream.count + owner[fresh])
