"""`pl.parser`: an alias for the functions that parse program text."""

from tilelet.language.text import loads, loads_program, parse, parse_program

__all__ = ["loads", "loads_program", "parse", "parse_program"]
