"""Print the IR as `pl` text in explicit SSA form, which the frontend parses back to the same IR.

One statement per op, every name bound once, loops with `init_values` and `pl.yield_`. A scope has
no `yield_`: its results keep the names of the yielded values, because the names of a `with` body
stay visible after it.
"""

from __future__ import annotations

import enum
import inspect
import json
import keyword
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tilelet.dtypes import DType
from tilelet.ir.core import (
    Arg,
    Block,
    Const,
    Direction,
    Function,
    FunctionKind,
    Op,
    Program,
    Value,
    walk,
)
from tilelet.ir.spec import OpSpec
from tilelet.ir.types import (
    ArrayType,
    Dim,
    DistributedType,
    ScalarType,
    SymDim,
    TensorType,
    TileType,
    Type,
)
from tilelet.ir.views import CallView, ForView, ScopeView, yielded_values

HEADER = "import tilelet.language as pl"
RANKS_HEADER = "import tilelet.language.distributed as pld"

# Scalar ops that are written as Python operators.
INFIX = {
    "scalar.add": "+",
    "scalar.sub": "-",
    "scalar.mul": "*",
    "scalar.truediv": "/",
    "scalar.floordiv": "//",
    "scalar.mod": "%",
    "scalar.shl": "<<",
    "scalar.shr": ">>",
    "scalar.and": "and",
    "scalar.or": "or",
    "scalar.eq": "==",
    "scalar.ne": "!=",
    "scalar.lt": "<",
    "scalar.le": "<=",
    "scalar.gt": ">",
    "scalar.ge": ">=",
}
PREFIX = {"scalar.neg": "-", "scalar.not": "not ", "scalar.invert": "~"}

# Enum classes whose `pl` name differs from their own.
ENUM_NAMES: Mapping[type[enum.Enum], str] = {FunctionKind: "FunctionType"}

GROUPING_SCOPES = {
    "manual": "pl.manual_scope",
    "cluster": "pl.cluster",
    "runtime": "pl.scope",
    "graph": "pl.graph",
}


def print_program(program: Program) -> str:
    """Print the whole program as the text of one module."""
    functions = tuple(program.functions.values())
    dims = _dim_names(functions, reserved=("pl", "pld", "self", program.name))
    has_ranks = any(fn.kind is FunctionKind.Host for fn in functions)
    lines = [HEADER, RANKS_HEADER, ""] if has_ranks else [HEADER, ""]
    lines += [f"{name} = pl.dynamic({_string(dim.name)})" for dim, name in dims.items()]
    lines += ["", "@pl.program", f"class {program.name}:"]
    for i, fn in enumerate(functions):
        lines += [""] if i else []
        lines += [f"    {line}" if line else "" for line in _function_lines(fn, dims)]
    if not functions:
        lines.append("    pass")
    return "\n".join(lines) + "\n"


def print_function(fn: Function) -> str:
    """Print one function as the text of a program method."""
    return "\n".join(_function_lines(fn, _dim_names((fn,), reserved=("pl", "self")))) + "\n"


def _function_lines(fn: Function, dims: Mapping[SymDim, str]) -> list[str]:
    return _FunctionPrinter(fn, dims).lines()


_RANKS_ENUMS = "tilelet.syntax.ranks"
"""Home of the enums of `pld`, a module above this one."""


def _decorator(kind: FunctionKind) -> str:
    if kind is FunctionKind.Host:
        return "@pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)"
    return f"@pl.function(type=pl.FunctionType.{kind.value})"


