"""The same program in other words: spellings of earlier revisions, and arguments by name.

Whatever is written here means what it replaces, so that the program's IR stays the same.
"""

from __future__ import annotations

import ast
import re

import numpy as np

import tilelet.ops  # noqa: F401 - the registry is filled by it
from tilelet.ir.spec import REGISTRY, OpSpec
from tilelet.ops.spellings import parameter_of_keyword

_CORE_GROUP = "pl.at(level=pl.Level.CORE_GROUP)"
_SPLIT = "optimizations=[pl.split("
# Former names of parameters, whichever of them an op has.
_NAMES = (
    "data", "dst", "dtype", "executed", "indexes", "indices", "input", "lhs", "offset",
    "output_tensor", "rhs", "src", "src0", "src1", "tensor", "tile", "value", "valid_cols",
    "valid_rows",
)  # fmt: skip
# A scope or a loop is an op of the IR, but not one that a text calls.
_OPS = {name: spec for name, spec in REGISTRY.items() if not spec.structural}
# Namespaces that once had all ops.
_PLACES = ("pl.op", "pl.tensor", "pl.op.tensor")
_RENAMED = {
    "slice": ("pl.view", "pl.tensor.view", "pl.op.tensor.view"),
    "reshape": ("pl.view", "pl.tensor.view"),
    "create_tensor": ("pl.tensor.create", "pl.op.tensor.create"),
    "cast": ("pl.tensor.cast", "pl.tile.cast"),
}


def respelt(text: str, seed: int) -> str:
    """Return `text` with some statements and calls spelled differently."""
    parsed = ast.parse(text)
    tree = _Respelling(np.random.default_rng(seed), _jit_functions(parsed)).visit(parsed)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _jit_functions(tree: ast.Module) -> dict[str, list[str]]:
    """Return the parameter names of functions whose arguments may be given by name."""
    functions = [s for s in tree.body if isinstance(s, ast.FunctionDef)]
    return {
        f.name: [p.arg for p in f.args.args]
        for f in functions
        if re.search(r"pl\.(jit|inline)", ast.unparse(f.decorator_list[0]))
    }


