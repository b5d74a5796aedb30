"""The printer on hand-built IR, one small function per construct; then print, parse, print."""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
from typing import Any

import pytest

import tilelet.language as pl
from tilelet import dtypes
from tilelet.ir import structure
from tilelet.ir.core import (
    Block,
    Const,
    Direction,
    Function,
    FunctionKind,
    Op,
    Program,
    Value,
)
from tilelet.ir.dump import PassDumper
from tilelet.ir.printer import (
    constant_text,
    identifier,
    print_function,
    print_program,
    public_name,
)
from tilelet.ir.spec import REGISTRY, OpSpec, Trait, spec_of
from tilelet.ir.types import BOOL, INDEX, TASK_ID, SymDim, TensorType, TileType
from tilelet.passes.pipeline import run_passes

X = TensorType((16, 128), dtypes.FP32)
TILE = TileType((16, 128), dtypes.FP32)


class PadValue(enum.Enum):
    zero = 0
    min = 1


def spec(name: str, signature: str) -> OpSpec:
    """An op whose call signature is the text `(x, shape=None)`."""
    scope: dict[str, Any] = {"PadValue": PadValue}
    exec(f"def f{signature}: ...", scope)
    return OpSpec(name, lambda _: (), signature=inspect.signature(scope["f"]))


ADD = spec("add", "(lhs, rhs)")
SLICE = spec("slice", "(x, shape, offset, valid_shape=None)")
FILLPAD = spec("fillpad", "(x, pad_value=PadValue.zero)")
ASSEMBLE = spec("assemble", "(target, source, offset, *, atomic=None)")
INDEX_ADD = spec("scalar.add", "(lhs, rhs)")
LESS = spec("scalar.lt", "(lhs, rhs)")
NOT = spec("scalar.not", "(x)")
MIN = spec("scalar.min", "(lhs, rhs)")
DIM = spec("tensor.dim", "(x, axis)")
READ = spec("read", "(x, indices)")


def yield_(*values: Any) -> Op:
    return Op(structure.YIELD, {"values": values})


def block(*ops: Op, params: tuple[Value, ...] = (), out: tuple[Any, ...] = ()) -> Block:
    return Block(params, (*ops, yield_(*out)))


def scope(kind: str, body: Block, results: tuple[Value, ...] = (), **args: Any) -> Op:
    full = {
        "kind": kind,
        "hint": None,
        "split": None,
        "count": None,
        "deps": (),
        "no_dep": (),
        "options": (),
        "task_id": False,
    }
    return Op(structure.SCOPE, full | args, results, (body,))


def for_(body: Block, init: tuple[Any, ...] = (), results: tuple[Value, ...] = (), **args: Any):
    full = {
        "start": 0,
        "stop": 8,
        "step": 1,
        "init": init,
        "kind": "range",
        "chunk": None,
        "policy": "leading_full",
        "stage": None,
    }
    return Op(structure.FOR, full | args, results, (body,))


def call(operands: tuple[Any, ...], results: tuple[Value, ...], **args: Any) -> Op:
    full = {
        "callee": "kernel",
        "operands": operands,
        "deps": (),
        "no_dep": (),
        "predicate": None,
        "count": None,
        "task_id": False,
        "options": (),
    }
    return Op(structure.CALL, full | args, results)


def function(params: tuple[Value, ...], *ops: Op, out: tuple[Any, ...] = (), declared: Any = ()):
    body = Block((), (*ops, Op(structure.RETURN, {"values": out})))
    directions = tuple(Direction.In for _ in params)
    return Function("main", FunctionKind.Opaque, params, directions, body, declared=declared)


def body_of(fn: Function) -> str:
    """The printed statements, one level dedented, after checking that the text is Python."""
    text = print_function(fn)
    ast.parse(text)
    lines = text.splitlines()[2:]
    return "\n".join(line.removeprefix("    ") for line in lines)


def value(name: str, t: Any = X) -> Value:
    return Value(name, t)


def test_signature_shows_declared_directions_scalars_and_return_type() -> None:
    x, out, n = value("x"), value("out"), value("n", INDEX)
    fn = function((x, out, n), out=(out,), declared=(None, Direction.Out, None))
    assert print_function(fn) == (
        "@pl.function(type=pl.FunctionType.Opaque)\n"
        "def main(self, x: pl.Tensor[[16, 128], pl.FP32], "
        "out: pl.Out[pl.Tensor[[16, 128], pl.FP32]], n: pl.Scalar[pl.INDEX]) "
        "-> pl.Tensor[[16, 128], pl.FP32]:\n"
        "    return out\n"
    )