class _Names:
    """Assigns a unique Python identifier to every value."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self._taken = set(reserved)
        self._next: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        name = identifier(hint)
        if name in self._taken:
            base = re.sub(r"_\d+$", "", name)
            n = self._next.get(base, 1)
            while f"{base}_{n}" in self._taken:
                n += 1
            self._next[base] = n + 1
            name = f"{base}_{n}"
        self._taken.add(name)
        return name


def identifier(hint: str) -> str:
    """Turn `hint` into a legal Python name."""
    name = re.sub(r"\W", "_", hint, flags=re.ASCII)
    if not name.strip("_"):
        return "unused"
    if name[0].isdigit():
        return f"v{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


class _FunctionPrinter:
    """State of printing one function: the assigned names and the printed lines."""

    def __init__(self, fn: Function, dims: Mapping[SymDim, str]) -> None:
        self._fn = fn
        self._dims = dims
        self._names = _Names(("pl", "pld", "self", *dims.values()))
        self._name_of: dict[Value, str] = {}
        self._lines: list[str] = []
        self._depth = 1
        self._without_header: set[Op] = set()
        self._wrappers: list[Op] = []  # enclosing scopes that are printed without a header
        self._structural: Mapping[str, Callable[[Op], None]] = {
            "for": self._for,
            "while": self._while,
            "if": self._if,
            "scope": self._scope,
            "call": self._call,
            "undef": self._undef,
        }

    def lines(self) -> list[str]:
        fn = self._fn
        params = ", ".join(["self", *self._parameters()])
        result = self._return_annotation()
        self._body(fn.body, self._return)
        return [
            _decorator(fn.kind),
            f"def {fn.name}({params}){result}:",
            *self._lines,
        ]

    # Signature

    def _parameters(self) -> Iterator[str]:
        declared: Sequence[Direction | None] = self._fn.declared or self._fn.directions
        for param, direction in zip(self._fn.params, declared):
            text = self._type(param.type)
            if direction in (Direction.Out, Direction.InOut):
                text = f"pl.{direction.value}[{text}]"
            yield f"{self._define(param)}: {text}"

    def _return_annotation(self) -> str:
        types = [v.type for v in self._fn.returned if isinstance(v, Value)]
        if not types or len(types) != len(self._fn.returned):
            return ""
        texts = [self._type(_in_memory(t)) for t in types]
        return f" -> {texts[0]}" if len(texts) == 1 else f" -> tuple[{', '.join(texts)}]"

    def _type(self, t: Type) -> str:
        if isinstance(t, ScalarType):
            return f"pl.Scalar[{t.dtype}]"
        if isinstance(t, ArrayType):
            return f"pl.Array[{t.length}, {t.dtype}]"
        shape = ", ".join(self._dim(d) for d in t.shape)
        if isinstance(t, DistributedType):
            return f"pld.DistributedTensor[[{shape}], {t.dtype}]"
        if isinstance(t, TensorType):
            return f"pl.Tensor[[{shape}], {t.dtype}]"
        space = f", pl.Mem.{t.space.name}" if t.space else ""
        return f"pl.Tile[[{shape}], {t.dtype}{space}]"

    def _dim(self, dim: Dim) -> str:
        return self._dims[dim] if isinstance(dim, SymDim) else str(dim)

    # Names and arguments

    def _define(self, value: Value) -> str:
        name = self._names.fresh(value.name)
        self._name_of[value] = name
        return name

    def _arg(self, arg: Arg) -> str:
        if isinstance(arg, Value):
            return self._name_of[arg]
        if isinstance(arg, tuple):
            return f"[{', '.join(self._arg(a) for a in arg)}]"
        return constant_text(arg)

    def _call_text(self, op: Op, text: Callable[[Arg], str]) -> str:
        """Print the op as one expression; `text` prints an operand."""
        if op.name in INFIX:
            lhs, rhs = op.args.values()
            return f"{text(lhs)} {INFIX[op.name]} {text(rhs)}"
        if op.name in PREFIX:
            (operand,) = op.args.values()
            return f"{PREFIX[op.name]}{text(operand)}"
        if op.name == "breakpoint":
            return "breakpoint()"  # the variables are read from the text when it is parsed
        if op.name == "dump":
            values = op.args["values"]
            assert isinstance(values, tuple)
            return f"pl.dump({', '.join(map(text, values))})"
        return f"{public_name(op.spec)}({', '.join(_bound_args(op, text))})"

    # Statements

    def _emit(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    def _assign(self, results: Sequence[Value], expression: str) -> None:
        targets = ", ".join(self._define(r) for r in results)
        self._emit(f"{targets} = {expression}" if targets else expression)

    def _op(self, op: Op) -> None:
        handler = self._structural.get(op.name)
        if handler:
            handler(op)
        else:
            self._assign(op.results, self._call_text(op, self._arg))

    def _ops(self, block: Block) -> None:
        for op in block.ops[:-1]:
            self._op(op)

    def _body(self, block: Block, finish: Callable[[tuple[Arg, ...]], None]) -> None:
        """Print the ops of `block`, then what `finish` prints for the terminator's values."""
        before = len(self._lines)
        self._ops(block)
        finish(yielded_values(block))
        if len(self._lines) == before:
            self._emit("pass")

    def _print_indented(self, block: Block, finish: Callable[[tuple[Arg, ...]], None]) -> None:
        self._depth += 1
        self._body(block, finish)
        self._depth -= 1

    def _return(self, values: tuple[Arg, ...]) -> None:
        if values:
            self._emit(f"return {', '.join(self._arg(v) for v in values)}")

    def _yield_into(self, results: Sequence[Value]) -> Callable[[tuple[Arg, ...]], None]:
        def finish(values: tuple[Arg, ...]) -> None:
            if results:
                self._assign(results, f"pl.yield_({', '.join(self._arg(v) for v in values)})")

        return finish

    def _undef(self, op: Op) -> None:
        (result,) = op.results
        self._assign(op.results, f"pl.undef({self._type(result.type)})")

    # Control flow

    def _for(self, op: Op) -> None:
        view = ForView(op)
        start, stop, step = view.bounds
        bounds = (stop,) if (start, step) == (0, 1) else (start, stop, step)
        args = [self._arg(b) for b in bounds]
        if view.init:
            args.append(f"init_values={self._python_tuple(view.init)}")
        if op.args["stage"] is not None:
            args.append(f"stage={self._arg(op.args['stage'])}")
        if view.chunk is not None:
            args += [f"chunk={view.chunk}", f"chunk_policy={_string(view.policy)}"]
        target = self._define(view.index)
        if view.carried:
            target += f", {self._carried_target(view.carried)}"
        # The frontend unrolls immediately, so an unroll loop left in the IR runs like `range`.
        kind = "range" if view.kind == "unroll" else view.kind
        self._emit(f"for {target} in pl.{kind}({', '.join(args)}):")
        if view.chunk is not None:
            self._note_implied_scope(view.body)
        self._print_indented(view.body, self._yield_into(op.results))

    def _note_implied_scope(self, body: Block) -> None:
        """Print the implied scope of a chunk loop's body without a header.

        Parsing the loop creates that scope again.
        """
        scopes = [op for op in body.ops if op.name == "scope"]
        if len(scopes) == 1 and ScopeView(scopes[0]).kind == "implied":
            self._without_header.add(scopes[0])

    def _carried_target(self, carried: Sequence[Value]) -> str:
        names = [self._define(v) for v in carried]
        return f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"

    def _python_tuple(self, args: Sequence[Arg]) -> str:
        texts = [self._arg(a) for a in args]
        return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"

    def _while(self, op: Op) -> None:
        condition, body = op.blocks
        init = op.args["init"]
        assert isinstance(init, tuple)
        if not init:
            self._emit(f"while {self._condition(condition)}:")
            self._print_indented(body, self._yield_into(()))
            return
        inits = self._python_tuple(init)
        target = self._carried_target(body.params)
        self._emit(f"for {target} in pl.while_(init_values={inits}):")
        # The condition block has its own parameters; in the text they are the body's.
        for own, shown in zip(condition.params, body.params):
            self._name_of[own] = self._name_of[shown]
        self._depth += 1
        self._emit(f"pl.cond({self._condition(condition)})")
        self._body(body, self._yield_into(op.results))
        self._depth -= 1

    def _condition(self, block: Block) -> str:
        """Print the ops of a condition block as one nested expression."""
        defining = {r: op for op in block.ops for r in op.results}

        def operand(arg: Arg) -> str:
            if isinstance(arg, Value) and arg in defining:
                op = defining[arg]
                text = self._call_text(op, operand)
                return f"({text})" if op.name in INFIX or op.name in PREFIX else text
            if isinstance(arg, tuple):
                return f"[{', '.join(operand(a) for a in arg)}]"
            return self._arg(arg)

        (value,) = yielded_values(block)
        if isinstance(value, Value) and value in defining:
            return self._call_text(defining[value], operand)
        return self._arg(value)

    def _if(self, op: Op) -> None:
        then, orelse = op.blocks

        def finish(values: tuple[Arg, ...]) -> None:
            # Both arms bind the same names; sort them, since their order has no meaning.
            names = [self._name_of.get(r) or self._define(r) for r in op.results]
            pairs = sorted(zip(names, map(self._arg, values)))
            if pairs:
                targets, handed_on = (", ".join(part) for part in zip(*pairs))
                self._emit(f"{targets} = pl.yield_({handed_on})")

        self._emit(f"if {self._arg(op.args['cond'])}:")
        self._print_indented(then, finish)
        if op.results or len(orelse.ops) > 1:
            self._emit("else:")
            self._print_indented(orelse, finish)

    # Scopes

    def _scope(self, op: Op) -> None:
        view = ScopeView(op)
        finish = self._leak_into(view)
        # Printed as text, a chunked scope without chunk loops would become one task.
        if op in self._without_header or (
            view.kind == "chunked" and not _has_chunk_loop(view.body)
        ):
            self._wrappers.append(op)
            self._ops(view.body)
            finish(yielded_values(view.body))
            self._wrappers.pop()
            return
        self._emit(self._scope_header(op))
        self._depth += 1
        if view.kind == "spmd" and view.has_task_id:
            self._bind_block_index(view.body)
        self._body(view.body, finish)
        self._depth -= 1

    def _bind_block_index(self, body: Block) -> None:
        """Print `get_block_idx` if the index is used: the `with` form of spmd binds none."""
        (index,) = body.params
        if any(index in op.operands for op in walk(body)):
            self._assign((index,), "pl.get_block_idx()")

    def _leak_into(self, view: ScopeView) -> Callable[[tuple[Arg, ...]], None]:
        """Name each result after the inner value it stands for, or bind a name to that value."""
        inside = {r for op in view.body.ops for r in op.results}

        def finish(values: tuple[Arg, ...]) -> None:
            used: set[Value] = set()
            for result, value in zip(view.data_results, values):
                if isinstance(value, Value) and value in inside and value not in used:
                    used.add(value)
                    self._name_of[result] = self._name_of[value]
                else:
                    self._assign((result,), self._arg(value))

        return finish

    def _scope_header(self, op: Op) -> str:
        view = ScopeView(op)
        kind, count = view.kind, op.args["count"]
        keywords = self._scope_keywords(op)
        if kind == "spmd":
            args = ", ".join([self._arg(count), *keywords])
            if view.has_task_id:
                return f"with pl.spmd({args}) as {self._define(op.results[-1])}:"
            (index,) = view.body.params
            return f"for {self._define(index)} in pl.spmd({args}):"
        if kind in GROUPING_SCOPES:
            head = f"with {GROUPING_SCOPES[kind]}({', '.join(keywords)})"
        else:
            level = "CHIP" if kind == "chip" else "CORE_GROUP"
            head = f"with pl.at({', '.join([f'level=pl.Level.{level}', *keywords])})"
        return f"{head} as {self._define(op.results[-1])}:" if view.has_task_id else f"{head}:"

    def _scope_keywords(self, op: Op) -> list[str]:
        args = self._with_wrappers(op)
        keywords: list[str] = []
        optimizations = ["pl.auto_chunk"] if args["kind"] == "chunked" else []
        if args["split"] is not None:
            optimizations.append(f"pl.split(pl.SplitMode.{args['split']})")
        if args.get("slots") is not None:
            optimizations.append(f"pl.cross_core_slot(slot_num={args['slots']})")
        if optimizations:
            keywords.append(f"optimizations=[{', '.join(optimizations)}]")
        if args["hint"] is not None:
            keywords.append(f"name_hint={self._arg(args['hint'])}")
        if args["deps"]:
            keywords.append(f"deps={self._arg(args['deps'])}")
        if args.get("predicate"):
            keywords.append(f"predicate={self._predicate(args['predicate'])}")
        if args["no_dep"]:
            keywords.append(f"no_dep_args={self._arg(args['no_dep'])}")
        return keywords + self._pairs(args["options"])

    def _with_wrappers(self, op: Op) -> dict[str, Arg]:
        """Return the scope's arguments merged with those of enclosing scopes without a header."""
        args = dict(op.args)
        if ScopeView(op).in_core:
            for wrapper in reversed(self._wrappers):
                for name in ("hint", "split", "slots"):
                    own = args.get(name)
                    args[name] = own if own is not None else wrapper.args.get(name)
                for name in ("deps", "no_dep", "options"):
                    own, outer = args[name], wrapper.args[name]
                    assert isinstance(own, tuple)
                    assert isinstance(outer, tuple)
                    args[name] = (*own, *outer)
        return args

    # Calls of kernels

    def _call(self, op: Op) -> None:
        view = CallView(op)
        no_dep = op.args["no_dep"]
        assert isinstance(no_dep, tuple)
        operands = [
            f"pl.no_dep({self._arg(a)})" if i in no_dep else self._arg(a)
            for i, a in enumerate(view.operands)
        ]
        keywords = self._launch_keywords(op)
        if self._fn.kind is FunctionKind.Host or (not keywords and not op.args["task_id"]):
            given = [*operands, *keywords]
            self._assign(op.results, f"self.{view.callee}({', '.join(given)})")
            return
        targets = [self._define(r) for r in op.results]
        if not op.args["task_id"]:
            # A submission always returns its task id; bind it to an unused name.
            targets.append(self._names.fresh("task"))
        submit = "pl.submit" if op.args["count"] is None else "pl.spmd_submit"
        args = [f"self.{view.callee}", *operands, *keywords]
        self._emit(f"{', '.join(targets)} = {submit}({', '.join(args)})")

    def _launch_keywords(self, op: Op) -> list[str]:
        keywords: list[str] = []
        if op.args["deps"]:
            keywords.append(f"deps={self._arg(op.args['deps'])}")
        if op.args["predicate"]:
            keywords.append(f"predicate={self._predicate(op.args['predicate'])}")
        if op.args["count"] is not None:
            keywords.append(f"core_num={self._arg(op.args['count'])}")
        return keywords + self._pairs(op.args["options"])

    def _predicate(self, predicate: Arg) -> str:
        assert isinstance(predicate, tuple)
        tensor, indices, comparison, literal = predicate
        assert isinstance(indices, tuple)
        element = f"{self._arg(tensor)}[{', '.join(self._arg(i) for i in indices)}]"
        return f"({element} {comparison} {self._arg(literal)})"

    def _pairs(self, options: Arg) -> list[str]:
        """Print additional (key, value) pairs of a scope or a call as keywords."""
        assert isinstance(options, tuple)
        keywords: list[str] = []
        for pair in options:
            assert isinstance(pair, tuple)
            key, value = pair
            if key != "device" or value is not None:
                keywords.append(f"{key}={self._arg(value)}")
        return keywords


