"""Generate docs/advice.md from the rules."""

from __future__ import annotations

from tilelet.advice.core import Rule
from tilelet.advice.rules import RULES
from tilelet.diag.catalogue import describe, text_beside

_HEAD = """\
# Advice

`tilelet advise kernel.py -p a2a3` looks for the faults below. Where a fault can be rewritten, the
rewritten script is checked, run on this CPU with the script's inputs and with others (memory that
it writes to holds something else each time), compared bit for bit or within rounding (2 units in
the last place of a 16-bit output, 64 of FP32, relative to its largest element), and modelled. What
does not hold, or does not help by more than modelled changes have been wrong, is not proposed.
Rewritings that only help together are tried together: two scopes become one, then the loops change
places.

Every rewriting carries a claim:

- *proved*: results are equal for all inputs. `--fix` applies it.
- *holds for the inputs tried*: inputs decide trip counts, branches or offsets. These integers were
  varied as far as the original script accepts them, and results were equal each time.
  `--fix --unproved` applies it.
- *not looked at*: there is no rewriting, or it could not be run.

`--fix` applies rewritings one after the other and shows the ladder and the diff. Comments and
layout stay. The script is written to with `--in-place` only.

What was not tried is not proposed. Where the program wastes the machine (few tasks, short rows,
empty buffers) and no rewriting is known, half and double of every size in the text are modelled;
the better one is reported with these causes. `--fix` leaves sizes to `tilelet tune`.

A change that saves too little to be made by itself, but costs nothing and saves time, tasks, bytes
or work of the cores, is told too, with the same proof. What each rule says of the two kernels of
its section is a test.

This page is made from the rules: `tilelet docs --write`.

| rule | code | | rewritten |
|---|---|---|---|
"""


def advice_markdown() -> str:
    """Return the contents of docs/advice.md."""
    rows = [
        f"| [{rule.name}](#{rule.name}) | {rule.problem.code} | {describe(rule.problem).summary} "
        f"| {'yes' if rule.rewrites else 'no'} |"
        for rule in RULES
    ]
    return _HEAD + "\n".join(rows) + "\n\n" + "\n".join(map(_section, RULES))


def _section(rule: Rule) -> str:
    text = text_beside(rule.problem)
    lines = [f"## {rule.name}", "", describe(rule.problem).body, ""]
    lines += [f"{name}: {text[name]}\n" for name in ("Evidence", "Legal if") if name in text]
    for name in ("Before", "After"):
        lines += [f"{name}:", "", text[name], ""]
    return "\n".join(lines)
