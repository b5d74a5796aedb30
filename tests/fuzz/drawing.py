"""The drawing of one program of a family, as the text of a `@pl.jit` function."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

Shape = tuple[int | str, ...]
"""Extents; a name is an extent that differs from call to call."""

Params = list[tuple[str, Shape, str]]
Sizes = dict[str, tuple[int, ...]]
"""Values of the named extents, one for each call."""

CALLS = 4
SCOPE = "with pl.at(level=pl.Level.CORE_GROUP):"


class Draw:
    """Draws one program, written as statements of its body."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.params: Params = []
        self.outputs: Params = []
        self.helpers = ""
        self.sizes: Sizes = {}
        self.direction = "Out"

    def one(self, *options: Any) -> Any:
        return options[int(self._rng.integers(len(options)))]

    def given(self, name: str, shape: Sequence[int | str], dtype: str = "FP32") -> None:
        """Declare an input; one without axes is a scalar."""
        self.params.append((name, tuple(shape), dtype))

    def made(self, name: str, shape: Sequence[int | str], dtype: str = "FP32") -> None:
        self.outputs.append((name, tuple(shape), dtype))

    def extent(self, name: str, *options: int) -> str:
        """Declare an extent that every call chooses from the options."""
        self.sizes[name] = tuple(self.one(*options) for _ in range(CALLS))
        return name

    def elementwise(self, tile: str, depth: int = 3) -> str:
        """Draw an expression of up to `depth` elementwise ops on a tile."""
        for _ in range(self.one(*range(depth + 1))):
            tile = self.one(
                *(f"pl.{op}({tile})" for op in ("exp", "neg", "abs", "relu")),
                *(f"pl.{op}({tile}, {self.number()})" for op in ("add", "mul", "sub")),
                *(f"pl.{op}({tile}, {self.number()})" for op in ("maximum", "minimum")),
            )
        return tile

    def number(self) -> str:
        return f"{self.one(*range(-40, 41)) / 8}"

    def loop(self) -> str:
        return self.one("range", "parallel")

    def text(self, body: str) -> str:
        declared = [f"{n}: {_annotation(s, d)}" for n, s, d in self.params]
        declared += [f"{n}: pl.{self.direction}[{_annotation(s, d)}]" for n, s, d in self.outputs]
        symbols = "".join(f'{name} = pl.dynamic("{name}")\n' for name in self.sizes)
        head = f"@pl.jit\ndef main({', '.join(declared)}):\n"
        result = ", ".join(n for n, _, _ in self.outputs)
        inner = textwrap.indent(textwrap.dedent(body).strip("\n") + f"\nreturn {result}\n", " " * 4)
        return "import tilelet.language as pl\n\n" + symbols + "\n\n" + self.helpers + head + inner


def _annotation(shape: Shape, dtype: str) -> str:
    if not shape:
        return f"pl.Scalar[pl.{dtype}]"
    return f"pl.Tensor[[{', '.join(map(str, shape))}], pl.{dtype}]"


def clamped(value: str, most: int) -> str:
    return f"pl.max(pl.min({value}, {most}), 0)"
