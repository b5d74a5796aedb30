"""Cache prefetching: `pl.prefetch`. It has no effect on results.

The handles that these ops return are arbitrary numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelet.ir.spec import Call, Engine, OpFields, Plane, composition
from tilelet.ops import infer

if TYPE_CHECKING:
    from tilelet.ops.annotations import Int
    from tilelet.syntax.types import Tensor

__all__ = ["async_prefetch", "make_context", "session", "wait"]

_FIELDS: OpFields = {
    "engine": Engine.NONE,
    "plane": Plane.BOTH,
    "on_chip": (),
    "era": "HEAD",
}
_HANDLE = 0


@composition(name="prefetch.make_context", family=_FIELDS)
def make_context() -> int:
    """Create the context of `pl.prefetch.async_prefetch` and `pl.prefetch.session`.

    result: a handle

    Example: `warm = pl.prefetch.make_context()`
    """
    return _HANDLE


def _infer_prefetch(call: Call) -> infer.Types:
    infer.shaped_type(call, "src")
    infer.integer(call, "ctx")
    return ()


@composition(name="prefetch.async_prefetch", infer=_infer_prefetch, family=_FIELDS)
def async_prefetch(src: Tensor, ctx: Int) -> int:
    """Start prefetching a tensor into the cache.

    src: a tensor, which is not changed; ctx: from `pl.prefetch.make_context`
    result: a handle for `pl.prefetch.wait`

    Example: `event = pl.prefetch.async_prefetch(weights, warm)`
    """
    return _HANDLE


@composition(name="prefetch.session", family=_FIELDS)
def session(ctx: Int) -> int:
    """Create a session that orders the transfers of a context.

    ctx: from `pl.prefetch.make_context`
    result: a handle for `pl.prefetch.wait`

    Example: `order = pl.prefetch.session(warm)`
    """
    return _HANDLE


@composition(name="prefetch.wait", family=_FIELDS)
def wait(event: Int, session_handle: Int) -> int:
    """Wait until a tensor is in the cache.

    event: from `pl.prefetch.async_prefetch`; session_handle: from `pl.prefetch.session`
    result: 0

    Example: `pl.prefetch.wait(event, order)`
    """
    return _HANDLE
