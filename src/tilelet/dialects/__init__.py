"""Dialects: what public releases of PyPTO take of the language, and whether a program fits one."""

from tilelet.dialects.check import check
from tilelet.dialects.data import DIALECTS, Dialect, dialect_named

__all__ = ["DIALECTS", "Dialect", "check", "dialect_named"]
