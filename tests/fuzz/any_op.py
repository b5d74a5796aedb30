"""Programs of every op with a result: there is no oracle, but both engines must agree.

A table says for each op how a call of it is written from tiles that there are. A call that the
language does not take is a rejected case, the same on both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

T = TypeVar("T")
ROWS, COLUMNS = (1, 4, 8, 16), (8, 16, 32, 64)
SOURCE = (64, 64)  # the shape of every input
FLOATS, SIGNED = ("FP32", "FP16", "BF16"), ("INT32", "INT16", "INT8")
INTEGERS = (*SIGNED, "UINT32", "UINT16", "UINT8")
TARGETS = (("y0", "FP32"), ("y1", "INT32"), ("y2", "FP16"), ("y3", "BF16"))
INPUTS = ("FP32", "FP32", "FP16", "BF16", "INT32", "INT16", "INT8", "UINT32", "UINT8")
PATTERNS = {"P0101": 2, "P1010": 2, "P0001": 4, "P0010": 4, "P0100": 4, "P1000": 4, "P1111": 1}
BYTES = {"FP32": 4, "INT32": 4, "UINT32": 4, "INT8": 1, "UINT8": 1}


@dataclass(frozen=True)
class Tile:
    text: str
    shape: tuple[int, int]
    dtype: str


class Writer:
    """Statements of one kernel; `names` are the tiles that are bound."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.created: list[str] = []
        self.names: list[Tile] = []
        self.params: list[tuple[str, tuple[int, int], str]] = []
        self.indices: list[str] = []
        self.depth = 2
        self.count = 0
        self.is_partial = self.chance(25)  # some windows are partially valid

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, percent: int) -> bool:
        return bool(self.rng.integers(100) < percent)

    def number(self, dtype: str) -> str:
        if dtype in FLOATS:
            return self.pick(("0.0", "1.5", "-2.0", "0.25", "3.0"))
        return self.pick(("0", "1", "2", "3", "7") + (("-1", "-3") if dtype in SIGNED else ()))

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def tile(self, dtype: str, shape: tuple[int, int] | None = None) -> Tile:
        """Draw a bound name, a window of an input, or a constant."""
        shape = shape or (self.pick(ROWS), self.pick(COLUMNS))
        known = [t for t in self.names if t.dtype == dtype and t.shape == shape]
        if known and self.chance(70):
            return self.pick(known)
        sources = [n for n, _, d in self.params if d == dtype and n[0] == "x"]
        fits = all(part <= whole for part, whole in zip(shape, SOURCE))
        if not sources or not fits or self.chance(10):
            text = f"pl.full([{shape[0]}, {shape[1]}], pl.{dtype}, {self.number(dtype)})"
            return Tile(text, shape, dtype)
        at = [self.offset(whole - part) for whole, part in zip(SOURCE, shape)]
        source = self.pick(sources)
        if self.chance(50):
            window = ", ".join(f"{o} : {o} + {s}" for o, s in zip(at, shape))
            return Tile(f"{source}[{window}]", shape, dtype)
        texts = f"[{at[0]}, {at[1]}]", f"[{shape[0]}, {shape[1]}]"
        if self.is_partial and self.chance(30):
            valid = [int(self.rng.integers(1, extent + 1)) for extent in shape]
            text = f"pl.slice({source}, {texts[1]}, {texts[0]}, valid_shape={valid})"
            return Tile(text, shape, dtype)
        return Tile(f"pl.load({source}, {texts[0]}, {texts[1]})", shape, dtype)

    def memory(self, columns: int, dtype: str) -> str:
        """Create a tensor of one row outside the scope."""
        name = self.fresh("g")
        self.created.append(f"    {name} = pl.create_tensor([1, {columns}], dtype=pl.{dtype})")
        return name

    def window(self, name: str, shape: tuple[int, int], dtype: str) -> Tile:
        """Draw a window of a tensor as it is now."""
        at = ", ".join(self.offset(whole - part) for whole, part in zip(SOURCE, shape))
        return Tile(f"pl.load({name}, [{at}], [{shape[0]}, {shape[1]}])", shape, dtype)

    def offset(self, most: int) -> str:
        if self.indices and self.chance(40) and most >= 3:
            return self.pick(self.indices)
        return str(self.rng.integers(most + 1))

    def index(self, shape: tuple[int, int], below: int, dtype: str = "INT32") -> str:
        """Draw positions, most of them in range."""
        x = self.tile("INT32", shape).text
        bound = below if self.chance(97) else below + 1
        text = f"pl.mins(pl.maxs({x}, 0), {bound - 1})"
        return text if dtype == "INT32" else f"pl.cast({text}, pl.{dtype})"

    def bind(self, made: Tile) -> None:
        name = self.fresh("t")
        self.line(f"{name} = {made.text}")
        self.names.append(Tile(name, made.shape, made.dtype))

    def statement(self, nesting: int = 2) -> None:
        kind = int(self.rng.integers(12)) if nesting else 12
        if kind == 0 and self.names:
            self.loop(nesting - 1)
        elif kind == 1 and self.names:
            self.branch()
        else:
            self.bind(self.call())

    def call(self, dtype: str | None = None, shape: tuple[int, int] | None = None) -> Tile:
        """Draw an op, of this type and shape if given."""
        for _ in range(40):
            made = self.pick(MAKERS)(self)
            if dtype in (None, made.dtype) and shape in (None, made.shape):
                return made
        assert dtype is not None
        x = self.tile(dtype, shape)
        return Tile(f"pl.maximum({x.text}, {self.number(dtype)})", x.shape, dtype)

    def loop(self, nesting: int) -> None:
        carried = self.pick(self.names)
        i = self.fresh("i")
        kind = self.pick(("pl.range(3)", "pl.range(0, 3, 2)", "pl.pipeline(0, 3, 1, stage=2)"))
        self.line(f"for {i} in {kind}:")
        self.indices.append(i)
        self.nested(carried, lambda: self.statement(nesting))
        self.indices.pop()

    def branch(self) -> None:
        carried = self.pick(self.names)
        x = self.tile("INT32", (1, 8))
        flag = self.fresh("s")
        self.line(f"v{flag} = pl.add({x.text}, 0)")
        self.line(f"{flag} = pl.read(v{flag}, [0, {self.rng.integers(8)}])")
        self.line(f"if {flag} > {self.rng.integers(-3, 4)}:")
        self.nested(carried, lambda: None)
        self.line("else:")
        self.nested(carried, lambda: None)

    def nested(self, carried: Tile, more: Callable[[], None]) -> None:
        """Draw a block that rebinds `carried`; its other bindings are local."""
        before = list(self.names)
        self.depth += 1
        more()
        self.line(f"{carried.text} = {self.call(carried.dtype, carried.shape).text}")
        self.depth -= 1
        self.names = before


