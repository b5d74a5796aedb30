"""Compiled programs: argument binding, engines, and calls."""
