"""What is decided about a kernel before its C is written."""
