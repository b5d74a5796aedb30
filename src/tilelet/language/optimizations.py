"""`pl.optimizations`: aliases of the values that `optimizations=[...]` of a scope takes."""

from tilelet.syntax.markers import CrossCoreSlot, Split, auto_chunk, cross_core_slot, split

__all__ = ["CrossCoreSlot", "Split", "auto_chunk", "cross_core_slot", "split"]