Maker = Callable[[Writer], Tile]
MAKERS: list[Maker] = []


def maker(f: Maker) -> Maker:
    MAKERS.append(f)
    return f


def _same(w: Writer, dtypes: tuple[str, ...], form: str, tiles: int) -> Tile:
    x = w.tile(w.pick(dtypes))
    rest = [w.tile(x.dtype, x.shape).text for _ in range(tiles - 1)]
    return Tile(form.format(x.text, *rest, n=w.number(x.dtype)), x.shape, x.dtype)


def _table(dtypes: tuple[str, ...], tiles: int, *forms: str) -> None:
    MAKERS.extend(partial(_same, dtypes=dtypes, form=form, tiles=tiles) for form in forms)


ALL = (*FLOATS, *SIGNED, "UINT32", "UINT8")
# Ops with three, two and one tile operands: {n} is a number.
_table(
    ALL, 3,
    "pl.addc({0}, {1}, {2})", "pl.subc({0}, {1}, {2})",
    "pl.sel(pl.cmp({0}, {1}, cmp_type=2), {2}, {0})",
)  # fmt: skip
_table(
    ALL, 2,
    "pl.add({0}, {1})", "pl.sub({0}, {1})", "pl.mul({0}, {1})", "pl.rem({0}, {1})",
    "pl.fmod({0}, {1})", "pl.maximum({0}, {1})", "pl.minimum({0}, {1})",
    "pl.addsc({0}, {n}, {1})", "pl.subsc({0}, {n}, {1})", "pl.part_max({0}, {1})",
    "pl.part_min({0}, {1})", "pl.tile.sel(pl.tile.cmp({0}, {1}, cmp_type=4), {0}, {1})",
)  # fmt: skip
_table(
    ALL, 1,
    "pl.minimums({0}, {n})", "pl.maxs({0}, {n})", "pl.mins({0}, {n})", "pl.muls({0}, {n})",
    "pl.subs({0}, {n})", "pl.rems({0}, 3)", "pl.fmods({0}, 5)", "pl.cmps({0}, {n}, cmp_type=3)",
    "pl.sels(pl.cmps({0}, {n}, cmp_type=1), {0}, None, {n})", "pl.move({0}, pl.Mem.Mat)",
    "pl.tile.sels(pl.tile.cmps({0}, {n}, cmp_type=4), {0}, None, {n})",
    "pl.tile.fillpad_inplace({0})",
)  # fmt: skip
_table(FLOATS, 2, "pl.prelu({0}, {1})", "pl.div({0}, {1})")
_table(
    FLOATS, 1,
    "pl.lrelu({0}, 0.5)", "pl.sqrt(pl.abs({0}))", "pl.rsqrt(pl.add(pl.abs({0}), 0.5))",
    "pl.recip({0})", "pl.divs({0}, 3.0)", "pl.exp({0})", "pl.log({0})", "pl.sin({0})",
    "pl.cos({0})", "pl.recip({0}, high_precision=True)", "pl.div({0}, 3.0, high_precision=True)",
    "pl.rsqrt(pl.abs({0}), high_precision=True)",
)  # fmt: skip
_table(
    ("FP32", "FP16", "INT32"), 2,
    "pl.tile.select(pl.cmp({0}, {1}, cmp_type=4), {0}, {1})",
    "pl.tile.select(pl.tile.cmp({0}, {1}), {1}, 2)", "pl.tile.select(pl.cmps({0}, 1), 3, {1})",
)  # fmt: skip
_table(INTEGERS, 2, "pl.and_({0}, {1})", "pl.or_({0}, {1})", "pl.xor({0}, {1})")
_table(
    INTEGERS, 1,
    "pl.ands({0}, 5)", "pl.ors({0}, 3)", "pl.xors({0}, 6)", "pl.shls({0}, 2)", "pl.shrs({0}, 1)",
    "pl.not_({0})",
)  # fmt: skip


