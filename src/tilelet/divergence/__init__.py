"""Where a wrong result went wrong: maps of errors, the first wrong statement, and its repair.

`record.py` executes a program and keeps what every statement did; `error_map.py` describes which
regions of an output are wrong; `golden_trace.py` and `matching.py` find the arrays that a golden
computes among the program's tiles; `wide.py` carries doubles beside every value; `edits.py` changes
one op, `replay.py` executes what depends on it again, and `locate.py` puts these together.
"""
