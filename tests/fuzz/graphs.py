"""Programs of hundreds of small tasks whose windows overlap in many ways."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from tests.fuzz.drawing import SCOPE, Draw

_ROWS, _COLUMNS, _ENTRIES = 48, 32, 16

_VIEWS = {
    "a": (_ROWS, _COLUMNS),
    "b": (_ROWS, _COLUMNS),
    "part": (20, 20),
    "turned": (_COLUMNS, _ROWS),
    "flat": (_ROWS * _COLUMNS // 64, 64),
    "bits": (_ROWS, _COLUMNS),
    "own": (_ROWS, _COLUMNS),
}
"""Tensors, and views of `a` and of a part of it, with their shapes."""


def _row(d: Draw, most: int) -> str:
    """Draw a row that depends on the index of one of two loops, or on a table."""
    return d.one(
        f"(i * {d.one(1, 2, 3, 5, 7)} + {d.one(0, 1, 4)}) % {most + 1}",
        f"(i + j * {d.one(1, 3, 8)}) % {most + 1}",
        f"pl.max({most} - i, 0)",
        f"pl.max(pl.min(pl.read(table, [(i + j) % {_ENTRIES}]), {most}), 0)",
        f"{d.one(*range(most + 1))}",
    )


def _window(d: Draw, name: str, shape: tuple[int, int], row: str) -> str:
    column = d.one(0, _VIEWS[name][1] - shape[1], _VIEWS[name][1] // 2 - shape[1] // 2)
    return f"{name}[{row} : {row} + {shape[0]}, {column} : {column + shape[1]}]"


def _task(d: Draw, number: int) -> str:
    shape = d.one((1, 8), (1, 16), (2, 8), (4, 8), (4, 16), (8, 4))
    target, *sources = (d.one(*_VIEWS) for _ in range(d.one(2, 2, 3)))
    lines: list[str] = []
    windows: list[str] = []
    for k, name in enumerate((target, *sources)):
        lines.append(f"r{k} = {_row(d, _VIEWS[name][0] - shape[0])}")
        windows.append(_window(d, name, shape, f"r{k}"))
    tiles = [f"pl.reinterpret_view({w}, pl.INT32)" if "bits" in w else w for w in windows[1:]]
    value = f"pl.add({tiles[0]}, {d.one('i', 'j', '1')})"
    for tile in tiles[1:]:
        value = f"pl.{d.one('sub', 'maximum', 'xor')}({value}, {tile})"
    if "bits" in windows[0]:
        value = f"pl.reinterpret_view({value}, pl.UINT32)"
    store = f"{windows[0]} = {value}"
    body = "\n".join([SCOPE, *(f"    {line}" for line in (*lines, store))])
    if d.one(0, 0, 0, 1):
        body = f"if (i + j) % {d.one(2, 3)} == {d.one(0, 1)}:\n" + textwrap.indent(body, "    ")
    if d.one(0, 0, 0, 0, 1):  # the control program waits for a task, and changes a table
        entry = f"(i + {number}) % {_ENTRIES}"
        body += f"\npl.write(table, [{entry}], pl.read({d.one('a', 'b', 'own')}, [i % 8, j % 8]))"
    return body


def task_graphs(d: Draw) -> str:
    d.given("x", (_ROWS, _COLUMNS), "INT32")
    d.direction = "InOut"
    for name in ("a", "b"):
        d.made(name, (_ROWS, _COLUMNS), "INT32")
    d.made("table", (_ENTRIES,), "INT32")
    loops: list[str] = []
    for number in range(d.one(1, 2, 3)):
        tasks = "\n".join(_task(d, number) for _ in range(d.one(1, 2, 3)))
        text = f"for i in pl.range({d.one(3, 10, 40)}):\n" + textwrap.indent(tasks, "    ")
        loops.append(f"for j in pl.range({d.one(1, 2, 6)}):\n" + textwrap.indent(text, "    "))
    at = d.one(0, 4, 13)
    return f"""
    own = pl.create_tensor([{_ROWS}, {_COLUMNS}], dtype=pl.INT32)
    for i in pl.{d.loop()}(0, {_ROWS}, 8):
        {SCOPE}
            own[i : i + 8, :] = x[i : i + 8, :]
    part = a[{at} : {at + 20}, {at % 12} : {at % 12 + 20}]
    turned = pl.transpose(a, 0, 1)
    flat = pl.reshape(a, [{_ROWS * _COLUMNS // 64}, 64])
    bits = pl.reinterpret_view(a, pl.UINT32)
{textwrap.indent(chr(10).join(loops), " " * 4)}
    for i in pl.{d.loop()}(0, {_ROWS}, 8):
        {SCOPE}
            b[i : i + 8, :] = pl.add(b[i : i + 8, :], own[i : i + 8, :])
    """


FAMILIES: dict[str, Callable[[Draw], str]] = {"task graphs": task_graphs}
