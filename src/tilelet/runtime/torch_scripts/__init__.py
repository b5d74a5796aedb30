"""Deferred tensors, thread limits and generator jumps for scripts that use torch."""