def test_directions_are_shown_when_nothing_was_declared() -> None:
    x = value("x")
    fn = function((x,))
    inout = Function(fn.name, FunctionKind.InCore, fn.params, (Direction.InOut,), fn.body)
    assert "x: pl.InOut[pl.Tensor[[16, 128], pl.FP32]]):" in print_function(inout)
    assert print_function(inout).endswith("    pass\n")


def test_arguments_are_positional_when_required_and_keyword_when_optional() -> None:
    x, k = value("x"), value("k", INDEX)
    a, b, c = value("a", TILE), value("b", TILE), value("c", TILE)
    fn = function(
        (x, k),
        Op(SLICE, {"x": x, "shape": (16, 128), "offset": (0, k), "valid_shape": (k, 128)}, (a,)),
        Op(SLICE, {"x": x, "shape": (16, 128), "offset": (0, k), "valid_shape": None}, (b,)),
        Op(FILLPAD, {"x": a, "pad_value": PadValue.min}, (c,)),
        Op(FILLPAD, {"x": b, "pad_value": PadValue.zero}, (value("c", TILE),)),
    )
    assert body_of(fn) == (
        "a = pl.slice(x, [16, 128], [0, k], valid_shape=[k, 128])\n"
        "b = pl.slice(x, [16, 128], [0, k])\n"
        "c = pl.fillpad(a, pad_value=pl.PadValue.min)\n"
        "c_1 = pl.fillpad(b)"
    )


@pytest.mark.parametrize(
    ("hint", "name"),
    [("x", "x"), ("x.load", "x_load"), ("for", "for_"), ("3d", "v3d"), ("_", "unused")],
)
def test_hints_become_identifiers(hint: str, name: str) -> None:
    assert identifier(hint) == name


def test_names_are_unique_and_never_shadow_the_language() -> None:
    x = value("x")
    results = [value(n, TILE) for n in ("x", "x_1", "pl", "self")]
    ops = [Op(ADD, {"lhs": x, "rhs": 1.0}, (r,)) for r in results]
    names = [line.split(" = ")[0] for line in body_of(function((x,), *ops)).splitlines()]
    assert names == ["x_1", "x_2", "pl_1", "self_1"]


@pytest.mark.parametrize(
    ("arg", "text"),
    [
        (Const(3, dtypes.INT32), "pl.const(3, pl.INT32)"),
        (1e-06, "1e-06"),
        (True, "True"),
        (-1, "-1"),
        (None, "None"),
        (dtypes.BF16, "pl.BF16"),
        ("rint", '"rint"'),
        (FunctionKind.InCore, "pl.FunctionType.InCore"),
    ],
)
def test_constants(arg: Any, text: str) -> None:
    assert constant_text(arg) == text


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_non_finite_floats_are_literals_that_python_reads_back(number: float) -> None:
    read_back = eval(constant_text(number), {"__builtins__": {}})
    assert repr(read_back) == repr(number)


def test_scalar_ops_are_python_operators() -> None:
    i = value("i", INDEX)
    j, c, d, m = value("j", INDEX), value("c", BOOL), value("d", BOOL), value("m", INDEX)
    x = value("x")
    fn = function(
        (x, i),
        Op(INDEX_ADD, {"lhs": i, "rhs": 1}, (j,)),
        Op(LESS, {"lhs": i, "rhs": j}, (c,)),
        Op(NOT, {"x": c}, (d,)),
        Op(MIN, {"lhs": i, "rhs": j}, (m,)),
        Op(DIM, {"x": x, "axis": 0}, (value("rows", INDEX),)),
    )
    assert body_of(fn) == (
        "j = i + 1\nc = i < j\nd = not c\nm = pl.min(i, j)\nrows = pl.tensor.dim(x, 0)"
    )


def test_loop_with_one_carried_value() -> None:
    x, i, a, b, r = (value(n) for n in ("x", "i", "a", "b", "a"))
    body = block(Op(ADD, {"lhs": a, "rhs": x}, (b,)), params=(i, a), out=(b,))
    fn = function((x,), for_(body, (x,), (r,), start=1, kind="pipeline", stage=2), out=(r,))
    assert body_of(fn) == (
        "for i, (a,) in pl.pipeline(1, 8, 1, init_values=(x,), stage=2):\n"
        "    b = pl.add(a, x)\n"
        "    a_1 = pl.yield_(b)\n"
        "return a_1"
    )