class _Respelling(ast.NodeTransformer):
    def __init__(self, rng: np.random.Generator, functions: dict[str, list[str]]) -> None:
        self.rng = rng
        self.functions = functions
        self.by_position: dict[str, int] = {}  # of functions with keyword-only parameters
        self.defaults: dict[str, ast.Constant] = {}  # what their parameter `given` is

    def chance(self, percent: int) -> bool:
        return bool(self.rng.integers(100) < percent)

    def one_of(self, options: tuple[str, ...]) -> str:
        return options[int(self.rng.integers(len(options)))]

    # --- calls -----------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in self.functions:
            most = self.by_position.get(node.func.id, len(node.args))
            kept = int(self.rng.integers(most + 1))
            names = self.functions[node.func.id][kept:]
            node.keywords = [ast.keyword(n, a) for n, a in zip(names, node.args[kept:])]
            del node.args[kept:]
            if node.func.id in self.defaults and self.chance(50):
                node.keywords.append(ast.keyword("given", self.defaults[node.func.id]))
        name = _of_language(node.func)
        if name == "load" and self.chance(30):
            self._by_numbers(node)
        elif name in _OPS and self.chance(40):
            self._by_name(node, _OPS[name])
        if name in _OPS and self.chance(30):
            self._elsewhere(node, name)
        if name in ("range", "parallel", "pipeline", "unroll"):
            self._bounds(node)
        return node

    def _by_numbers(self, node: ast.Call) -> None:
        """Return a window given by offsets and sizes without lists."""
        lists = node.args[1:3]
        if all(isinstance(part, ast.List) and len(part.elts) == 2 for part in lists):
            node.args[1:3] = [n for part in lists for n in part.elts]  # type: ignore[attr-defined]

    def _by_name(self, node: ast.Call, spec: OpSpec) -> None:
        """Pass the last arguments by name, each by one of the names it has had."""
        params = list(spec.signature.parameters.values())[: len(node.args)]
        if any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in params):
            return
        kept = int(self.rng.integers(len(node.args) + 1))
        named: list[ast.keyword] = []
        for p, value in zip(params[kept:], node.args[kept:]):
            others = tuple(n for n in _NAMES if parameter_of_keyword(spec, n) == p.name)
            named.append(ast.keyword(self.one_of((p.name, *others)), value))
        node.keywords = [*named, *node.keywords]  # evaluated in the same order
        del node.args[kept:]

    def _elsewhere(self, node: ast.Call, name: str) -> None:
        places = _RENAMED.get(name) or tuple(f"{place}.{name}" for place in _PLACES)
        place = self.one_of(places)
        node.func = _parsed(place)
        if name == "reshape" and place == "pl.tensor.view" and self.chance(30):
            node.keywords.append(ast.keyword("layout", _parsed("pl.ND")))

    def _bounds(self, node: ast.Call) -> None:
        """Write bounds that could be omitted, and carried values in a list."""
        if len(node.args) == 1 and self.chance(30):
            node.args.insert(0, ast.Constant(0))
        if len(node.args) == 2 and self.chance(30):
            node.args.append(ast.Constant(1))
        for keyword in node.keywords:
            if keyword.arg == "init_values" and self.chance(30):
                assert isinstance(keyword.value, ast.Tuple)
                keyword.value = ast.List(keyword.value.elts)

    # --- functions -------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        decorator = ast.unparse(node.decorator_list[0])
        if "inline" in decorator and self.chance(50):
            kept = int(self.rng.integers(len(node.args.args)))
            node.args.kwonlyargs = node.args.args[kept:]
            node.args.kw_defaults = [None] * len(node.args.kwonlyargs)
            del node.args.args[kept:]
            self.by_position[node.name] = kept
        if "inline" in decorator and self.chance(50):
            self._number_as_default(node)
        if re.search("InCore|incore", decorator):
            self._column_major(node)
        self.generic_visit(node)
        return node

    def _number_as_default(self, node: ast.FunctionDef) -> None:
        """Turn a number in the text into a parameter with that default. Helpers precede their
        callers.
        """
        numbers = [
            n
            for statement in node.body
            for n in ast.walk(statement)
            if isinstance(n, ast.Constant) and type(n.value) in (int, float)
        ]
        if not numbers:
            return
        chosen = numbers[int(self.rng.integers(len(numbers)))]
        self.defaults[node.name] = ast.Constant(chosen.value)
        self.by_position.setdefault(node.name, len(node.args.args))
        node.args.kwonlyargs.append(ast.arg("given"))
        node.args.kw_defaults.append(ast.Constant(chosen.value))
        node.body = [_Named(chosen, "given").visit(statement) for statement in node.body]

    def _column_major(self, node: ast.FunctionDef) -> None:
        """Declare tensors `pl.DN` where that means the same."""
        for part in (*(p.annotation for p in node.args.args), node.returns):
            for inner in ast.walk(part) if part is not None else ():
                if isinstance(inner, ast.Tuple) and self.chance(30):  # shape and type
                    inner.elts.append(_parsed("pl.DN"))

    # --- statements ------------------------------------------------------------------------------

    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        item = node.items[0]
        text = ast.unparse(item.context_expr)
        if self.chance(50):
            if text == _CORE_GROUP:
                item.context_expr = _parsed("pl.incore()")
            elif text == "pl.incore()":
                item.context_expr = _parsed(_CORE_GROUP)
            elif _SPLIT in text:
                item.context_expr = _parsed(text.replace(_SPLIT, "split=").replace(")])", ")"))
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        target, value = node.targets[0], node.value
        if not isinstance(target, ast.Name):
            return node
        if isinstance(value, ast.Call) and _of_language(value.func) == "yield_":
            node.targets = [ast.Tuple([target])] if self.chance(50) else node.targets
        elif isinstance(value, ast.BinOp) and self.chance(50):
            left = value.left
            if isinstance(left, ast.Name) and left.id == target.id:
                return ast.AugAssign(target, value.op, value.right)
        return node


class _Named(ast.NodeTransformer):
    """A name in place of a number."""

    def __init__(self, number: ast.Constant, name: str) -> None:
        self.number = number
        self.name = name

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Name(self.name) if node is self.number else node


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _of_language(func: ast.expr) -> str:
    """Return `add` of `pl.add`, and nothing of any other callee."""
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        return func.attr if func.value.id == "pl" else ""
    return ""
