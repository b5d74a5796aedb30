"""Kernels to write: specifications with references, floors and scores."""
