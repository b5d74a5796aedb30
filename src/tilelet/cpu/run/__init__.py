"""Compile, load and run the C of a program."""
