"""Random expressions inside a scope: tiles of a given shape and dtype, scalars, conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.generated import oracle
from tests.generated.core import Expr, GmT, Run, ScalarT, TileT
from tests.generated.oracle import FLOATS, INTEGERS, NUMPY, Tile
from tests.generated.scalars import Scalars

Shape = tuple[int, int]

DIMS = (4, 1, 8, 3, 2, 5, 16, 7, 9, 17)
FLOAT_MATH = ("FP32", "BF16", "FP16")
INTEGER_MATH = ("INT32", "INT8", "INT16", "UINT8")
MODES = ("round", "rint", "floor", "ceil", "trunc", "odd", "none")
MODE_CODES = {"none": 0, "rint": 1, "round": 2, "floor": 3, "ceil": 4, "trunc": 5, "odd": 6}
SUGAR = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
EXACT_INTO = {"FP32": ("BF16", "FP16", "INT8", "INT16", "UINT8"), "INT32": ("INT8", "INT16")}
CASTABLE = ("FP32", "BF16", "FP16", "INT32", "INT8", "INT16", "UINT8", "UINT16")


def _as_tile(found: Any) -> Tile:
    """Return the tile of a name that is still a tensor: an accumulator before its first product."""
    return found if isinstance(found, Tile) else oracle.whole(found.copy())


class Expressions(Scalars):
    """Expressions over the names in `self.env`."""

    # --- tiles: leaves ---------------------------------------------------------------------------

    def shape(self) -> Shape:
        rows, columns = self.choices.pick(DIMS), self.choices.pick(DIMS)
        return rows, columns

    def constant_for(self, dtype: str) -> tuple[str, Any]:
        if dtype in FLOATS:
            options = (1.0, 0.5, 0.0, -1.0, 2.0, -3.0, 1.5, 0.25, 100.0, -0.0)
            number = self.choices.pick((*options, 0.1, 1e-3) if dtype == "FP32" else options)
            return repr(number), FLOATS[dtype](number)
        low, high = oracle.limits(dtype)
        number = self.choices.pick([n for n in (1, 2, 0, 3, 7, -1, -2, low, high) if n >= low])
        return str(number), INTEGERS[dtype](number)

    def full(self, shape: Shape, dtype: str) -> Expr:
        text, value = self.constant_for(dtype)
        keywords = self.choices.chance(30)
        given = f"dtype=pl.{dtype}, value={text}" if keywords else f"pl.{dtype}, {text}"
        return Expr(
            f"pl.full([{shape[0]}, {shape[1]}], {given})",
            lambda _: oracle.whole(np.full(shape, value, NUMPY[dtype])),
            TileT(shape, dtype),
        )

    def sources(self, shape: tuple[int, ...], dtype: str) -> list[str]:
        """Tensors with a window of this shape."""
        return self.names(
            lambda t: (
                isinstance(t, GmT)
                and t.dtype == dtype
                and len(t.shape) == len(shape)
                and all(d >= s for d, s in zip(t.shape, shape))
            )
        )

    def load(self, shape: Shape, dtype: str) -> Expr | None:
        """A window of a tensor, in one of its spellings."""
        names = self.sources(shape, dtype)
        deep = self.sources((1, *shape), dtype)
        if deep and (not names or self.choices.chance(30)):
            return self._load_3d(shape, dtype, self.choices.pick(deep))
        turned = self.sources(shape[::-1], dtype)
        if turned and self.choices.chance(8):
            return self._load_turned(shape, dtype, self.choices.pick(turned))
        if not names:
            return None
        name = self.choices.pick(names)
        source = self.env[name]
        assert isinstance(source, GmT)
        offsets = [self.offset(d - s) for d, s in zip(source.shape, shape)]
        form = self.choices.number(0, 3)
        if form == 3 and self.loads_by_hand:
            text = f"pl.load({name}, [{_list(offsets)}], [{shape[0]}, {shape[1]}])"
        elif form >= 2:
            text = f"pl.slice({name}, [{shape[0]}, {shape[1]}], [{_list(offsets)}])"
        else:
            text = f"{name}[{self.window_text(offsets, shape, source.shape)}]"

        def value(r: Run) -> Tile:
            o = [offset.value(r) for offset in offsets]
            window = r.env[name][o[0] : o[0] + shape[0], o[1] : o[1] + shape[1]]
            return oracle.whole(window.copy())

        return Expr(text, value, TileT(shape, dtype))

    def _load_turned(self, shape: Shape, dtype: str, name: str) -> Expr:
        """A window of a tensor with its axes swapped."""
        source = self.env[name]
        assert isinstance(source, GmT)
        offsets = [self.offset(d - s) for d, s in zip(source.shape[::-1], shape)]
        window = f"[{_list(offsets)}], [{shape[0]}, {shape[1]}]"
        if not self.loads_by_hand or self.choices.chance(50):
            window = f"[{shape[0]}, {shape[1]}], [{_list(offsets)}]"
            text = f"pl.slice(pl.transpose({name}, 0, 1), {window})"
        else:
            text = f"pl.load(pl.transpose({name}, -2, -1), {window})"

        def value(r: Run) -> Tile:
            i, j = (o.value(r) for o in offsets)
            window = r.env[name].T[i : i + shape[0], j : j + shape[1]]
            return oracle.whole(np.ascontiguousarray(window))

        return Expr(text, value, TileT(shape, dtype))

    def window_text(
        self, offsets: list[Expr], shape: tuple[int, ...], extents: tuple[int, ...]
    ) -> str:
        """`a : a + r, :`; one row may be written as an index (kept or promoted: `[1, c]`)."""
        parts: list[str] = []
        for axis, (o, size, extent) in enumerate(zip(offsets, shape, extents)):
            if size == extent and not o.type.dtype and self.choices.chance(70):
                parts.append(":")
            elif size == 1 and axis == 0 and self.choices.chance(50):
                parts.append(o.text)
            elif o.type.dtype:
                parts.append(f"{o.text} : {o.text} + {size}")
            else:
                start = int(o.text)
                parts.append(f"{start}:{start + size}")
        indexed = len(parts) == 2 and ":" not in parts[0]
        if indexed and ":" not in parts[1]:
            parts[1] = f"{parts[1]} : {parts[1]} + 1"
        if parts[-1] == ":" and self.choices.chance(30):
            parts.pop()
        return ", ".join(parts)

    def _load_3d(self, shape: Shape, dtype: str, name: str) -> Expr:
        """`x[b, r : r + n, :]`: jit drops the axis, a program keeps it."""
        source = self.env[name]
        assert isinstance(source, GmT)
        offsets = [self.offset(d - s) for d, s in zip(source.shape, (1, *shape))]
        text = f"{name}[{offsets[0].text}, {_window(offsets[1:], shape)}]"
        if self.style == "program":
            text = f"pl.reshape({text}, [{shape[0]}, {shape[1]}])"

        def value(r: Run) -> Tile:
            b, i, j = (o.value(r) for o in offsets)
            return oracle.whole(r.env[name][b, i : i + shape[0], j : j + shape[1]].copy())

        return Expr(text, value, TileT(shape, dtype))

    def _sized(self, shape: Shape, dtype: str, name: str) -> Expr | None:
        """Return a window whose size is known at run time, and its largest size at compile time."""
        source = self.env[name]
        assert isinstance(source, GmT)
        sizes = [self._size(s) for s in shape]
        if all(size is None for size in sizes):
            return None
        offsets = [self.offset(d - s) for d, s in zip(source.shape, shape)]
        extents = [str(s) if size is None else size.text for s, size in zip(shape, sizes)]
        lists = f"[{', '.join(extents)}]", f"[{_list(offsets)}]"
        form = self.choices.number(0, 2)
        text = f"pl.slice({name}, {lists[0]}, {lists[1]})"
        if form == 1:
            ends = [f"{o.text} : {o.text} + ({n})" for o, n in zip(offsets, extents)]
            text = f"{name}[{', '.join(ends)}]"
        elif form == 2 and self.loads_by_hand:
            text = f"pl.load({name}, {lists[1]}, {lists[0]})"

        def value(r: Run) -> Tile:
            i, j = (o.value(r) for o in offsets)
            rows, columns = (s if n is None else n.value(r) for s, n in zip(shape, sizes))
            return oracle.padded(r.env[name][i : i + rows, j : j + columns].copy(), shape)

        return Expr(text, value, TileT(shape, dtype, full=False))

    def _size(self, largest: int) -> Expr | None:
        """A number from 1 to `largest` that is known only at run time; None: always `largest`."""
        read = self._element_read() if self.choices.chance(60) else None
        if read is None or largest == 1:
            return None

        def value(r: Run) -> int:
            number = read.value(r)
            return largest - (number % largest if number > 0 else 0)

        text = f"{largest} - pl.max({read.text} % {largest}, 0)"
        return Expr(text, value, ScalarT("INT32", 1, largest))

    def load_part(self, shape: Shape, dtype: str) -> Expr | None:
        """A window whose valid part is known only at run time."""
        fitting = self.sources(shape, dtype)
        if fitting and self.style == "program" and self.choices.chance(30):
            sized = self._sized(shape, dtype, self.choices.pick(fitting))
            if sized is not None:
                return sized
        names = self.names(lambda t: isinstance(t, GmT) and t.dtype == dtype and len(t.shape) == 2)
        if not names:
            return None
        name = self.choices.pick(names)
        source = self.env[name]
        assert isinstance(source, GmT)
        head = f"pl.slice({name}, [{shape[0]}, {shape[1]}]"
        if self.choices.chance(30):
            offsets = [self.offset(d - 1) for d in source.shape]
            text = f"{head}, [{_list(offsets)}], clamp=True)"

            def clipped(r: Run) -> Tile:
                i, j = (o.value(r) for o in offsets)
                return oracle.padded(r.env[name][i : i + shape[0], j : j + shape[1]].copy(), shape)

            return Expr(text, clipped, TileT(shape, dtype, full=False))
        limits = [
            self.clamped(1, min(d, s), 1) if self.choices.chance(70) else self._number(min(d, s))
            for d, s in zip(source.shape, shape)
        ]
        offsets = [self.offset(d - min(d, s)) for d, s in zip(source.shape, shape)]
        text = f"{head}, [{_list(offsets)}], valid_shape=[{_list(limits)}])"

        def value(r: Run) -> Tile:
            i, j = (o.value(r) for o in offsets)
            rows, columns = (v.value(r) for v in limits)
            return oracle.padded(r.env[name][i : i + rows, j : j + columns].copy(), shape)

        return Expr(text, value, TileT(shape, dtype, full=False))

    def _number(self, limit: int) -> Expr:
        number = self.choices.number(1, limit)
        return Expr(str(number), lambda _: number, ScalarT(""))

    def leaf(self, shape: Shape, dtype: str, full: bool) -> Expr:
        names = self.names(
            lambda t: (
                isinstance(t, TileT)
                and (t.shape, t.dtype) == (shape, dtype)
                and (t.full or not full)
            )
        )
        if names and self.choices.chance(70):
            name = self.choices.pick(names)
            found = self.env[name]
            assert isinstance(found, TileT)
            return Expr(name, lambda r: _as_tile(r.env[name]), found)
        whole = self.names(lambda t: isinstance(t, GmT) and (t.shape, t.dtype) == (shape, dtype))
        if whole and self.choices.chance(40):
            name = self.choices.pick(whole)
            return Expr(name, lambda r: oracle.whole(r.env[name].copy()), TileT(shape, dtype))
        if not full and self.choices.chance(25):
            part = self.load_part(shape, dtype)
            if part is not None:
                return part
        return self.load(shape, dtype) or self.full(shape, dtype)

    # --- tiles: ops ------------------------------------------------------------------------------

    def tile(self, shape: Shape, dtype: str, depth: int, full: bool = False) -> Expr:
        """Draw an expression of this shape and dtype; with `full`, surely valid everywhere."""
        if depth <= 0:
            return self.leaf(shape, dtype, full)
        options = self._options(shape, dtype)
        for _ in range(3):
            found = self.choices.pick(options)(shape, dtype, depth - 1, full)
            if found is not None:
                return found
        return self.leaf(shape, dtype, full)

    def _options(self, shape: Shape, dtype: str) -> list[Callable[..., Expr | None]]:
        options: list[Callable[..., Expr | None]] = [self._binary, self._unary, self._with_number]
        options += [self._broadcast, self._broadcast, self._expand, self._cast, self._cast]
        options += [self._transpose, self._reshape, self._concat, self._part_of_tile, self._fillpad]
        options += [self._select, self._compare, self._ternary, self._stretch, self._part_op]
        if 1 in shape:
            options += [self._reduction] * 3
        if dtype in ("FP32", "BF16", "FP16", "INT32") and not self.loads_by_hand:
            options += [self._matmul, self._matmul]
        if dtype == "FP32":
            options += [self._function_of_integers]
        if dtype in INTEGERS:
            options += [self._bitwise] * 2
        if dtype == "INT32" and shape[0] == 1 and shape[1] > 1:
            options += [self._arange]
        if any(h.accepts(shape, dtype) for h in self.helpers):
            options += [self._helper] * 4
        return options

    def _binary(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        floats = ("add", "sub", "mul", "div", "maximum", "minimum", "rem", "fmod")
        name = self.choices.pick(floats)
        a = self.tile(shape, dtype, depth, full)
        other = dtype
        if dtype in EXACT_INTO and self.choices.chance(15):
            other = self.choices.pick(EXACT_INTO[dtype])
        b = self.tile(shape, other, depth, full)
        if self.choices.chance(30):
            a, b = b, a
        return self.combined(name, a, b)

    def combined(self, name: str, a: Expr, b: Expr) -> Expr:
        assert isinstance(a.type, TileT)
        assert isinstance(b.type, TileT)
        shape = tuple(map(max, a.type.shape, b.type.shape))
        dtype = oracle.promote(a.type.dtype, b.type.dtype)
        sugared = name in SUGAR and self.choices.chance(40)
        text = f"({a.text} {SUGAR[name]} {b.text})" if sugared else f"pl.{name}({a.text}, {b.text})"

        def value(r: Run) -> Tile:
            return oracle.zipped(lambda p, q: oracle.binary(name, p, q), a.value(r), b.value(r))

        return Expr(text, value, TileT(shape, dtype, a.full and b.full))

    def _broadcast(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        """Rule N9: `[M, N]` with `[M, 1]`, `[1, N]` or `[1, 1]`, in either order."""
        name = self.choices.pick(("sub", "add", "mul", "div", "maximum", "minimum"))
        narrow = self.choices.pick(((shape[0], 1), (1, shape[1]), (1, 1)))
        a, b = self.tile(shape, dtype, depth, full), self.tile(narrow, dtype, depth, full)
        if self.choices.chance(50):
            a, b = b, a
        return self.combined(name, a, b)

    def _number_for(self, dtype: str) -> tuple[str, Callable[[Run], Any]]:
        """A number beside a tile: a scalar known at run time, or a constant."""
        if dtype == "FP32" and self.choices.chance(40):
            number = self.real()
            return number.text, lambda r: np.float32(number.value(r))
        if dtype == "INT32" and self.choices.chance(30):
            scalar = self.clamped(-100, 100)
            return scalar.text, lambda r: np.int32(scalar.value(r))
        text, constant = self.constant_for(dtype)
        return text, lambda _: constant

    def _with_number(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        x = self.tile(shape, dtype, depth, full)
        names = ("add", "sub", "mul", "div", "maximum", "minimum")
        name = self.choices.pick(names)
        text, given = self._number_for(dtype)
        suffixed = {"add": "adds", "maximum": "maximums", "mul": "muls", "sub": "subs"}
        if self.choices.chance(25) and name in SUGAR and (name != "div" or dtype in FLOATS):
            shown = f"({text} {SUGAR[name]} {x.text})"
            swapped = True
        else:
            op = suffixed[name] if name in suffixed and self.choices.chance(20) else name
            shown, swapped = f"pl.{op}({x.text}, {text})", False

        def value(r: Run) -> Tile:
            number_tile = np.full((1, 1), given(r), NUMPY[dtype])

            def apply(p: Any) -> Any:
                pair = (number_tile, p) if swapped else (p, number_tile)
                return oracle.binary(name, *pair)

            return oracle.zipped(apply, x.value(r))

        return Expr(shown, value, TileT(shape, dtype, x.full))

    def _unary(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        x = self.tile(shape, dtype, depth, full)
        names: tuple[str, ...] = ("neg", "abs", "relu")
        if dtype in FLOATS:
            names = (*names, "exp", "log", "sqrt", "rsqrt", "recip", "sin", "cos")
        name = self.choices.pick(names)
        sugared = name == "neg" and self.choices.chance(30)
        text = f"(-{x.text})" if sugared else f"pl.{name}({x.text})"
        return Expr(
            text,
            lambda r: oracle.zipped(lambda p: oracle.unary(name, p), x.value(r)),
            TileT(shape, dtype, x.full),
        )

    def _function_of_integers(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        x = self.tile(shape, self.choices.pick(INTEGER_MATH), depth, full)
        name = self.choices.pick(("exp", "sqrt", "recip", "rsqrt"))
        return Expr(
            f"pl.{name}({x.text})",
            lambda r: oracle.zipped(lambda p: oracle.unary(name, p), x.value(r)),
            TileT(shape, dtype, x.full),
        )

    def _bitwise(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        a = self.tile(shape, dtype, depth, full)
        name = self.choices.pick(("and_", "or_", "xor", "not_", "shl", "shr"))
        if name == "not_":
            return Expr(
                f"pl.not_({a.text})",
                lambda r: oracle.zipped(lambda p: oracle.unary("not_", p), a.value(r)),
                TileT(shape, dtype, a.full),
            )
        b = self.tile(shape, dtype, depth, full)
        return self.combined(name, a, b)

    def _ternary(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        a, b, c = (self.tile(shape, dtype, depth, full) for _ in range(3))
        name, first = self.choices.pick((("addc", "add"), ("subc", "sub")))

        def value(r: Run) -> Tile:
            def both(p: Any, q: Any, s: Any) -> Any:
                return oracle.binary("add", oracle.binary(first, p, q), s)

            return oracle.zipped(both, a.value(r), b.value(r), c.value(r))

        text = f"pl.{name}({a.text}, {b.text}, {c.text})"
        return Expr(text, value, TileT(shape, dtype, a.full and b.full and c.full))

    def _compare(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        a, b = self.tile(shape, dtype, depth, full), self.tile(shape, dtype, depth, full)
        kinds = ("eq", "ne", "lt", "le", "gt", "ge")
        code = self.choices.number(0, 5)
        shown = repr(kinds[code]) if self.choices.chance(50) else str(code)
        return Expr(
            f"pl.cmp({a.text}, {b.text}, cmp_type={shown})",
            lambda r: oracle.zipped(
                lambda p, q: oracle.compare(kinds[code], p, q), a.value(r), b.value(r)
            ),
            TileT(shape, dtype, a.full and b.full),
        )

    def _select(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        mask = self.tile(shape, self.choices.pick(("FP32", "INT32", dtype)), depth, full)
        a, b = self.tile(shape, dtype, depth, full), self.tile(shape, dtype, depth, full)
        return Expr(
            f"pl.sel({mask.text}, {a.text}, {b.text})",
            lambda r: oracle.zipped(
                lambda m, p, q: np.where(m.astype(np.float64) != 0, p, q),
                mask.value(r),
                a.value(r),
                b.value(r),
            ),
            TileT(shape, dtype, mask.full and a.full and b.full),
        )

    def _part_op(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        """A partially valid operand: outside its region the other operand stays."""
        a, b = self.tile(shape, dtype, depth, True), self.tile(shape, dtype, depth, False)
        name = self.choices.pick(("add", "mul"))

        def value(r: Run) -> Tile:
            p, q = a.value(r), b.value(r)
            box = tuple(slice(0, v) for v in q.valid)
            data = p.data.copy()
            data[box] = oracle.binary(name, p.data[box], q.data[box])
            return oracle.whole(data)

        return Expr(f"pl.part_{name}({a.text}, {b.text})", value, TileT(shape, dtype))

    def _expand(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        along = self.choices.pick(("row", "col"))
        names = {"sub": "sub", "mul": "mul", "add": "add", "div": "div"}
        names |= {"max": "maximum", "min": "minimum"}
        if dtype in FLOATS:
            names["expdif"] = "expdif"
        name = self.choices.pick(list(names))
        x = self.tile(shape, dtype, depth, full)
        narrow = (shape[0], 1) if along == "row" else (1, shape[1])
        v = self.tile(narrow, dtype, depth, full)
        return Expr(
            f"pl.{along}_expand_{name}({x.text}, {v.text})",
            lambda r: oracle.zipped(
                lambda p, q: oracle.binary(names[name], p, q), x.value(r), v.value(r)
            ),
            TileT(shape, dtype, x.full and v.full),
        )

    def _stretch(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        """Filling a shape: only the shape and region of the target matter."""
        target = self.tile(shape, dtype, depth, full)
        form = self.choices.number(0, 3)
        if form == 3:
            text, constant = self.constant_for(dtype)
            return Expr(
                f"pl.expands({target.text}, {text})",
                lambda r: oracle.zipped(lambda p: np.full_like(p, constant), target.value(r)),
                target.type,
            )
        narrow = (shape[0], 1) if form == 0 else (1, shape[1])
        v = self.tile(narrow, dtype, depth, full)
        if form == 2:
            if isinstance(self.env.get(target.text), GmT):  # a tensor would be written
                target = self.full(shape, dtype)
            return Expr(
                f"pl.expand_clone({v.text}, {target.text})",
                lambda r: oracle.zipped(
                    lambda p, _: p, v.value(r), oracle.whole(np.ones(shape, np.int8))
                ),
                TileT(shape, dtype, v.full),
            )
        name = "row_expand" if form == 0 else "col_expand"
        return Expr(
            f"pl.{name}({target.text}, {v.text})",
            lambda r: oracle.zipped(lambda _, q: q, target.value(r), v.value(r)),
            TileT(shape, dtype, target.full and v.full),
        )

    def _cast(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr | None:
        source = self.choices.pick(CASTABLE)
        x = self.tile(shape, source, depth, full)
        mode = self.choices.pick(MODES)
        shown = self.choices.pick((f", mode={mode!r}", f", {MODE_CODES[mode]}"))
        if mode == "round" and self.choices.chance(50):
            shown = ""
        via = self.choices.pick(("", "", "", "FP8E4M3FN", "FP8E5M2", "BOOL"))
        inner = f"pl.cast({x.text}, pl.{via}{shown})" if via else x.text

        def convert(p: Any) -> Any:
            return oracle.cast(oracle.cast(p, via, mode) if via else p, dtype, mode)

        return Expr(
            f"pl.cast({inner}, pl.{dtype}{shown})",
            lambda r: oracle.zipped(convert, x.value(r)),
            TileT(shape, dtype, x.full),
        )

    def _transpose(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        x = self.tile((shape[1], shape[0]), dtype, depth, full)
        axes = self.choices.pick(("0, 1", "1, 0", "-1, -2"))
        return Expr(
            f"pl.transpose({x.text}, {axes})",
            lambda r: oracle.padded(x.value(r).inside.T, shape),
            TileT(shape, dtype, x.full),
        )

    def _reshape(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr | None:
        count = shape[0] * shape[1]
        rows = self.choices.pick([d for d in range(1, count + 1) if count % d == 0])
        x = self.tile((rows, count // rows), dtype, depth, True)
        return Expr(
            f"pl.reshape({x.text}, [{shape[0]}, {shape[1]}])",
            lambda r: oracle.whole(x.value(r).data.reshape(shape)),
            TileT(shape, dtype),
        )

    def _concat(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr | None:
        if shape[1] < 2:
            return None
        left = self.choices.number(1, shape[1] - 1)
        a = self.tile((shape[0], left), dtype, depth, True)
        b = self.tile((shape[0], shape[1] - left), dtype, depth, True)
        return Expr(
            f"pl.concat({a.text}, {b.text})",
            lambda r: oracle.whole(np.concatenate([a.value(r).data, b.value(r).data], axis=1)),
            TileT(shape, dtype),
        )

    def _part_of_tile(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr | None:
        names = self.names(
            lambda t: (
                isinstance(t, TileT)
                and t.dtype == dtype
                and t.full
                and all(d >= s for d, s in zip(t.shape, shape))
            )
        )
        if not names:
            return None
        name = self.choices.pick(names)
        source = self.env[name]
        assert isinstance(source, TileT)
        offsets = [self.offset(d - s) for d, s in zip(source.shape, shape)]
        subscript = f"{name}[{self.window_text(offsets, shape, source.shape)}]"
        plain = f"pl.slice({name}, [{shape[0]}, {shape[1]}], [{_list(offsets)}])"

        def value(r: Run) -> Tile:
            i, j = (o.value(r) for o in offsets)
            return oracle.whole(r.env[name].data[i : i + shape[0], j : j + shape[1]].copy())

        text = subscript if self.choices.chance(50) else plain
        return Expr(text, value, TileT(shape, dtype))

    def _fillpad(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr | None:
        pad = self.choices.pick(("zero", "min", "max"))
        smaller = tuple(max(1, d - self.choices.number(0, 2)) for d in shape)
        if self.choices.chance(25):
            x = self.tile(smaller, dtype, depth, False)
            given = f", [{shape[0]}, {shape[1]}], pl.PadValue.{pad}"
            text = f"pl.fillpad_expand({x.text}{given})"
        else:
            x = self.load_part(shape, dtype) or self.tile(shape, dtype, depth, False)
            text = f"pl.fillpad({x.text}, pad_value=pl.PadValue.{pad})"
        return Expr(text, lambda r: oracle.filled(x.value(r), pad, shape), TileT(shape, dtype))

    def _reduction(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr | None:
        along = "row" if shape[1] == 1 else "col"
        long = self.choices.pick(DIMS)
        wide = (shape[0], long) if along == "row" else (long, shape[1])
        kinds = ["sum", "max", "min", "prod"] + ["argmax", "argmin"] * (dtype == "INT32")
        kind = self.choices.pick(kinds)
        source = self.choices.pick(("FP32", "INT32", "BF16")) if kind.startswith("arg") else dtype
        x = self.tile(wide, source, depth, full)
        name = f"{along}_{kind}"

        def value(r: Run) -> Tile:
            return oracle.padded(oracle.reduce(name, x.value(r).inside), shape)

        return Expr(f"pl.{name}({x.text})", value, TileT(shape, dtype, x.full))

    def _matmul(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr | None:
        inner = self.choices.pick((4, 1, 8, 3, 5, 16))
        operands = "INT8" if dtype == "INT32" else self.choices.pick(("FP32", "BF16", "FP16"))
        a_trans, b_trans = self.choices.chance(30), self.choices.chance(30)
        a = self.tile((inner, shape[0]) if a_trans else (shape[0], inner), operands, depth, full)
        b = self.tile((shape[1], inner) if b_trans else (inner, shape[1]), operands, depth, full)
        flags = ", a_trans=True" * a_trans + ", b_trans=True" * b_trans
        form = self.choices.number(0, 3)
        if dtype in ("FP32", "INT32") and form >= 2:
            start = self.tile(shape if form == 2 else (1, shape[1]), dtype, depth, True)
            name = "matmul_acc" if form == 2 else "matmul_bias"
            if form == 3:
                flags = ""
                a = self.tile((shape[0], inner), operands, depth, full)
                b = self.tile((inner, shape[1]), operands, depth, full)
                a_trans = b_trans = False
                text = f"pl.matmul_bias({a.text}, {b.text}, {start.text})"
            else:
                text = f"pl.{name}({start.text}, {a.text}, {b.text}{flags})"
            value = _product(a, b, a_trans, b_trans, shape, dtype, start)
        else:
            out = f", out_dtype=pl.{dtype}" if dtype != "INT32" else ""
            text = f"pl.matmul({a.text}, {b.text}{out}{flags})"
            value = _product(a, b, a_trans, b_trans, shape, dtype, None)
        return Expr(text, value, TileT(shape, dtype, a.full and b.full))

    def _arange(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        start = self.clamped(-20, 20, 1)
        down = self.choices.chance(30)
        sign = -1 if down else 1
        return Expr(
            f"pl.arange({start.text}, [1, {shape[1]}]{', descending=True' if down else ''})",
            lambda r: oracle.whole(
                (start.value(r) + sign * np.arange(shape[1], dtype=np.int32))[None, :].astype(
                    np.int32
                )
            ),
            TileT(shape, dtype),
        )

    def _helper(self, shape: Shape, dtype: str, depth: int, full: bool) -> Expr:
        helper = self.choices.pick([h for h in self.helpers if h.accepts(shape, dtype)])
        arguments = [self.tile(shape, dtype, depth, True) for _ in helper.params]
        text = f"{helper.name}({', '.join(a.text for a in arguments)})"

        def value(r: Run) -> Tile:
            return helper.call(r, [a.value(r) for a in arguments])

        return Expr(text, value, TileT(shape, dtype))


def _product(
    a: Expr,
    b: Expr,
    a_trans: bool,
    b_trans: bool,
    shape: Shape,
    dtype: str,
    start: Expr | None,
) -> Callable[[Run], Tile]:
    def value(r: Run) -> Tile:
        left, right = a.value(r).inside, b.value(r).inside
        left = left.T if a_trans else left
        right = right.T if b_trans else right
        inner = min(left.shape[1], right.shape[0])
        begin = None
        if start is not None:
            given = np.broadcast_to(start.value(r).data, shape)
            begin = given[: left.shape[0], : right.shape[1]].copy()
        found = oracle.matmul(left[:, :inner], right[:inner], begin)
        return oracle.padded(
            found if dtype == "INT32" else oracle.cast(found, dtype, "rint"), shape
        )

    return value


def _list(parts: list[Expr]) -> str:
    return ", ".join(p.text for p in parts)


def _window(offsets: list[Expr], shape: Shape) -> str:
    return ", ".join(f"{o.text} : {o.text} + {s}" for o, s in zip(offsets, shape))
