"""Generate docs/advice.md from the rules."""

from __future__ import annotations

from tilelet.advice.core import Rule
from tilelet.advice.rules import RULES
from tilelet.diag.catalogue import describe, text_beside

_HEAD = """\
# Advice

`tilelet advise kernel.py -p a2a3` looks for the faults below. If a fault has a rewriting, the
rewritten script is checked, run on this CPU, and modelled. It runs on the script's inputs and on
others, with other initial contents of outputs. Results are compared bit for bit, or within rounding
(2 units in the last place of a 16-bit output, 64 of FP32, relative to its largest element). A
rewriting is proposed only if it is correct and its gain exceeds the error of modelled changes.
Rewritings that only help together are tried together: first two scopes are merged, then loops are
interchanged.

Every rewriting has a claim:

- *proved*: results are equal for all inputs. `--fix` applies it.
- *holds for the inputs tried*: trip counts, branches or offsets depend on inputs. These integers
  were varied as far as the original script accepts them, and results were equal each time.
  `--fix --unproved` applies it.
- *not looked at*: there is no rewriting, or it could not be run.

`--fix` applies rewritings one by one and prints the costs after each, and the diff. Comments and
layout are preserved. The script is modified only with `--in-place`.

If a program wastes machine resources (few tasks, short rows, empty buffers) and no rewriting is
known, half and double of every size in the text are modelled, and the better one is reported with
these causes. `--fix` leaves sizes to `tilelet tune`.

A change with a small gain and no cost is reported, too, with the same proof. Tests run both kernels
of each section.

This page is generated from the rules: `tilelet docs --write`.

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
