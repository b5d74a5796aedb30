"""Checks of a recorded run: what is wrong with a program that a passing comparison does not show.

One module for each check, with a function `check(subject) -> Part`; `registry.py` lists them and
`verdict.py` makes them. A check reads the recorded tasks (`tasks/`), the index arithmetic
(`analysis/`) and the rules of the modelled device (`device/`); it derives none of these again.
"""
