"""`pl.prefetch`: loading memory into the cache before its use."""

from tilelet.ops.prefetch import async_prefetch, make_context, session, wait

__all__ = ["async_prefetch", "make_context", "session", "wait"]