def test_loop_with_two_carried_values_and_loop_without() -> None:
    x, i, j, a, b, r, s = (value(n) for n in ("x", "i", "j", "a", "b", "r", "s"))
    swap = block(params=(i, a, b), out=(b, a))
    fn = function((x,), for_(swap, (x, 0), (r, s)), for_(block(params=(j,)), kind="parallel"))
    assert body_of(fn) == (
        "for i, (a, b) in pl.range(8, init_values=(x, 0)):\n"
        "    r, s = pl.yield_(b, a)\n"
        "for j in pl.parallel(8):\n"
        "    pass"
    )


def test_while_condition_is_one_nested_expression() -> None:
    n, x0 = value("n", INDEX), value("x0", INDEX)
    p, q, x, y, r, c = (value(s, INDEX) for s in ("p", "q", "x", "y", "r", "c"))
    cond = block(
        Op(INDEX_ADD, {"lhs": p, "rhs": 1}, (q,)),
        Op(LESS, {"lhs": q, "rhs": n}, (c,)),
        params=(p,),
        out=(c,),
    )
    body = block(Op(INDEX_ADD, {"lhs": x, "rhs": 2}, (y,)), params=(x,), out=(y,))
    fn = function((n, x0), Op(structure.WHILE, {"init": (x0,)}, (r,), (cond, body)), out=(r,))
    assert body_of(fn) == (
        "for (x,) in pl.while_(init_values=(x0,)):\n"
        "    pl.cond((x + 1) < n)\n"
        "    y = x + 2\n"
        "    r = pl.yield_(y)\n"
        "return r"
    )


def test_while_that_carries_nothing_is_a_plain_while() -> None:
    x, seen, c = value("x"), value("seen", INDEX), value("c", BOOL)
    cond = block(
        Op(READ, {"x": x, "indices": (0, 0)}, (seen,)),
        Op(LESS, {"lhs": seen, "rhs": 4}, (c,)),
        out=(c,),
    )
    fn = function((x,), Op(structure.WHILE, {"init": ()}, (), (cond, block())))
    assert body_of(fn) == "while pl.read(x, [0, 0]) < 4:\n    pass"


def test_if_joins_by_yield_and_drops_an_empty_else() -> None:
    x, y, c, r, q = value("x"), value("y"), value("c", BOOL), value("r"), value("q")
    arms = (block(out=(x, 1)), block(out=(y, 2)))
    joined = Op(structure.IF, {"cond": c}, (r, q), arms)
    plain = Op(structure.IF, {"cond": c}, (), (block(), block()))
    assert body_of(function((x, y, c), joined, plain, out=(r,))) == (
        "if c:\n"
        "    q, r = pl.yield_(1, x)\n"
        "else:\n"
        "    q, r = pl.yield_(2, y)\n"
        "if c:\n"
        "    pass\n"
        "return r"
    )


def test_scope_results_leave_by_name_or_by_an_alias() -> None:
    x, y = value("x"), value("y", TILE)
    r, again, passed = value("r"), value("again"), value("passed")
    body = block(Op(ADD, {"lhs": x, "rhs": x}, (y,)), out=(y, y, x))
    op = scope("incore", body, (r, again, passed), hint="sum")
    assert body_of(function((x,), op, out=(r, again, passed))) == (
        'with pl.at(level=pl.Level.CORE_GROUP, name_hint="sum"):\n'
        "    y = pl.add(x, x)\n"
        "    again = y\n"
        "    passed = x\n"
        "return y, again, passed"
    )


@pytest.mark.parametrize(
    ("kind", "args", "header"),
    [
        ("incore", {}, "with pl.at(level=pl.Level.CORE_GROUP):"),
        (
            "incore",
            {"split": "UP_DOWN"},
            (
                "with pl.at(level=pl.Level.CORE_GROUP, "
                "optimizations=[pl.split(pl.SplitMode.UP_DOWN)]):"
            ),
        ),
        ("manual", {}, "with pl.manual_scope():"),
        ("cluster", {}, "with pl.cluster():"),
        ("runtime", {"options": (("mode", "ring"),)}, 'with pl.scope(mode="ring"):'),
    ],
)
def test_scope_headers(kind: str, args: dict[str, Any], header: str) -> None:
    assert body_of(function((), scope(kind, block(), **args))) == f"{header}\n    pass"