@maker
def _transposed(w: Writer) -> Tile:
    x = w.tile(w.pick(ALL))
    form = w.pick(("pl.transpose({0}, 0, 1)", "pl.tile.transpose_view({0})"))
    return Tile(form.format(x.text), (x.shape[1], x.shape[0]), x.dtype)


@maker
def _cast(w: Writer) -> Tile:
    x, target = w.tile(w.pick(ALL)), w.pick(ALL)
    mode = w.pick(("", ", mode='rint'", ", mode='floor'", ", mode='ceil'", ", mode='trunc'"))
    text = x.text
    if w.chance(15):  # through a type without arithmetic
        text = f"pl.cast({text}, pl.{w.pick(('INT4', 'UINT4', 'HF8'))}{mode})"
    return Tile(f"pl.cast({text}, pl.{target}{mode})", x.shape, target)


@maker
def _concat(w: Writer) -> Tile:
    x = w.tile(w.pick(ALL))
    other = w.tile(x.dtype, (x.shape[0], w.pick(COLUMNS)))
    columns = x.shape[1] + other.shape[1]
    return Tile(f"pl.concat({x.text}, {other.text})", (x.shape[0], columns), x.dtype)


@maker
def _picked_columns(w: Writer) -> Tile:
    pattern = w.pick(list(PATTERNS))
    x = w.tile(w.pick(("FP32", "INT32", "FP16", "UINT32")))
    form = w.pick(("pl.tile.gather_mask({0}, {1})", "pl.gather({0}, mask_pattern={1})"))
    columns = x.shape[1] // PATTERNS[pattern]
    text = form.format(x.text, f"pl.tile.MaskPattern.{pattern}")
    return Tile(text, (x.shape[0], columns), x.dtype)


