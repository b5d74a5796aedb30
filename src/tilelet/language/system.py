"""`pl.system`: tasks and pipelines."""

from tilelet.ops.tasks import (
    bar_all,
    bar_m,
    bar_v,
    sync_dst,
    sync_src,
    task_dummy,
    task_invalid,
)

__all__ = [
    "bar_all",
    "bar_m",
    "bar_v",
    "sync_dst",
    "sync_src",
    "task_dummy",
    "task_invalid",
]
