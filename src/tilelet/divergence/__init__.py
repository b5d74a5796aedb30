"""Locate where a result went wrong: error maps, the statements in question, and their repair.

`record.py` executes a program and records what every statement did; `error_map.py` and
`wrong_regions.py` describe which regions of an output are wrong. `diagnose.py` grades a difference
in three steps: `evidence.py` finds the tiles that agree with arrays of the golden
(`golden_trace.py`, `matching.py`), `slices.py` follows statements from a wrong output back to them,
and `repair.py` tries the changes of `edits.py` and `scoped_edits.py`, executing again what depends
on them (`replay.py`). `rounding_bounds.py` carries doubles alongside every value.
"""
