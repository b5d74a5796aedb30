"""The kernels of a program as text: the class or functions with complete signatures."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.portability import CannotExport
from tilelet.export.constants import LANGUAGE, Constants, literal
from tilelet.export.expand import Expander
from tilelet.export.text import wrap_statement
from tilelet.frontend.functions import KernelFunction
from tilelet.frontend.module import Constant, SourceOrigin
from tilelet.frontend.resolve import as_kernel_function
from tilelet.ir.core import Direction, Function, FunctionKind, Program
from tilelet.ir.types import SymDim, TensorType, TileType, Type
from tilelet.passes.pipeline import run_passes

_WRAPPERS = {Direction.Out: "Out", Direction.InOut: "InOut"}


@dataclass(frozen=True)
class KernelText:
    """The parts of a script except its harness.

    constants   definitions of the sizes
    values      their values
    kernels     the class or the functions
    name        the program's name in the text
    is_jit      whether it is called with tensors instead of passed to `run`
    """

    constants: list[str]
    values: dict[str, object]
    kernels: list[str]
    name: str
    is_jit: bool


def kernel_text(program: Program, taken: Iterable[str] = (), chunks: bool = True) -> KernelText:
    """Return the text of a frontend program; names in `taken` are not available.

    chunks   whether `pl.incore` and chunked loops may stay
    """
    origin = program.origin
    if not isinstance(origin, SourceOrigin):
        raise CannotExport(program.main.loc, f"program `{program.name}`, which has no text,")
    writer = _Writer(program, origin, chunks, frozenset(taken))
    kernels = writer.class_lines() if origin.methods else writer.jit_lines()
    name = writer.free(program.name if origin.methods else origin.entry.name)
    sizes = writer.constants
    return KernelText(sizes.lines(), dict(sizes.values), kernels, name, not origin.methods)


class _Writer:
    def __init__(
        self, program: Program, origin: SourceOrigin, chunks: bool, taken: frozenset[str]
    ) -> None:
        self._program = program
        self._taken = taken
        self._final = run_passes(program)
        self._chunks = chunks
        self._origin = origin
        self.constants = Constants()
        self.constants.taken |= taken
        self._functions = [f for f in _functions(origin) if f.kind is not FunctionKind.Inline]
        self._kernels = {
            id(f): f"self.{f.name}" if f.is_method else self.free(f.name) for f in self._functions
        }
        for function in self._functions:
            self._reserve(function)

    def free(self, name: str) -> str:
        """Return the name of a kernel or class, changed if the script uses it otherwise."""
        return f"{name}_kernel" if name in self._taken else name

    def _reserve(self, function: KernelFunction) -> None:
        """Reserve the names used in kernels, so that no constant gets one of them."""
        for node in ast.walk(function.node):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.constants.taken.add(node.id)
            elif isinstance(node, ast.arg):
                self.constants.taken.add(node.arg)

    def class_lines(self) -> list[str]:
        lines = [f"@{LANGUAGE}.program", f"class {self.free(self._program.name)}:"]
        for function in self._functions:
            if not function.is_method:
                continue
            kind = f"type={LANGUAGE}.FunctionType.{function.kind.name}"
            lines += [f"    @{LANGUAGE}.function({kind})", *self._function(function, "    "), ""]
        return lines[:-1]

    def jit_lines(self) -> list[str]:
        lines: list[str] = []
        for function in reversed(self._functions):
            suffix = ".incore" if function.kind is FunctionKind.InCore else ""
            if function.kind is FunctionKind.Opaque:
                suffix = ".opaque"
            lines += [f"@{LANGUAGE}.jit{suffix}", *self._function(function, ""), "", ""]
        return lines[:-2]

    def _function(self, function: KernelFunction, indent: str) -> list[str]:
        built = self._final.functions.get(function.name)
        is_entry = function is self._origin.entry
        constants = self._origin.constants if is_entry else dict[str, Constant]()
        expander = Expander(self.constants, self._kernels, self._chunks)
        params = ["self"] if function.is_method else []
        types = _types(built, constants)
        params += [
            f"{p.arg}: {self._annotation(expander, function, p, types)}"
            for p in function.parameters
            if p.arg not in constants
        ]
        given = {name: repr(value) for name, value in constants.items()}
        result = ""
        if function.node.returns is not None and built is not None:
            result = f" -> {expander.annotation(function, function.node.returns)}"
        name = function.name if function.is_method else self.free(function.name)
        lines = [f"{indent}def {name}("]
        for param in params:
            lines += wrap_statement(f"{param},", indent + "    ")
        lines.append(f"{indent}){result}:")
        return [*lines, *expander.body_of(function, given, indent + "    ")]

    def _annotation(
        self,
        expander: Expander,
        function: KernelFunction,
        p: ast.arg,
        types: Mapping[str, tuple[Type, Direction]],
    ) -> str:
        found, direction = types.get(p.arg, (None, Direction.In))
        node = p.annotation
        if isinstance(node, ast.Subscript) and _last_name(node.value) in ("Out", "InOut"):
            node = node.slice
        if isinstance(node, ast.Subscript):
            text = expander.annotation(function, node)
        elif found is not None:
            text = self._type_text(found, function)
        else:
            raise CannotExport(function.source.loc(p), f"parameter `{p.arg}` without a type")
        wrapper = _WRAPPERS.get(direction) if isinstance(found, TensorType) else None
        return f"{LANGUAGE}.{wrapper}[{text}]" if wrapper else text

    def _type_text(self, found: Type, function: KernelFunction) -> str:
        if not isinstance(found, (TensorType, TileType)):
            return f"{LANGUAGE}.Scalar[{literal(found.dtype)}]"
        shape = [
            self.constants.text(d.name, d, function.name) if isinstance(d, SymDim) else str(d)
            for d in found.shape
        ]
        kind = "Tensor" if isinstance(found, TensorType) else "Tile"
        return f"{LANGUAGE}.{kind}[[{', '.join(map(str, shape))}], {literal(found.dtype)}]"


def _types(
    built: Function | None, constants: Mapping[str, object]
) -> dict[str, tuple[Type, Direction]]:
    if built is None:
        return {}
    return {
        value.name: (value.type, direction)
        for value, direction in zip(built.params, built.directions, strict=True)
        if value.name not in constants
    }


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _functions(origin: SourceOrigin) -> list[KernelFunction]:
    """Return the entry and the functions it calls that are not inlined."""
    found: dict[int, KernelFunction] = {}
    pending = [origin.entry, *origin.methods.values()]
    while pending:
        function = pending.pop(0)
        if id(function) in found:
            continue
        found[id(function)] = function
        captured = function.captured_names()
        for node in ast.walk(function.node):
            if isinstance(node, ast.Name) and node.id in captured:
                other = as_kernel_function(captured[node.id])
                if other is not None:
                    pending.append(other)
    return list(found.values())
