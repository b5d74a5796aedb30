"""docs/qwen3.md: the Qwen3 programs from the first version to the fast one, with figures."""
