"""Products that are added to a window of an accumulator, which changes the accumulator.

    acc = pl.create_tile(...)                    acc = pl.create_tile(...)
    window = pl.slice(acc, size, place)    =>    window = pl.slice(acc, size, place)
    window = pl.matmul_acc(window, a, b)         window = pl.matmul_acc(window, a, b)
                                                 acc = pl.assemble(acc, window, place)

A window may be written as a subscript (`acc[0:16, :]`), and the product need not get a name. On the
device the window is the accumulator's own memory. Tiles are values here, so what is written
to a window is put back. That is done for tiles made by `pl.create_tile`, which are on chip by their
name; a window of a tensor in global memory is a copy on the device as well.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Set as AbstractSet
from typing import TypeGuard

from tilelet.dataclasses import dataclass
from tilelet.frontend.nameflow import argument_of, target_names
from tilelet.frontend.source import nodes_in, statements_in
from tilelet.ir.spec import REGISTRY

_CREATIONS = ("create_tile", "tile.create", "tile.create_tile")
_PRODUCTS = ("matmul_acc", "gemv_acc")
_SLICES = ("slice", "view")


@dataclass(frozen=True)
class _AccumulatorWindow:
    tile: str
    place: ast.expr
    language: ast.Name

    def depends_on(self, names: AbstractSet[str]) -> bool:
        """Return whether the tile, or a name in the offset, is one of `names`."""
        read = {n.id for n in nodes_in(self.place) if isinstance(n, ast.Name)}
        return not names.isdisjoint({self.tile, *read})


@dataclass(frozen=True)
class _Tile:
    """A tile that the program creates, with its rank if the text shows it."""

    language: ast.Name
    rank: int | None


def write_windows_back(stmts: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements with every product in a window assembled back into its tile."""
    tiles = {made[0]: made[1] for s in statements_in(stmts) if (made := _created_tile(s))}
    return _block(stmts, tiles, {}) if tiles else stmts


def _block(
    stmts: list[ast.stmt], tiles: dict[str, _Tile], windows: dict[str, _AccumulatorWindow]
) -> list[ast.stmt]:
    out: list[ast.stmt] = []
    for i, s in enumerate(stmts):
        name, value = _assignment_of(s)
        made = _window(value, tiles, windows)
        if name is None and made is not None and _is_product(value):
            name = f"{made.tile}_window"
            s = _as_assignment(s, name)
        out.append(_with_bodies(s, tiles, windows))
        written = _stored_names([s])
        for known in windows.keys() - _unchanged_windows(windows, written).keys():
            del windows[known]
        if name is None or made is None:
            continue
        windows[name] = made
        if _is_product(value) and not any(_puts_back(t, name) for t in stmts[i + 1 :]):
            out.append(_put_back(s, name, made))
    return out


def _puts_back(s: ast.stmt, source: str) -> bool:
    """Return whether the program itself assembles a product, as printed programs do."""
    _, call = _assignment_of(s)
    if not isinstance(call, ast.Call) or _attribute(call) != "assemble":
        return False
    part = argument_of(REGISTRY["assemble"], call, 1)
    return isinstance(part, ast.Name) and part.id == source


def _with_bodies(
    s: ast.stmt, tiles: dict[str, _Tile], windows: dict[str, _AccumulatorWindow]
) -> ast.stmt:
    """Return the statement with the statements inside it rewritten."""
    if not isinstance(s, (ast.For, ast.While, ast.If, ast.With)):
        return s
    if isinstance(s, (ast.For, ast.While)):
        # A window is the same in every iteration if the loop does nothing to it but add products.
        windows = _unchanged_windows(windows, _stored_names([s]))
    new = copy.copy(s)
    new.body = _block(s.body, tiles, dict(windows))
    if isinstance(new, ast.If) and isinstance(s, ast.If):
        new.orelse = _block(s.orelse, tiles, dict(windows))
    return new


def _unchanged_windows(
    windows: dict[str, _AccumulatorWindow], written: set[str]
) -> dict[str, _AccumulatorWindow]:
    """Return the windows that are the same after these names are written."""
    return {n: w for n, w in windows.items() if n not in written and not w.depends_on(written)}