def test_task_ids_and_explicit_dependencies() -> None:
    x, t, u = value("x"), value("tid", TASK_ID), value("tid", TASK_ID)
    first = scope("incore", block(), (t,), task_id=True)
    second = scope("incore", block(), (u,), task_id=True, deps=(t,), no_dep=(x,))
    assert body_of(function((x,), first, second)) == (
        "with pl.at(level=pl.Level.CORE_GROUP) as tid:\n"
        "    pass\n"
        "with pl.at(level=pl.Level.CORE_GROUP, deps=[tid], no_dep_args=[x]) as tid_1:\n"
        "    pass"
    )


def test_spmd_loop_and_spmd_with_task_id() -> None:
    x, i, j, t = value("x"), value("i", INDEX), value("j", INDEX), value("tid", TASK_ID)
    uses_index = Op(INDEX_ADD, {"lhs": j, "rhs": 1}, (value("k", INDEX),))
    loop = scope("spmd", block(params=(i,)), count=4, hint="rows")
    with_id = scope("spmd", block(uses_index, params=(j,)), (t,), count=4, task_id=True)
    assert body_of(function((x,), loop, with_id)) == (
        'for i in pl.spmd(4, name_hint="rows"):\n'
        "    pass\n"
        "with pl.spmd(4) as tid:\n"
        "    j = pl.get_block_idx()\n"
        "    k = j + 1"
    )


def test_implied_scope_is_transparent_only_as_the_body_of_a_chunk_loop() -> None:
    out, i, carried, stored, leaked, r = (
        value(n) for n in ("out", "i", "out", "stored", "stored", "out")
    )
    store = Op(ASSEMBLE, {"target": carried, "source": 0, "offset": (0, i)}, (stored,))
    implied = scope("implied", block(store, out=(stored,)), (leaked,))
    loop = for_(
        block(implied, params=(i, carried), out=(leaked,)), (out,), (r,), kind="parallel", chunk=4
    )
    alone = scope("implied", block())
    assert body_of(function((out,), scope("chunked", block(loop)), alone)) == (
        "with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]):\n"
        "    for i, (out_1,) in pl.parallel(8, init_values=(out,), chunk=4, "
        'chunk_policy="leading_full"):\n'
        "        stored = pl.assemble(out_1, 0, [0, i])\n"
        "        out_2 = pl.yield_(stored)\n"
        "with pl.at(level=pl.Level.CORE_GROUP):\n"
        "    pass"
    )


def test_calls() -> None:
    x, y, z, t = value("x"), value("y"), value("z"), value("tid", TASK_ID)
    fn = function(
        (x,),
        call((x, 3), (y,)),
        call((x, y), (z, t), task_id=True, no_dep=(0,)),
        call((x,), (), deps=(t,), predicate=(x, (0, 1), ">", 0)),
        call((x,), (value("w"),), count=8),
        call((x,), (value("t2", TASK_ID),), count=8, deps=(t,), task_id=True),
    )
    assert body_of(fn) == (
        "y = self.kernel(x, 3)\n"
        "z, tid = pl.submit(self.kernel, pl.no_dep(x), y)\n"
        "task = pl.submit(self.kernel, x, deps=[tid], predicate=(x[0, 1] > 0))\n"
        "w, task_1 = pl.spmd_submit(self.kernel, x, core_num=8)\n"
        "t2 = pl.spmd_submit(self.kernel, x, deps=[tid], core_num=8)"
    )


def test_undef_names_its_type() -> None:
    fn = function((), Op(structure.UNDEF, {}, (value("y"),)))
    assert body_of(fn) == "y = pl.undef(pl.Tensor[[16, 128], pl.FP32])"


def program(*functions: Function) -> Program:
    return Program("Layer", {f.name: f for f in functions}, "main")


def test_program_text_declares_each_symbolic_dimension_once() -> None:
    m, other = SymDim("M"), SymDim("M")
    a = value("a", TensorType((m, 128), dtypes.FP32))
    b = value("b", TensorType((other, m), dtypes.BF16))
    assert print_program(program(function((a, b)))) == (
        "import tilelet.language as pl\n"
        "\n"
        'M = pl.dynamic("M")\n'
        'M_1 = pl.dynamic("M")\n'
        "\n"
        "@pl.program\n"
        "class Layer:\n"
        "    @pl.function(type=pl.FunctionType.Opaque)\n"
        "    def main(self, a: pl.Tensor[[M, 128], pl.FP32], b: pl.Tensor[[M_1, M], pl.BF16]):\n"
        "        pass\n"
    )


