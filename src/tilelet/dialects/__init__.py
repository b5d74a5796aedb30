"""Dialects: the parts of the language that public PyPTO releases support, with checks."""

from tilelet.dialects.check import check
from tilelet.dialects.data import DIALECTS, Dialect, dialect_named

__all__ = ["DIALECTS", "Dialect", "check", "dialect_named"]
