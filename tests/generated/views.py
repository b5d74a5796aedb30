"""Views of views: part of a tile under another shape or type, and parts of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.generated import oracle
from tests.generated.accumulators import Accumulators
from tests.generated.core import Expr, GmT, Run, ScalarT, TileT
from tests.generated.oracle import INTEGERS, NUMPY
from tests.generated.statements import looping

_BASES = ("FP32", "INT32", "INT16", "BF16", "INT8")
_REREAD = ("INT32", "FP32", "INT16", "BF16", "FP16", "INT8", "UINT8")


class Views(Accumulators):
    """Statements in which a view neither starts at the tile's origin nor covers it."""

    def simple(self) -> list[Callable[[], Any]]:
        return [*super().simple(), self.view_of_part, self.view_of_part]

    def new_output(self, shape: tuple[int, ...], dtype: str) -> str | None:
        """The name of a new tensor to write to, where there can be one."""
        return None

    def view_of_part(self) -> None:
        """Part of a named tile, viewed once or repeatedly, perhaps stored row by row."""
        view = self._part(self._whole_tile())
        for _ in range(self.choices.pick((1, 1, 2, 3))):
            if self.choices.chance(40):
                view = self._named_view(view)
            forms = (self._reshaped, self._reread, self._turned, self._layer, self._part)
            view = self.choices.pick(forms)(view)
        view = self._named_view(view)
        if self.choices.chance(80):
            self._store_rows(view)

    def _named_view(self, view: Expr) -> Expr:
        name = self.fresh("v")
        self.assign(name, view, view.type)
        return Expr(name, lambda r: r.env[name], view.type)

    def _whole_tile(self) -> Expr:
        names = self.tiles(lambda t: t.full and t.shape[0] > 1)
        if not names or self.choices.chance(50):
            shape = self.choices.pick((9, 4, 8, 6)), self.choices.pick((8, 4, 6, 16))
            value = self.tile(shape, self.choices.pick(_BASES), 1, full=True)
            names = [self.fresh("t")]
            self.assign(names[0], self.computed(value), value.type)
        name = self.choices.pick(names)
        t = self.env[name]
        assert isinstance(t, TileT)
        return Expr(name, lambda r: r.env[name], t)

    def _place(self, limit: int) -> Expr:
        """A position in [0, limit], usually one that is known only at run time."""
        if limit == 0 or self.choices.chance(30):
            return self.offset(limit)
        name = self.fresh("s")
        self.assign(name, self.clamped_index(0, limit), ScalarT("INDEX", 0, limit))
        return Expr(name, lambda r: r.env[name], ScalarT("INDEX", 0, limit))

    def _part(self, x: Expr) -> Expr:
        rows, columns = _shape(x)
        shape = self.choices.number(1, rows), columns
        if self.choices.chance(30):
            shape = shape[0], self.choices.number(1, columns)
        i, j = self._place(rows - shape[0]), self._place(columns - shape[1])

        def value(r: Run) -> oracle.Tile:
            a, b = i.value(r), j.value(r)
            return oracle.whole(x.value(r).data[a : a + shape[0], b : b + shape[1]].copy())

        text = f"pl.slice({x.text}, [{shape[0]}, {shape[1]}], [{i.text}, {j.text}])"
        if self.choices.chance(40):
            text = f"{x.text}[{i.text} : {i.text} + {shape[0]}, {j.text} : {j.text} + {shape[1]}]"
        return Expr(text, value, TileT(shape, _dtype(x)))

    def _reshaped(self, x: Expr) -> Expr:
        shape = self._same_count(x)
        return Expr(
            f"pl.reshape({x.text}, [{shape[0]}, {shape[1]}])",
            lambda r: oracle.whole(x.value(r).data.reshape(shape)),
            TileT(shape, _dtype(x)),
        )

    def _same_count(self, x: Expr) -> tuple[int, int]:
        rows, columns = _shape(x)
        count = rows * columns
        first = self.choices.pick([d for d in range(1, count + 1) if count % d == 0])
        return first, count // first

    def _reread(self, x: Expr) -> Expr:
        """Integers viewed as other elements: the bits of a computed NaN are unspecified."""
        rows, columns = _shape(x)
        dtype = self.choices.pick(_REREAD)
        old, new = (np.dtype(NUMPY[d]).itemsize for d in (_dtype(x), dtype))
        if _dtype(x) not in INTEGERS or columns * old % new:
            return self._reshaped(x)
        shape, given = (rows, columns * old // new), ""
        if self.choices.chance(50):
            shape = shape[0] * shape[1], 1
            given = f", shape=[{shape[0]}, {shape[1]}]"

        def value(r: Run) -> oracle.Tile:
            data = np.frombuffer(x.value(r).data.tobytes(), NUMPY[dtype])
            return oracle.whole(data.reshape(shape).copy())

        text = f"pl.reinterpret_view({x.text}, pl.{dtype}{given})"
        return Expr(text, value, TileT(shape, dtype))

    def _turned(self, x: Expr) -> Expr:
        rows, columns = _shape(x)
        return Expr(
            f"pl.transpose({x.text}, 0, 1)",
            lambda r: oracle.whole(np.ascontiguousarray(x.value(r).data.T)),
            TileT((columns, rows), _dtype(x)),
        )

    def _layer(self, x: Expr) -> Expr:
        """One layer of three axes."""
        rows, columns = self._same_count(x)
        layers = self.choices.pick([d for d in range(1, rows + 1) if rows % d == 0])
        deep = layers, rows // layers, columns
        at = self._place(layers - 1)
        inner = f"pl.reshape({x.text}, [{deep[0]}, {deep[1]}, {deep[2]}])"
        layer = f"pl.slice({inner}, [1, {deep[1]}, {deep[2]}], [{at.text}, 0, 0])"
        return Expr(
            f"pl.reshape({layer}, [{deep[1]}, {deep[2]}])",
            lambda r: oracle.whole(x.value(r).data.reshape(deep)[at.value(r)].copy()),
            TileT(deep[1:], _dtype(x)),
        )

    def _store_rows(self, view: Expr) -> None:
        """Each row into a tensor of two or three axes."""
        rows, columns = _shape(view)
        leading = (self.choices.number(1, 3),) if self.choices.chance(40) else ()
        target = (*leading, rows + self.choices.number(0, 2), columns + self.choices.number(0, 2))
        out = self.new_output(target, _dtype(view))
        if out is None:
            return
        places = [self._place(d - s) for d, s in zip(target, (*(1,) * len(leading), rows, columns))]
        index = self.fresh("i")
        before = dict(self.env)
        with self.block(f"for {index} in pl.range({rows}):") as steps:
            at, to = self.fresh("s"), places[-2]
            text = f"{index} + {to.text}"
            self.emit(f"{at} = {text}", lambda r: r.env.update({at: r.env[index] + to.value(r)}))
            self.env[out] = GmT(target, _dtype(view), writable=True)
            row = Expr(
                f"{view.text}[{index} : {index} + 1, :]",
                lambda r: oracle.whole(view.value(r).data[r.env[index]][None].copy()),
                TileT((1, columns), _dtype(view)),
            )
            places[-2] = Expr(at, lambda r: r.env[at], ScalarT("INDEX", 0, target[-2] - 1))
            self.store_window(out, row, places)
        self.steps.append(looping(index, lambda _: range(rows), steps))
        self.env = before


def _shape(x: Expr) -> tuple[int, int]:
    assert isinstance(x.type, TileT)
    return x.type.shape


def _dtype(x: Expr) -> str:
    return x.type.dtype
