"""The reference interpreter, which also records tasks."""