def test_pass_dumper_numbers_its_files(tmp_path: Any) -> None:
    p = program(function(()))
    dump = PassDumper(tmp_path / "passes_dump")
    dump.frontend(p)
    dump("split_chunks", p)
    dump("outline", p)
    written = sorted(f.name for f in (tmp_path / "passes_dump").iterdir())
    assert written == ["00_frontend.py", "01_after_SplitChunks.py", "02_after_Outline.py"]
    assert (tmp_path / "passes_dump" / written[2]).read_text() == print_program(p)


def test_chunked_scope_without_chunk_loops_hands_its_options_to_its_scopes() -> None:
    inner = scope("implied", block(), hint=None)
    outer = scope("chunked", block(inner), hint="sums", split="UP_DOWN")
    assert body_of(function((), outer)) == (
        "with pl.at(level=pl.Level.CORE_GROUP, "
        'optimizations=[pl.split(pl.SplitMode.UP_DOWN)], name_hint="sums"):\n'
        "    pass"
    )


def test_every_op_is_called_by_a_name_that_the_language_has() -> None:
    for op in REGISTRY.values():
        if op.structural or Trait.SCALAR in op.traits or op.name in ("breakpoint", "dump"):
            continue
        found: Any = pl
        for part in public_name(op).split(".")[1:]:
            found = getattr(found, part)
        # Scalars have the same names: the frontend tells them apart.
        is_both = op.name in ("tile.sum", "tile.max", "tile.min")
        assert spec_of(found) is op or (is_both and callable(found)), op.name


# --- print, parse, print -------------------------------------------------------------------------

KERNEL = """
@pl.function(type=pl.FunctionType.InCore)
def k(self, x: pl.Tensor[[64, 64], pl.FP32], out: pl.InOut[pl.Tensor[[64, 64], pl.FP32]]):
    row = pl.get_block_idx() * 16
    out = pl.store(pl.add(pl.load(x, [row, 0], [16, 64]), 1.0), [row, 0], out)
    return out
"""