def _window(
    value: ast.expr | None, tiles: dict[str, _Tile], windows: dict[str, _AccumulatorWindow]
) -> _AccumulatorWindow | None:
    """Return the window that a slice or subscript takes, or that a product is added to."""
    if isinstance(value, ast.Subscript):
        return _subscript_window(value, tiles)
    if not isinstance(value, ast.Call):
        return None
    if _is_product(value):
        added = _accumulator(value)
        if isinstance(added, ast.Name):
            return windows.get(added.id)
        return _window(added, tiles, windows)
    if _attribute(value) not in _SLICES:
        return None
    spec, language = REGISTRY["slice"], _root(value.func)
    tile, place = argument_of(spec, value), argument_of(spec, value, 2)
    if not isinstance(tile, ast.Name) or tile.id not in tiles or not place or not language:
        return None
    return _AccumulatorWindow(tile.id, place, language)


def _accumulator(product: ast.Call) -> ast.expr | None:
    """Return the operand that a product is added to."""
    return argument_of(REGISTRY[_attribute(product)], product)


def _subscript_window(value: ast.Subscript, tiles: dict[str, _Tile]) -> _AccumulatorWindow | None:
    tile = tiles.get(value.value.id) if isinstance(value.value, ast.Name) else None
    parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
    if tile is None or not all(isinstance(p, ast.Slice) for p in parts):
        return None
    zero = ast.Constant(0)
    starts = [p.lower or zero for p in parts if isinstance(p, ast.Slice)]
    starts += [zero] * ((tile.rank or len(starts)) - len(starts))
    assert isinstance(value.value, ast.Name)
    return _AccumulatorWindow(value.value.id, ast.List(starts, ast.Load()), tile.language)


def _is_product(value: ast.expr | None) -> TypeGuard[ast.Call]:
    return isinstance(value, ast.Call) and _attribute(value) in _PRODUCTS


def _as_assignment(s: ast.stmt, name: str) -> ast.stmt:
    """Return a product that is an expression statement as an assignment."""
    assert isinstance(s, ast.Expr)
    new = ast.Assign([ast.Name(name, ast.Store())], s.value)
    return ast.fix_missing_locations(ast.copy_location(new, s))


def _put_back(s: ast.stmt, source: str, window: _AccumulatorWindow) -> ast.stmt:
    assemble = ast.Attribute(window.language, "assemble", ast.Load())
    names: list[ast.expr] = [ast.Name(n, ast.Load()) for n in (window.tile, source)]
    call = ast.Call(assemble, [*names, window.place], [])
    new = ast.Assign([ast.Name(window.tile, ast.Store())], call)
    return ast.fix_missing_locations(ast.copy_location(new, s))


def _created_tile(s: ast.stmt) -> tuple[str, _Tile] | None:
    name, call = _assignment_of(s)
    if name is None or not isinstance(call, ast.Call):
        return None
    language = _root(call.func)
    if language is None or not ast.unparse(call.func).endswith(_CREATIONS):
        return None
    shape = argument_of(REGISTRY["create_tile"], call)
    rank = len(shape.elts) if isinstance(shape, (ast.List, ast.Tuple)) else None
    return name, _Tile(language, rank)


def _assignment_of(s: ast.stmt) -> tuple[str | None, ast.expr | None]:
    """Return the value of an assignment and its only target, if it is a name."""
    if isinstance(s, ast.Assign) and len(s.targets) == 1:
        target, value = s.targets[0], s.value
    elif isinstance(s, ast.AnnAssign):
        target, value = s.target, s.value
    else:
        return None, s.value if isinstance(s, ast.Expr) else None
    return (target.id, value) if isinstance(target, ast.Name) else (None, None)


def _stored_names(stmts: list[ast.stmt]) -> set[str]:
    """Return names that statements rebind, other than by adding a product to a window."""
    found: set[str] = set()
    for s in statements_in(stmts):
        _, call = _assignment_of(s)
        added = _accumulator(call) if _is_product(call) else None
        targets: list[ast.expr] = []
        if isinstance(s, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For)):
            targets = s.targets if isinstance(s, ast.Assign) else [s.target]
        names = {n for t in targets for n in target_names(t)}
        found |= names - {added.id} if isinstance(added, ast.Name) else names
    return found


def _attribute(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _root(node: ast.expr) -> ast.Name | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node if isinstance(node, ast.Name) else None
