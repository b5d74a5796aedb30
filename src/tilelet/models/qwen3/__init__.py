"""Qwen3 layers as tile programs, from the naive versions of April 2026 to fast ones."""