def _has_chunk_loop(block: Block) -> bool:
    return any(op.name == "for" and ForView(op).chunk is not None for op in walk(block))


def _bound_args(op: Op, text: Callable[[Arg], str]) -> Iterator[str]:
    """Print the arguments of an op: required ones by position, others by keyword unless default."""
    for param in op.spec.signature.parameters.values():
        if param.name not in op.args:
            continue
        arg = op.args[param.name]
        if param.kind is inspect.Parameter.VAR_POSITIONAL:
            assert isinstance(arg, tuple)
            yield from (text(a) for a in arg)
        elif param.default is not inspect.Parameter.empty:
            if not _is_default(arg, param.default):
                yield f"{param.name}={text(arg)}"
        elif param.kind is inspect.Parameter.KEYWORD_ONLY:
            yield f"{param.name}={text(arg)}"
        else:
            yield text(arg)


def _is_default(arg: Arg, default: object) -> bool:
    # True == 1 in Python, but they print differently.
    return type(arg) is type(default) and arg == default


def public_name(spec: OpSpec) -> str:
    """Return how `pl` code calls the op; scalar ops share the names of tensor ops (`pl.min`)."""
    if spec.name.startswith("pld."):
        return spec.name
    return f"pl.{spec.name.removeprefix('scalar.')}"


