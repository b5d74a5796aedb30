"""Generate docs/portability.md: the text in `page.md`, filled in from the dialect data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilelet.diag.catalogue import classes, describe
from tilelet.dialects.data import DIALECTS, Dialect
from tilelet.ir.spec import REGISTRY, Limit

_AREA = "tilelet.diag.catalogue.portability"


def portability_markdown() -> str:
    """Fill in `page.md`."""
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    found = [cls for cls in classes().values() if cls.__module__ == _AREA]
    return template.format(
        dialects="\n".join(f"| `{d.name}` | {d.about} |" for d in DIALECTS.values()),
        missing="\n\n".join(_missing_parts()),
        limits="\n".join(_limits()),
        findings="\n".join(f"| {cls.code} | {describe(cls).summary} |" for cls in found),
    )


def _missing_parts() -> Iterator[str]:
    """Yield what each dialect lacks, in paragraphs."""
    for dialect in DIALECTS.values():
        yield f"## Not in {dialect.name}"
        yield _gone(dialect)
        others = [_missing_names(dialect, o) for o in DIALECTS.values() if o is not dialect]
        yield from filter(None, others)


def _gone(dialect: Dialect) -> str:
    rows = [
        f"| `pl.{name}` | {gone.why} | {_code(gone.instead)} |"
        for name, gone in dialect.gone.items()
    ]
    return "| name | why | instead |\n|---|---|---|\n" + "\n".join(rows)


def _code(text: str) -> str:
    return f"`{text}`" if text.startswith("pl.") and "," not in text else text


def _missing_names(dialect: Dialect, other: Dialect) -> str:
    """Return the names that only the other dialect has, ignoring tensor and tile variants."""
    names = [
        n
        for n in other.names
        if n not in dialect.names and n not in dialect.gone and "." not in n and n[0].islower()
    ]
    shown = ", ".join(f"`pl.{name}`" for name in names)
    return f"Only in {other.name}: {shown}." if shown else ""


def _limits() -> Iterator[str]:
    found: dict[tuple[str, str], dict[str, None]] = {}
    for name, limit in _limited_ops():
        found.setdefault((limit.reason, limit.instead), {})[f"`pl.{name}`"] = None
    for (why, what), names in found.items():
        yield f"| {', '.join(names)} | {why} | {what} |"


def _limited_ops() -> Iterator[tuple[str, Limit]]:
    for name, spec in REGISTRY.items():
        for limit in spec.limits:
            yield name, limit