@maker
def _put_columns(w: Writer) -> Tile:
    pattern = w.pick(list(PATTERNS))
    x = w.tile(w.pick(("FP32", "INT32", "UINT32")))
    part = w.tile(x.dtype, (x.shape[0], x.shape[1] // PATTERNS[pattern]))
    where = f"pl.tile.MaskPattern.{pattern}"
    form = w.pick(
        ("pl.tile.scatter_mask({0}, {1}, {2})", "pl.scatter({1}, mask_pattern={2}, dst={0})")
    )
    return Tile(form.format(x.text, part.text, where), x.shape, x.dtype)


@maker
def _gather(w: Writer) -> Tile:
    x = w.tile(w.pick(("FP32", "INT32", "FP16", "INT16")))
    shape = (x.shape[0], w.pick(COLUMNS))
    if w.chance(50):
        index = w.index(shape, x.shape[1])
        return Tile(f"pl.gather({x.text}, dim=-1, index={index})", shape, x.dtype)
    index = w.index(shape, x.shape[0] * x.shape[1])
    return Tile(f"pl.gather({x.text}, index={index})", shape, x.dtype)


@maker
def _gather_blocks(w: Writer) -> Tile:
    x = w.tile(w.pick(("FP32", "INT32", "UINT8")))
    whole = x.shape[0] * x.shape[1] * BYTES[x.dtype] // 32
    shape = (w.pick((1, 4)), w.pick((1, 2)))
    blocks = f"pl.full([{shape[0]}, {shape[1]}], pl.UINT32, {32 * w.rng.integers(max(whole, 1))})"
    columns = shape[1] * 32 // BYTES[x.dtype]
    return Tile(f"pl.gatherb({x.text}, {blocks})", (shape[0], columns), x.dtype)


@maker
def _scatter(w: Writer) -> Tile:
    x = w.tile(w.pick(("FP32", "INT32", "FP16")))
    shape = (x.shape[0], w.pick(COLUMNS))
    values = w.tile(x.dtype, shape).text
    if w.chance(50):
        index = w.index(shape, x.shape[1])
        return Tile(f"pl.scatter({x.text}, dim=-1, index={index}, src={values})", x.shape, x.dtype)
    index = w.index(shape, x.shape[0] * x.shape[1])
    return Tile(f"pl.scatter({x.text}, index={index}, src={values})", x.shape, x.dtype)


@maker
def _from_memory(w: Writer) -> Tile:
    sources = [(n, d) for n, _, d in w.params if n[0] == "x"]
    name, dtype = w.pick(sources)
    outside = w.pick(("clamp", "wrap", "zero", "undefined"))
    if w.chance(50):
        count = w.pick((8, 16))
        index = w.index((1, count), SOURCE[0])
        text = f"pl.mgather({name}, {index}, gather_oob='{outside}')"
        return Tile(text, (count, SOURCE[1]), dtype)
    shape = (w.pick(ROWS), w.pick(COLUMNS))
    index = w.index(shape, SOURCE[0] * SOURCE[1])
    return Tile(f"pl.mgather({name}, {index}, 'elem', gather_oob='{outside}')", shape, dtype)


@maker
def _sorted(w: Writer) -> Tile:
    x = w.tile(w.pick(("FP32", "FP16")), (w.pick((1, 4)), w.pick((32, 64))))
    index = w.tile("UINT32", x.shape).text
    wide = 2 if x.dtype == "FP32" else 4
    return Tile(f"pl.sort32({x.text}, {index})", (x.shape[0], wide * x.shape[1]), x.dtype)


@maker
def _merged(w: Writer) -> Tile:
    runs = []
    for _ in range(w.pick((2, 3, 4))):
        x, index = w.tile("FP32", (1, 32)).text, w.tile("UINT32", (1, 32)).text
        runs.append(f"pl.sort32({x}, {index})")
    exhausted = ", exhausted=True" * w.chance(30)
    return Tile(f"pl.mrgsort({', '.join(runs)}{exhausted})", (1, 64 * len(runs)), "FP32")


@maker
def _product(w: Writer) -> Tile:
    dtype = w.pick(("FP32", "FP16", "BF16", "INT8"))
    m, k, n = w.pick(ROWS), w.pick((8, 16, 32)), w.pick(COLUMNS)
    out = "INT32" if dtype == "INT8" else "FP32"
    a, b, acc = w.tile(dtype, (m, k)).text, w.tile(dtype, (k, n)).text, w.tile(out, (m, n)).text
    bias = w.tile(out, (1, n)).text
    forms = [f"pl.matmul({a}, {b}, out_dtype=pl.{out})", f"pl.matmul_acc({acc}, {a}, {b})"]
    forms += [f"pl.matmul_bias({a}, {b}, {bias})"]
    if dtype in ("FP16", "BF16"):  # stored in the accumulator's type, for lack of another
        made = f"pl.create_tensor([{m}, {n}], dtype=pl.FP32)"
        forms += [f"pl.assemble({made}, pl.matmul({a}, {b}), [0, 0])"]
    if m == 1:
        forms += [f"pl.gemv_acc({acc}, {a}, {b})", f"pl.gemv_bias({a}, {b}, {bias})"]
    return Tile(w.pick(forms), (m, n), out)


@maker
def _drained(w: Writer) -> Tile:
    """Draw a product that becomes a tile through the cube's scale, sign and rounding."""
    dtype, target = w.pick((("FP16", "FP16"), ("BF16", "BF16"), ("INT8", "FP16"), ("INT8", "INT8")))
    m, k, n = w.pick(ROWS), w.pick((8, 16)), w.pick(COLUMNS)
    product = f"pl.matmul({w.tile(dtype, (m, k)).text}, {w.tile(dtype, (k, n)).text}"
    product += ", out_dtype=pl.FP32)" if dtype != "INT8" else ")"
    made = f"pl.tile.create([{m}, {n}], pl.{target}, target_memory=pl.Mem.Mat)"
    scale = w.pick(("", ", pre_quant=0.25", ", pre_quant=-3.0")) or ", pre_quant=1.0" * (
        dtype == "INT8"
    )
    sign = ", pre_relu=True" * w.chance(50)
    kept = f"pl.tile.assemble({made}, {product}, [0, 0]{scale}{sign})"
    return Tile(f"pl.move({kept}, pl.Mem.Vec)", (m, n), target)


@maker
def _quantised(w: Writer) -> Tile:
    """Quantize groups of 32 with one scale each, and convert them back."""
    dtype, target = w.pick(FLOATS), "FP8E4M3FN"
    rows, layout = w.pick(((16, "MX_A_ZZ"), (32, "MX_A_ZZ"), (32, "MX_B_NN"), (64, "MX_B_NN")))
    if dtype != "FP32" and w.chance(40):
        target = "FP4"
    x = w.tile(dtype, (rows, 64))
    q, scale = w.fresh("q"), w.fresh("q")
    w.line(f"{q}, {scale} = pl.quant_mx({x.text}, layout=pl.{layout}, dtype=pl.{target})")
    shape = (rows, 64) if layout == "MX_A_ZZ" else (64, rows)
    if target == "FP8E4M3FN" and w.chance(70):
        return Tile(f"pl.cast({q}, pl.FP32)", shape, "FP32")
    scales = (rows, 2) if layout == "MX_A_ZZ" else (2, rows)
    return Tile(f"pl.cast({scale}, pl.FP32)", scales, "FP32")


@maker
def _reduced(w: Writer) -> Tile:
    x = w.tile(w.pick(("FP32", "FP16", "INT32", "BF16")))
    m, n = x.shape
    op = w.pick(("sum", "max", "min", "prod", "argmax", "argmin"))
    axis = w.pick(("row", "col"))
    dtype = "INT32" if op.startswith("arg") else x.dtype
    shape = (m, 1) if axis == "row" else (1, n)
    return Tile(f"pl.{axis}_{op}({x.text})", shape, dtype)


@maker
def _expanded(w: Writer) -> Tile:
    x = w.tile(w.pick(FLOATS))
    m, n = x.shape
    axis = w.pick(("row", "col"))
    vector = w.tile(x.dtype, (m, 1) if axis == "row" else (1, n)).text
    op = w.pick(("add", "sub", "mul", "div", "max", "min", "expdif"))
    return Tile(f"pl.{axis}_expand_{op}({x.text}, {vector})", x.shape, x.dtype)


@maker
def _made(w: Writer) -> Tile:
    m, n = w.pick(ROWS), w.pick(COLUMNS)
    start = int(w.rng.integers(-5, 90))
    forms = [
        Tile(f"pl.ci({start}, [1, {n}], dtype=pl.INT32)", (1, n), "INT32"),
        Tile(f"pl.arange({abs(start)}, [1, {n}], dtype=pl.UINT32)", (1, n), "UINT32"),
        Tile(f"pl.tile.tri({start % 7 - 3}, [{m}, {n}], dtype=pl.FP32)", (m, n), "FP32"),
        Tile(f"pl.tile.tri({start % 9 - 4}, [{m}, {n}], upper=True)", (m, n), "INT32"),
        Tile(f"pl.arange({start}, [1, {n}], dtype=pl.INT16, descending=True)", (1, n), "INT16"),
        Tile(f"pl.random({start}, 1, 2, 3, 4, 5, [{m}, {n}])", (m, n), "UINT32"),
    ]
    return w.pick(forms)


@maker
def _reread(w: Writer) -> Tile:
    """The same bytes as another type, or the same elements in another shape."""
    x = w.tile(w.pick(list(BYTES)))
    m, n = x.shape
    if w.chance(50):
        return Tile(f"pl.reshape({x.text}, [{n}, {m}])", (n, m), x.dtype)
    other = w.pick([d for d in BYTES if BYTES[d] <= BYTES[x.dtype]])
    columns = n * BYTES[x.dtype] // BYTES[other]
    op = w.pick(("reinterpret_view", "bitcast", "tile.bitcast"))
    return Tile(f"pl.{op}({x.text}, pl.{other})", (m, columns), other)


@maker
def _across_ranks(w: Writer) -> Tile:
    """One operand has a leading axis of extent 1 that the others lack."""
    x = w.tile(w.pick(ALL))
    m, n = x.shape
    rows, columns = w.pick(((m, n), (m, n), (1, n), (m, 1)))
    y = w.tile(x.dtype, (rows, columns))
    pair = [f"pl.reshape({x.text}, [1, {m}, {n}])", y.text]
    if (rows, columns) == (m, n) and w.chance(50):
        pair.reverse()
    name = w.pick(("add", "sub", "mul", "maximum", "minimum"))
    return Tile(f"pl.reshape(pl.{name}({', '.join(pair)}), [{m}, {n}])", (m, n), x.dtype)


@maker
def _stored_elements(w: Writer) -> Tile:
    """Draw elements or rows that are stored in memory at positions, and load some of it."""
    name, dtype = w.pick(TARGETS)
    if w.chance(50):
        shape = (w.pick(ROWS), w.pick(COLUMNS))
        index = w.index(shape, SOURCE[0] * SOURCE[1])
        w.line(f"{name} = pl.mscatter({w.tile(dtype, shape).text}, {index}, {name})")
    else:
        shape = (w.pick((1, 2)), w.pick((1, 4, 8)))
        index = w.index(shape, SOURCE[0])
        rows = w.tile(dtype, (shape[0] * shape[1], SOURCE[1])).text
        w.line(f"{name} = pl.scatter_update({name}, -2, {index}, {rows})")
    return w.window(name, (w.pick(ROWS), w.pick(COLUMNS)), dtype)


@maker
def _stored_window(w: Writer) -> Tile:
    """Draw a tile that is stored in, or added to, a window of memory, and load some of it."""
    name, dtype = w.pick(TARGETS)
    shape = (w.pick(ROWS), w.pick(COLUMNS))
    value = w.tile(dtype, shape).text
    if value.startswith("pl.full("):
        value = f"pl.neg({value})"
    at = ", ".join(w.offset(whole - part) for whole, part in zip(SOURCE, shape))
    add = ", atomic=pl.AtomicType.Add" * w.chance(50)
    forms = [
        f"pl.assemble({name}, {value}, [{at}]{add})",
        f"pl.store({value}, [{at}], {name}{add})",
    ]
    if shape[0] > 1:
        other = f"[{shape[0] // 2}, {shape[1] * 2}]"
        if shape[1] * 2 <= SOURCE[1]:
            forms.append(f"pl.store({value}, [0, 0], {name}{add}, shapes={other})")
    w.line(f"{name} = {w.pick(forms)}")
    return w.window(name, (w.pick(ROWS), w.pick(COLUMNS)), dtype)


@maker
def _gathered_rows(w: Writer) -> Tile:
    """Draw an operand that is filled window by window."""
    sources = [(n, d) for n, _, d in w.params if n[0] == "x"]
    name, dtype = w.pick(sources)
    m, n = w.pick((8, 16)), w.pick((16, 32))
    made = w.fresh("g")
    w.line(f"{made} = pl.create_l1([{m}, {n}], pl.{dtype}{', transpose=True' * w.chance(30)})")
    w.line(f"{made} = pl.gather_row({made}, {name}, [0, 0], [{w.offset(64 - m)}, 0], [{m}, {n}])")
    for _ in range(w.pick((0, 1, 2))):
        rows, columns = w.pick((1, 1, 4)), w.pick((n, 8))
        to = f"[{w.offset(m - rows)}, {w.offset(n - columns)}]"
        size, turned = f"[{rows}, {columns}]", ""
        if columns <= m and rows <= n and w.chance(40):
            to, turned = f"[{w.offset(m - columns)}, {w.offset(n - rows)}]", ", transpose=True"
        elif w.chance(30):
            turned = (
                f", valid_shape=[{w.rng.integers(1, rows + 1)}, {w.rng.integers(1, columns + 1)}]"
            )
        at = f"[{w.offset(SOURCE[0] - rows)}, {w.offset(SOURCE[1] - columns)}]"
        w.line(f"{made} = pl.gather_row({made}, {name}, {to}, {at}, {size}{turned})")
    return Tile(made, (m, n), dtype)


@maker
def _paged_rows(w: Writer) -> Tile:
    name, dtype = w.pick([(n, d) for n, _, d in w.params if n[0] == "x"])
    block, count, size = w.pick((4, 8, 16)), w.pick((8, 16)), w.pick((8, 16, 32))
    table, index = (w.memory(n, "INT32") for n in (16, count))
    w.line(f"{table}[:, :] = pl.fillpad({w.index((1, 16), SOURCE[0] // block)})")
    w.line(f"{index}[:, :] = pl.fillpad({w.index((1, count), min(SOURCE[0], 16 * block))})")
    rows = w.pick((count, count, 2 * count))
    turned = w.chance(30)
    text = (
        f"pl.paged_gather({name}, {index}, {table}, block_size={block}, size={size}, "
        f"max_indices={rows}, col_off={w.rng.integers(SOURCE[1] - size + 1)}"
        f"{', is_trans=True' * turned}, space=pl.Mem.Vec)"
    )
    return Tile(text, (size, rows) if turned else (rows, size), dtype)


@maker
def _alternated(w: Writer) -> Tile:
    """Draw one or both results of ops that have two."""
    x = w.tile(w.pick(ALL))
    y = w.tile(x.dtype, x.shape)
    a, b = w.fresh("p"), w.fresh("p")
    w.line(f"{a}, {b} = pl.tile.{w.pick(('interleave', 'deinterleave'))}({x.text}, {y.text})")
    if w.chance(50):
        return Tile(f"pl.maximum({a}, {b})", x.shape, x.dtype)
    return Tile(w.pick((a, b)), x.shape, x.dtype)


@maker
def _batched(w: Writer) -> Tile:
    """Draw products over a leading axis, which one operand may lack or have with extent 1."""
    dtype, count = w.pick(("FP32", "FP16", "BF16", "INT8")), w.pick((2, 4))
    m, k, n = w.pick((1, 4, 8)), w.pick((8, 16)), w.pick((8, 16, 32))
    out = "INT32" if dtype == "INT8" else "FP32"
    shapes = ((count * m, k), (count * k, n), (k, n))
    a, b, one = (f"pl.move({w.tile(dtype, s).text}, pl.Mem.Mat)" for s in shapes)
    forms = [f"pl.reshape({b}, [{count}, {k}, {n}])"]
    forms += [f"pl.reshape({one}, [1, {k}, {n}])", one]
    name = w.pick(("batch_matmul", "matmul", "tile.batch_matmul"))
    product = f"pl.{name}(pl.reshape({a}, [{count}, {m}, {k}]), {w.pick(forms)})"
    return Tile(f"pl.reshape({product}, [{count * m}, {n}])", (count * m, n), out)


@maker
def _scaled_product(w: Writer) -> Tile:
    """Draw a product of operands with a scale for every 32 elements."""
    m, k, n = w.pick((16, 32)), w.pick((32, 64)), w.pick((16, 32))
    names = [w.fresh("q") for _ in range(4)]
    for quantized, scales, rows in ((*names[:2], m), (*names[2:], n)):
        x = w.tile(w.pick(FLOATS), (rows, k)).text
        w.line(f"{quantized}, {scales} = pl.tquant({x})")
    left = f"{names[0]}, {names[1]}"
    right = f"pl.transpose({names[2]}, 0, 1), pl.transpose({names[3]}, 0, 1)"
    forms = [f"pl.matmul_mx({left}, {right})"]
    forms.append(f"pl.matmul_mx_acc({w.tile('FP32', (m, n)).text}, {left}, {right})")
    forms.append(f"pl.matmul_mx_bias({left}, {right}, {w.tile('FP32', (1, n)).text})")
    return Tile(w.pick(forms), (m, n), "FP32")


@maker
def _dequantized(w: Writer) -> Tile:
    x = w.tile(w.pick(INTEGERS[:3]))
    scale, zero = (w.tile("FP32", (x.shape[0], 1)).text for _ in range(2))
    return Tile(f"pl.tdequant({x.text}, {scale}, {zero})", x.shape, "FP32")


@maker
def _compared_positions(w: Writer) -> Tile:
    """Draw the columns at which elements compare to a number, or their counts."""
    x = w.tile(w.pick(("FP32", "INT32", "FP16")))
    columns = w.pick((8, 16))
    found, counts = w.fresh("p"), w.fresh("p")
    w.line(
        f"{found}, {counts} = pl.gather({x.text}, kvalue={w.number(x.dtype)}, "
        f"cmp_mode={w.rng.integers(6)}, out_cols={columns}{', offset=100' * w.chance(30)})"
    )
    forms = [Tile(found, (x.shape[0], columns), "INT32"), Tile(counts, (1, x.shape[0]), "INT32")]
    return w.pick(forms)


@maker
def _merged_blocks(w: Writer) -> Tile:
    runs = w.pick((1, 2))
    x, index = (w.tile(d, (1, 128 * runs)).text for d in ("FP32", "UINT32"))
    merged = f"pl.mrgsort(pl.sort32({x}, {index}), block_len=64)"
    pattern, output = w.pick((("P0101", "FP32"), ("P1010", "INT32"), ("P1010", "UINT32")))
    picked = f"pl.gather({merged}, mask_pattern=pl.tile.MaskPattern.{pattern}"
    other = f", output_dtype=pl.{output}" * (output != "FP32")
    return Tile(f"{picked}{other})", (1, 128 * runs), output)


@maker
def _early_reduced(w: Writer) -> Tile:
    x = w.tile(w.pick(("FP32", "FP16", "INT32")))
    m, n = x.shape
    op, axis = w.pick(("sum", "max", "min")), w.pick((0, 1, -1, -2))
    shape = (1, n) if axis in (0, -2) else (m, 1)
    if w.chance(30):  # to one axis
        text = f"pl.tile.{op}({x.text}, {axis})"
        return Tile(f"pl.reshape({text}, [{shape[0]}, {shape[1]}])", shape, x.dtype)
    return Tile(f"pl.tile.{op}({x.text}, {axis}, keepdim=True)", shape, x.dtype)


@maker
def _with_element(w: Writer) -> Tile:
    """Draw a tile and a number that an array or another tile holds."""
    x = w.tile(w.pick(("FP32", "INT32")))
    held, at = w.tile(x.dtype, (1, 8)), w.rng.integers(8)
    if x.dtype == "INT32" and w.chance(50):
        array, first = w.fresh("a"), w.fresh("v")
        w.line(f"{array} = pl.array.create(4, pl.INT32)")
        w.line(f"{first} = pl.maximum({held.text}, -5)")
        w.line(f"{array}[{w.rng.integers(4)}] = pl.read({first}, [0, {at}])")
        number = f"{array}[{w.rng.integers(4)}]"
    else:
        first = w.fresh("v")
        w.line(f"{first} = pl.maximum({held.text}, 1)")
        number = f"pl.read({first}, [0, {at}])"
    op = w.pick(("add", "sub", "mul", "maximum", "minimum", "adds", "muls"))
    return Tile(f"pl.{op}({x.text}, {number})", x.shape, x.dtype)


@maker
def _loaded_turned(w: Writer) -> Tile:
    """Draw a product of an operand that is transposed while it is loaded or moved."""
    name, dtype = w.pick([(n, d) for n, _, d in w.params if d in ("FP32", "FP16", "BF16", "INT8")])
    m, k, n = w.pick((4, 8, 16)), w.pick((8, 16, 32)), w.pick((8, 16, 32))
    out = "INT32" if dtype == "INT8" else "FP32"
    at = f"[{w.offset(SOURCE[0] - n)}, {w.offset(SOURCE[1] - k)}]"
    turned = f"pl.load({name}, {at}, [{n}, {k}], target_memory=pl.Mem.Mat, transpose=True)"
    if w.chance(40):
        turned = f"pl.move({w.tile(dtype, (n, k)).text}, pl.Mem.Mat, transpose=True)"
    a = w.tile(dtype, (m, k)).text
    return Tile(f"pl.matmul({a}, {turned}, out_dtype=pl.{out})", (m, n), out)


@maker
def _extracted(w: Writer) -> Tile:
    x = w.tile(w.pick(ALL), (16, 32))
    m, n = w.pick((4, 8)), w.pick((8, 16))
    at = w.rng.integers(16 - m + 1), w.rng.integers(32 - n + 1)
    text = f"pl.tile.extract({x.text}, {at[0]}, {at[1]}, [{m}, {n}], target_memory=pl.Mem.Mat)"
    return Tile(text, (m, n), x.dtype)


def program(rng: np.random.Generator) -> tuple[str, list[tuple[str, tuple[int, int], str]]]:
    """Return the text of a `@pl.jit` function, and its parameters."""
    w = Writer(rng)
    w.params = [(f"x{i}", SOURCE, dtype) for i, dtype in enumerate(INPUTS)]
    outputs: list[tuple[str, tuple[int, int], str]] = []
    for _ in range(w.pick((1, 1, 2))):
        w.lines.append("    with pl.at(level=pl.Level.CORE_GROUP):")
        w.names = []
        for _ in range(int(rng.integers(1, 9))):
            w.statement()
        for t in w.names:
            name = w.fresh("o")
            outputs.append((name, t.shape, t.dtype))
            form = w.pick(("{0}[:, :] = {1}", "{0} = pl.assemble({0}, {1}, [0, 0])"))
            w.line(form.format(name, t.text))
    declared = [f"{n}: pl.Tensor[[{s[0]}, {s[1]}], pl.{d}]" for n, s, d in w.params]
    declared += [
        f"{n}: pl.InOut[pl.Tensor[[{SOURCE[0]}, {SOURCE[1]}], pl.{d}]]" for n, d in TARGETS
    ]
    declared += [f"{n}: pl.Out[pl.Tensor[[{s[0]}, {s[1]}], pl.{d}]]" for n, s, d in outputs]
    head = f"@pl.jit\ndef main({', '.join(declared)}):"
    result = ", ".join([n for n, _, _ in outputs] + [n for n, _ in TARGETS])
    text = "\n".join(
        ["import tilelet.language as pl\n\n", head, *w.created, *w.lines, f"    return {result}"]
    )
    targets = [(name, SOURCE, dtype) for name, dtype in TARGETS]
    return text + "\n", [*w.params, *targets, *outputs]