def constant_text(arg: Arg) -> str:
    """Print a constant argument as an expression that is legal in a kernel."""
    if isinstance(arg, Const):
        return f"pl.const({constant_text(arg.value)}, {arg.dtype})"
    if isinstance(arg, enum.Enum):
        language = "pld" if type(arg).__module__ == _RANKS_ENUMS else "pl"
        return f"{language}.{ENUM_NAMES.get(type(arg), type(arg).__name__)}.{arg.name}"
    if isinstance(arg, DType):
        return str(arg)
    if isinstance(arg, str):
        return _string(arg)
    if isinstance(arg, float) and not math.isfinite(arg):
        # A literal that overflows is infinity in Python, and needs no import.
        return "(1e999 - 1e999)" if math.isnan(arg) else "1e999" if arg > 0 else "-1e999"
    return repr(arg)


def _string(text: str) -> str:
    return json.dumps(text)


def _in_memory(t: Type) -> Type:
    """Return the type that a caller sees: on-chip values that leave a function are spilled."""
    return TensorType(t.shape, t.dtype) if isinstance(t, TileType) else t


def _dim_names(functions: Sequence[Function], reserved: Iterable[str]) -> dict[SymDim, str]:
    """Return every symbolic dimension in the text, with its module-level name."""
    names = _Names(reserved)
    found: dict[SymDim, str] = {}
    for fn in functions:
        mentioned = [*fn.params, *(v for v in fn.returned if isinstance(v, Value))]
        mentioned += [r for op in walk(fn.body) if op.name == "undef" for r in op.results]
        for value in mentioned:
            shape = value.type.shape if isinstance(value.type, TensorType | TileType) else ()
            for dim in shape:
                if isinstance(dim, SymDim) and dim not in found:
                    found[dim] = names.fresh(dim.name)
    return found
