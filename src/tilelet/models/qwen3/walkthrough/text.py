"""The text of the walkthrough, read from `text.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tilelet.device.machine.description import parse_toml


@dataclass(frozen=True)
class WalkthroughStep:
    """One variant of a program at one size, and its text.

    was        number of the step it is compared with, if not the previous one
    published  tasks and microseconds measured for this program on an a2a3
    """

    variant: str
    title: str
    text: str
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    was: int | None = None
    published: tuple[int, float] | None = None


@dataclass(frozen=True)
class TextSection:
    """A program, and the steps from its first variant to its fast one."""

    model: str
    title: str
    intro: str
    steps: tuple[WalkthroughStep, ...]
    outro: str = ""


_FILE = Path(__file__).with_suffix(".toml")
_TEXT = parse_toml(_FILE.read_text(encoding="utf-8"), _FILE.name)

INTRO: str = _TEXT["intro"]
APRIL: tuple[str, ...] = tuple(_TEXT["april"])
COLUMNS: tuple[tuple[str, str], ...] = tuple(_TEXT["columns"].items())
FAULTS: tuple[tuple[str, str], ...] = tuple((fault, step) for fault, step in _TEXT["faults"])
SECTIONS = tuple(
    TextSection(steps=tuple(WalkthroughStep(**step) for step in section.pop("steps")), **section)
    for section in _TEXT["sections"]
)
