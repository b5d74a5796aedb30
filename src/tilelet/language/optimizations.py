"""`pl.optimizations`: an alias for what `optimizations=[...]` of a scope takes."""

from tilelet.syntax.markers import CrossCoreSlot, Split, auto_chunk, cross_core_slot, split

__all__ = ["CrossCoreSlot", "Split", "auto_chunk", "cross_core_slot", "split"]
