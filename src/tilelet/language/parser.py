"""`pl.parser`: programs from text, by another name."""

from tilelet.language.text import loads, loads_program, parse, parse_program

__all__ = ["loads", "loads_program", "parse", "parse_program"]
