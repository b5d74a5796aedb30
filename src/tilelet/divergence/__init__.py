"""Locate where a result went wrong: error maps, the first wrong statement, and its repair.

`record.py` executes a program and records what every statement did; `error_map.py` describes which
regions of an output are wrong; `golden_trace.py` and `matching.py` find the arrays of a golden
among the program's tiles; `rounding_bounds.py` carries doubles alongside every value; `edits.py`
changes one op, `replay.py` executes what depends on it again, and `locate.py` combines these.
"""
