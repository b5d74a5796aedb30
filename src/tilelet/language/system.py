"""`pl.system`: tasks and pipelines."""

from tilelet.ops.tasks import (
    bar_all,
    bar_m,
    bar_v,
    cacheinvalid,
    fence,
    set_ffts,
    sync_dst,
    sync_set,
    sync_src,
    sync_wait,
    task_dummy,
    task_invalid,
)

__all__ = [
    "bar_all",
    "bar_m",
    "bar_v",
    "cacheinvalid",
    "fence",
    "set_ffts",
    "sync_dst",
    "sync_set",
    "sync_src",
    "sync_wait",
    "task_dummy",
    "task_invalid",
]
