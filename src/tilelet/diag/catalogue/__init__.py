"""The catalogue: one class per mistake, one module per area.

`E01xx` python, `E02xx` names, `E03xx` ops, `E04xx` scopes, `E05xx` windows, `E06xx` harness,
`E07xx` command, `E08xx` unsupported, `E09xx` device, `E10xx` models, `E11xx` checks, `E12xx`
portability, `E13xx` advice, `E14xx` tuner, `E15xx` generate, `E155x` sampling, `E156x` checkpoint,
`E16xx` page, `E17xx` ranks, `E18xx` oracle; `W` codes are cautions, which do not stop a run. The
messages of advice (`W13xx`) are beside the rules, in `advice/rules/`.

A class is the message: its docstring says what is wrong. Why, how to fix it and an example are in
the Markdown file beside the module, under the code. To add a mistake, write both, add a sample to
tests/diag/samples.py, run the tests once with --update-golden, read the new text, and run
`make docs`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
import textwrap
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tilelet.diag.core import UserError
from tilelet.diag.text import near

_HOMES = (__name__, "tilelet.advice.rules")
"""Packages whose modules define messages; imported on demand, because they may be above `diag`."""


class Description(NamedTuple):
    """What the catalogue says about a class."""

    title: str  # "type changed in loop"
    summary: str  # the docstring, on one line
    body: str  # the summary and the explanation
    example: str  # a short program that makes the mistake, or ""


@functools.cache
def areas() -> dict[str, list[type[UserError]]]:
    """Map the title of every area to its classes; both are in code order.

    A module of this package is an area; all rules together are one.
    """
    found: dict[str, list[type[UserError]]] = {}
    for home in _HOMES:
        package = importlib.import_module(home)
        for info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{home}.{info.name}")
            titled = module if home == __name__ else package
            found.setdefault(_title(titled), []).extend(_classes_in(module))
    filled = [(title, sorted(group, key=lambda cls: cls.code)) for title, group in found.items()]
    return dict(sorted(filled, key=lambda area: area[1][0].code))


def _title(module: ModuleType) -> str:
    return inspect.cleandoc(module.__doc__ or "").splitlines()[0].rstrip(".")


def _classes_in(module: ModuleType) -> list[type[UserError]]:
    return [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, UserError)
        and value.__module__ == module.__name__
    ]


@functools.cache
def classes() -> dict[str, type[UserError]]:
    """Return every catalogue class by its code, in code order."""
    found: dict[str, type[UserError]] = {}
    for members in areas().values():
        for cls in members:
            other = found.setdefault(cls.code, cls)
            assert other is cls, f"{cls.__name__} and {other.__name__} share the code {cls.code}"
    return dict(sorted(found.items()))


def describe(cls: type[UserError]) -> Description:
    """Return title, summary, full text and example of a catalogue class."""
    docstring = inspect.cleandoc(cls.__doc__ or "")
    sections = text_beside(cls)
    explanation, example = split_code(sections.get(cls.code, ""))
    words: list[str] = re.findall(r"DType|[A-Z]+(?![a-z])|[A-Z][a-z]*", cls.__name__)
    return Description(
        title=" ".join(
            word if len(word) > 1 and word.isupper() else word.lower() for word in words
        ),
        summary=" ".join(docstring.split()),
        body=f"{docstring}\n\n{explanation}".strip(),
        example=example or split_code(sections.get("Before", ""))[1],
    )


def text_beside(cls: type[UserError]) -> dict[str, str]:
    """Return the sections of the Markdown file beside the module of a class.

    The key of a section is its heading, up to the colon.
    """
    path = inspect.getsourcefile(cls)
    return _sections(Path(path).with_suffix(".md")) if path else {}


@functools.cache
def _sections(path: Path) -> dict[str, str]:
    sections: dict[str, list[str]] = {}
    heading, in_code = "", False
    for line in path.read_text(encoding="utf-8").splitlines():
        in_code ^= line.startswith("```")
        if line.startswith("#") and not in_code:
            heading = line.lstrip("# ").partition(":")[0]
        else:
            sections.setdefault(heading, []).append(line)
    return {heading: "\n".join(lines).strip() for heading, lines in sections.items()}


def split_code(section: str) -> tuple[str, str]:
    """Split a section into its prose and the Python program that follows it."""
    prose, _, code = section.partition("```python\n")
    return prose.strip(), code.removesuffix("```").strip()


def explain(code: str) -> str:
    """Return the text of `tilelet explain CODE`; raise `UnknownCode` if there is none."""
    from tilelet.diag.catalogue.command import UnknownCode

    cls = classes().get(code.upper())
    if cls is None:
        raise UnknownCode(code, near(code, classes()))
    text = describe(cls)
    parts = [f"{cls.severity}[{cls.code}]: {text.title}", text.body]
    if text.example:
        parts += ["Example:", textwrap.indent(text.example, "    ")]
    return "\n\n".join(parts)


def errors_markdown() -> str:
    """Return the contents of docs/errors.md."""
    parts = [
        "# Error codes",
        "<!-- Generated by `make docs` from src/tilelet/diag/catalogue. Do not edit. -->",
        "`tilelet explain CODE` prints the same. Errors (`E`) stop a run; cautions (`W`) do not.",
    ]
    for title, members in areas().items():
        parts.append(f"## {title}")
        for cls in members:
            text = describe(cls)
            parts += [f"### {cls.code}: {text.title}", text.body]
            if text.example:
                parts.append(f"```python\n{text.example}\n```")
    return "\n\n".join(parts) + "\n"
