"""Plan a kernel before its C is emitted."""
