"""`pl.array`: small arrays kept by the control program."""

from tilelet.ops.tasks import create, get, set

__all__ = [
    "create",
    "get",
    "set",
]
