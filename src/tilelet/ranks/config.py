"""`DistributedConfig`: the devices that take part in a program of several ranks."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.ranks import BadWorld


@dataclass(frozen=True)
class DistributedConfig:
    """The world of a program: logical rank r is `device_ids[r]`.

    num_sub_workers   processes for sub-workers of a board's host; here they run in this process
    runtime, aicpu_thread_num  accepted, without effect
    block_dim  of earlier releases: accepted, without effect
    """

    device_ids: Sequence[int] = field(default_factory=lambda: [0])
    num_sub_workers: int = 0
    runtime: str = "tensormap_and_ringbuffer"
    aicpu_thread_num: int = 0
    block_dim: int | None = None

    def __post_init__(self) -> None:
        ids = list(self.device_ids)
        if not ids:
            raise BadWorld("device_ids is empty: a program needs at least one rank")
        if any(type(i) is not int or i < 0 for i in ids):
            raise BadWorld(f"device_ids are numbers from 0 up, not {ids}")
        if len(set(ids)) != len(ids):
            raise BadWorld(f"device_ids repeat: {ids}")
        if self.aicpu_thread_num not in (0, *range(2, 1 << 16)):
            raise BadWorld(f"aicpu_thread_num is 0 or at least 2, not {self.aicpu_thread_num}")
        if self.num_sub_workers < 0:
            raise BadWorld(f"num_sub_workers is 0 or more, not {self.num_sub_workers}")

    @property
    def world(self) -> int:
        return len(self.device_ids)
