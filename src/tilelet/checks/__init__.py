"""Checks of a recorded run, which find mistakes that a passing comparison does not show.

Each check is a module with a function `check(subject) -> CheckResult`; `registry.py` lists them and
`verdict.py` runs them. A check uses the recorded tasks (`tasks/`), the index arithmetic
(`analysis/`) and the rules of the modelled device (`device/`) without duplicating them. To add one,
write the module, list it in `registry.py`, and add its messages to `diag/catalogue/checks.py`.
"""
