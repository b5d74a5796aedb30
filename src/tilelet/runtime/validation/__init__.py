"""Goldens, comparators, and the judgement of outputs."""