PROGRAMS = {
    "while": """
        i = 0
        while i < n:
            with pl.incore():
                y = pl.assemble(y, pl.slice(x, [16, 64], [i, 0]), [i, 0])
            i = i + 16
        return y""",
    "explicit while": """
        for (i,) in pl.while_(init_values=(0,)):
            pl.cond(i + 1 < n)
            j = i + 2
            last = pl.yield_(j)
        with pl.incore():
            y = pl.assemble(y, pl.slice(x, [16, 64], [last, 0]), [0, 0])
        return y""",
    "branches": """
        if n > 3:
            k = 0
            if n > 5 and n < 9:
                k = 16
        else:
            k = 32
        with pl.at(level=pl.Level.CORE_GROUP):
            t = pl.slice(x, [16, 64], [k, 0])
            if n == 4:
                t = pl.add(t, 1.0)
                s = pl.mul(t, 2.0)
            else:
                s = t
            y = pl.assemble(y, pl.add(s, t), [0, 0])
        return y""",
    "break": """
        for i in pl.range(4):
            if i == n:
                break
            with pl.incore():
                y = pl.assemble(y, pl.slice(x, [16, 64], [i * 16, 0]), [i * 16, 0])
        return y""",
    "first bound in a loop": """
        for i in pl.range(n):
            with pl.incore():
                t = pl.slice(x, [16, 64], [i * 16, 0])
        with pl.incore():
            y = pl.assemble(y, pl.add(t, 1.0), [0, 0])
        return y""",
    "unroll": """
        for i in pl.unroll(4):
            with pl.incore():
                y = pl.assemble(y, pl.slice(x, [16, 64], [i * 16, 0]), [i * 16, 0])
        return y""",
    "sequential chunk": """
        with pl.auto_incore():
            for i in pl.unroll(0, 4, chunk=2):
                y = pl.assemble(y, pl.add(pl.slice(x, [16, 64], [i * 16, 0]), 1.0), [i * 16, 0])
        return y""",
    "chunk nest": """
        with pl.auto_incore(split=pl.SplitMode.UP_DOWN):
            z = pl.create_tensor([64, 64], dtype=pl.FP32)
            z = pl.assemble(z, pl.full([64, 64], dtype=pl.FP32, value=1.0), [0, 0])
            for i in pl.parallel(0, 4, chunk=3, chunk_policy="leading_full"):
                for j in pl.parallel(0, 4, chunk=2):
                    t = pl.slice(x, [16, 16], [i * 16, j * 16])
                    u = pl.slice(z, [16, 16], [i * 16, j * 16])
                    y = pl.assemble(y, pl.add(t, u), [i * 16, j * 16])
        return y""",
    "implied scope": """
        b = pl.add(pl.slice(x, [16, 64], [0, 0]), 1.0)
        c = pl.mul(b, 2.0)
        y = pl.assemble(y, c, [0, 0])
        return y""",
    "task control": """
        with pl.manual_scope():
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="first") as t0:
                y = pl.assemble(y, pl.slice(x, [16, 64], [0, 0]), [0, 0])
            with pl.at(level=pl.Level.CORE_GROUP, deps=[t0], no_dep_args=[x]) as t1:
                y = pl.assemble(y, pl.slice(x, [16, 64], [16, 0]), [0, 0])
            y, t2 = pl.submit(self.k, pl.no_dep(x), y, deps=[t0, t1], predicate=(x[0, 0] > 0))
            y, t3 = pl.spmd_submit(self.k, x, y, core_num=4, deps=[t2])
            y = self.k(x, y)
        return y""",
    "spmd": """
        for b in pl.spmd(4, name_hint="rows"):
            t = pl.slice(x, [16, 64], [b * 16, 0])
            y = pl.assemble(y, pl.add(t, 1.0), [b * 16, 0])
        with pl.spmd(4) as tid:
            i = pl.get_block_idx()
            y = pl.assemble(y, pl.add(pl.slice(x, [16, 64], [i * 16, 0]), 1.0), [i * 16, 0])
        with pl.spmd(2, deps=[tid]):
            y = self.k(x, y)
        return y""",
    "dynamic shape": """
        rows = pl.tensor.dim(z, 0)
        for i in pl.parallel(0, rows, 16):
            with pl.incore():
                t = pl.slice(z, [16, 64], [i, 0], valid_shape=[pl.min(16, rows - i), 64])
                y = pl.assemble(y, pl.exp(t), [i, 0])
        return y""",
    "scalars": """
        a = n * 2 + 1
        b = (a << 2) // 3 % 5
        d = pl.const(7, pl.INT32) - pl.max(a, b)
        column = pl.cast(-d, pl.INDEX)
        counts = pl.array.create(4, pl.INT32)
        counts[0] = n
        if not (d < 0) or counts[0] == 3:
            with pl.incore():
                t = pl.full([16, 64], dtype=pl.FP32, value=float("-inf"))
                t = pl.fillpad(pl.set_validshape(t, 8, 64), pad_value=pl.PadValue.max)
                y = pl.assemble(y, t, [0, column])
                pl.write(y, [0, 0], pl.read(x, [0, 0]))
                breakpoint()
        return y""",
    "pipeline": """
        with pl.incore():
            acc = pl.full([16, 64], dtype=pl.FP32, value=0.0)
            for i in pl.pipeline(0, 4, stage=2):
                acc = pl.add(acc, pl.slice(x, [16, 64], [i * 16, 0]))
            y = pl.assemble(y, acc, [0, 0])
        return y""",
}


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_printed_text_parses_to_the_same_text_after_every_pass(body: str) -> None:
    text = "\n".join(
        [
            "import tilelet.language as pl",
            'M = pl.dynamic("M")',
            "@pl.program",
            "class P:",
            textwrap.indent(KERNEL, "    "),
            "    @pl.function(type=pl.FunctionType.Opaque)",
            "    def main(self, x: pl.Tensor[[64, 64], pl.FP32], y: pl.Tensor[[64, 64], pl.FP32],",
            "             z: pl.Tensor[[M, 64], pl.FP32], n: pl.Scalar[pl.INT32]):",
            textwrap.indent(textwrap.dedent(body), "        "),
        ]
    )
    built = pl.parse(text)
    stages = [built]
    run_passes(built, after=lambda _, after: stages.append(after))
    for stage in stages:
        printed = print_program(stage)
        assert print_program(pl.parse(printed)) == printed
