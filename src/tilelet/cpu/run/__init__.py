"""Compiling, loading and running the C of a program."""
