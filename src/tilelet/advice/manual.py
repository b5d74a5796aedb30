"""Generate docs/advice.md: the text in `manual.md`, filled in from the rules."""

from __future__ import annotations

from pathlib import Path

from tilelet.advice.core import Rule
from tilelet.advice.rules import RULES
from tilelet.diag.catalogue import describe, text_beside


def advice_markdown() -> str:
    """Return the contents of docs/advice.md."""
    rows = [
        f"| [{rule.name}](#{rule.name}) | {rule.problem.code} | {describe(rule.problem).summary} "
        f"| {'yes' if rule.rewrites else 'no'} |"
        for rule in RULES
    ]
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return template.format(rows="\n".join(rows), sections="\n".join(map(_section, RULES)))


def _section(rule: Rule) -> str:
    text = text_beside(rule.problem)
    lines = [f"## {rule.name}", "", describe(rule.problem).body, ""]
    lines += [f"{name}: {text[name]}\n" for name in ("Evidence", "Legal if") if name in text]
    for name in ("Before", "After"):
        lines += [f"{name}:", "", text[name], ""]
    return "\n".join(lines)
