"""The parsed text of a script, and queries that rules ask about it."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeGuard, cast

from tilelet.diag.core import Loc
from tilelet.diag.editing import Edit, SourceText

Body = list[ast.stmt]

# Scopes that are one task.
_SCOPES = ("at", "incore", "auto_incore")


_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.FloorDiv: int.__floordiv__,
    ast.Mod: int.__mod__,
}


class Source(SourceText):
    """A parsed script."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(text)
        self.path = path
        self.tree = ast.parse(text)
        self._inside: dict[ast.AST, list[ast.AST]] = {}

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes, outer ones first."""
        return list(ast.walk(self.tree))

    def inside(self, node: ast.AST) -> list[ast.AST]:
        """Return a node and all nodes inside, outer ones first."""
        found = self._inside.get(node)
        if found is None:
            found = self._inside[node] = list(ast.walk(node))
        return found

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the ancestors of a node, innermost first."""
        above = self._above.get(node)
        while above is not None:
            yield above
            above = self._above.get(above)

    @cached_property
    def _above(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def language(self) -> str:
        """The script's name for the language, normally `pl`."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for name in node.names:
                    if name.name.endswith(".language") and name.asname:
                        return name.asname
            elif isinstance(node, ast.ImportFrom):
                for name in node.names:
                    if name.name == "language":
                        return name.asname or name.name
        return "pl"

    def names(self, name: str) -> list[ast.Name]:
        """Return occurrences of a name in kernels; goldens may use it for something else."""
        return self._names.get(name, [])

    @cached_property
    def _names(self) -> dict[str, list[ast.Name]]:
        found: dict[str, list[ast.Name]] = {}
        kernels = {f for s in self.scopes for f in self.around(s) if isinstance(f, ast.FunctionDef)}
        for function in sorted(kernels, key=lambda f: f.lineno):
            for node in ast.walk(function):
                if isinstance(node, ast.Name):
                    found.setdefault(node.id, []).append(node)
        return found

    # Places

    def loc(self, node: ast.expr | ast.stmt) -> Loc:
        return Loc(
            self.path,
            node.lineno,
            node.col_offset,
            node.end_lineno or node.lineno,
            node.end_col_offset or 0,
        )

    # Statements

    def bodies(self) -> list[Body]:
        """Return every statement list of the script, outer ones first."""
        return self._bodies

    @cached_property
    def _bodies(self) -> list[Body]:
        found: list[Body] = []
        for node in self.nodes:
            for name in ("body", "orelse"):
                body = getattr(node, name, None)
                if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                    found.append(cast("Body", body))
        return found

    def call_of(self, node: ast.AST | None) -> str | None:
        """Return `matmul` for a call of `pl.matmul`; None for other nodes."""
        if not isinstance(node, ast.Call):
            return None
        parts: list[str] = []
        function = node.func
        while isinstance(function, ast.Attribute):
            parts.append(function.attr)
            function = function.value
        if isinstance(function, ast.Name) and function.id == self.language and parts:
            return ".".join(reversed(parts))
        return None

    def slices(self) -> list[ast.Call]:
        """Return calls of `pl.slice` with a shape and offsets."""
        calls = [n for n in self.nodes if isinstance(n, ast.Call)]
        return [n for n in calls if self.call_of(n) == "slice" and len(n.args) >= 3]

    def stores(self, name: str) -> list[ast.Call]:
        """Return calls of `pl.assemble` into a name."""
        calls = [n for n in self.nodes if isinstance(n, ast.Call)]
        stores = [n for n in calls if self.call_of(n) == "assemble" and len(n.args) == 3]
        return [n for n in stores if self.of(n.args[0]) == name]

    def uses(self, name: str) -> list[ast.Name]:
        return [n for n in self.names(name) if isinstance(n.ctx, ast.Load)]

    def is_scope(self, node: ast.stmt) -> bool:
        """Whether a statement is `with pl.at(...)` or an older spelling of it."""
        if not isinstance(node, ast.With) or len(node.items) != 1:
            return False
        item = node.items[0]
        return item.optional_vars is None and self.call_of(item.context_expr) in _SCOPES

    def scope_lines(self, statement: ast.stmt) -> tuple[int, int]:
        """Return the lines of the innermost scope around a statement, or its own."""
        best = statement.lineno, statement.end_lineno or 0
        for node in self.scopes:
            if node.lineno <= statement.lineno <= (node.end_lineno or 0):
                best = node.lineno, node.end_lineno or 0
        return best

    def is_in_scope(self, node: ast.stmt) -> bool:
        """Whether a statement is inside a scope, so that a task executes it."""
        return any(
            n is not node and n.lineno <= node.lineno <= (n.end_lineno or 0) for n in self.scopes
        )

    @cached_property
    def scopes(self) -> list[ast.With]:
        """All scopes, outer ones first."""
        found = [n for n in self.nodes if isinstance(n, ast.With)]
        return [n for n in found if self.is_scope(n)]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Integer constants at module level; a name that is assigned twice is not constant."""
        found: dict[str, int] = {}
        seen: set[str] = set()
        twice: set[str] = set()
        for node in self.tree.body:
            if not isinstance(node, ast.Assign):
                continue
            twice |= seen & names_bound(node)
            seen |= names_bound(node)
            for name, value in _assigned_values(node):
                number = number_of(value, found)
                if number is not None:
                    found[name] = number
        return {name: value for name, value in found.items() if name not in twice}

    @cached_property
    def known_numbers(self) -> dict[str, int]:
        """`numbers`, and parameter defaults and constants of functions that build programs.

        Ambiguous names are left out.
        """
        found: dict[str, set[int | None]] = {name: {n} for name, n in self.numbers.items()}
        known = dict(self.numbers)

        def add(name: str, value: ast.expr) -> None:
            number = number_of(value, known)
            found.setdefault(name, set()).add(number)
            if number is not None:
                known[name] = number

        for node in self.nodes:
            if isinstance(node, ast.FunctionDef):
                arguments = node.args.args[len(node.args.args) - len(node.args.defaults) :]
                for argument, default in zip(arguments, node.args.defaults):
                    add(argument.arg, default)
                for statement in node.body:
                    for name, value in _assigned_values(statement) if _is_assign(statement) else ():
                        add(name, value)
        return {
            name: value
            for name, values in found.items()
            if len(values) == 1 and (value := next(iter(values))) is not None
        }

    def number(self, node: ast.expr) -> int | None:
        """Return the value of an extent that is a literal or a constant of the script."""
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        return self.numbers.get(node.id) if isinstance(node, ast.Name) else None

    @cached_property
    def tensors(self) -> set[str]:
        """Names of parameters, and of tensors created outside scopes."""
        functions = [n for n in self.nodes if isinstance(n, ast.FunctionDef)]
        found = {a.arg for f in functions for a in f.args.args}
        for node in self.nodes:
            if isinstance(node, ast.Assign) and self.call_of(node.value) == "create_tensor":
                found |= names_bound(node)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
                found |= names_bound(node) if node.value.id in found else set()
        return found

    @cached_property
    def dims(self) -> dict[str, tuple[str, ...]]:
        """Extents of tensors as text, for names with one shape."""
        return {name: shape for name, (shape, _) in self._types.items()}

    @cached_property
    def dtypes(self) -> dict[str, str]:
        """Element types of tensors as text."""
        return {name: dtype for name, (_, dtype) in self._types.items() if dtype}

    @cached_property
    def _types(self) -> dict[str, tuple[tuple[str, ...], str]]:
        """Shape and element type of parameters, and of tensors created outside scopes."""
        found: dict[str, set[tuple[tuple[str, ...], str]]] = {}
        for node in self.nodes:
            if isinstance(node, ast.arg) and node.annotation is not None:
                known = self._annotated(node.annotation)
                if known is not None:
                    found.setdefault(node.arg, set()).add(known)
            elif isinstance(node, ast.Assign) and self.call_of(node.value) == "create_tensor":
                assert isinstance(node.value, ast.Call)
                arguments = {k.arg: k.value for k in node.value.keywords}
                shape = node.value.args[0] if node.value.args else arguments.get("shape")
                dtype = node.value.args[1] if len(node.value.args) > 1 else arguments.get("dtype")
                for name in names_bound(node) if isinstance(shape, (ast.List, ast.Tuple)) else ():
                    assert isinstance(shape, (ast.List, ast.Tuple))
                    extents = tuple(ast.unparse(e) for e in shape.elts)
                    made = (extents, ast.unparse(dtype) if dtype else "")
                    found.setdefault(name, set()).add(made)
        return {name: known.pop() for name, known in found.items() if len(known) == 1}

    def _annotated(self, node: ast.expr) -> tuple[tuple[str, ...], str] | None:
        """Return shape and element type of an annotation: `pl.Out[pl.Tensor[[16], pl.FP32]]`."""
        for inner in ast.walk(node):
            is_list = isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Tuple)
            if is_list and isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Tuple):
                shape, *rest = inner.slice.elts
                if isinstance(shape, ast.List) and rest:
                    return tuple(ast.unparse(e) for e in shape.elts), ast.unparse(rest[0])
        return None

    @cached_property
    def constants(self) -> set[str]:
        """Names bound at module level and in no function."""
        functions = [n for n in self.nodes if isinstance(n, ast.FunctionDef)]
        inside = set[str]().union(*(names_bound(f.body) for f in functions))
        inside |= {a.arg for f in functions for a in f.args.args}
        tops = [n for n in self.tree.body if isinstance(n, (ast.Assign, ast.AnnAssign))]
        return names_bound(tops) - inside

    def loop(self, node: ast.stmt) -> str | None:
        """Return `range` for `for i in pl.range(...)`."""
        return self.call_of(node.iter) if isinstance(node, ast.For) else None

    # Changing

    def substituted(self, node: ast.expr | ast.stmt, texts: Mapping[str, str]) -> str:
        """Return the text of a node with other texts in place of the names that it reads."""
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in texts]
        return self.edited([self.replace(n, texts[n.id]) for n in names], *self.span(node))

    def edited_lines(self, first: int, last: int, edits: Iterable[Edit]) -> str:
        """Return whole lines after edits inside them."""
        return self.edited(edits, self.line_starts[first - 1], self.line_starts[last])

    def replace_lines(self, first: int, last: int, text: str) -> Edit:
        return Edit(self.line_starts[first - 1], self.line_starts[last], text)

    def remove(self, node: ast.stmt) -> Edit:
        """Remove a statement and the comment lines just above it."""
        first = node.lineno
        while first > 1 and self.lines(first - 1, first - 1).lstrip().startswith("#"):
            first -= 1
        return self.replace_lines(first, node.end_lineno or node.lineno, "")

    def indented(self, first: int, last: int, by: int) -> str:
        """Return lines indented by `by` columns, or dedented if it is negative."""
        text = self.lines(first, last)
        if by >= 0:
            return textwrap.indent(text, " " * by)
        return "".join(
            line[-by:] if not line[:-by].strip() else line
            for line in text.splitlines(keepends=True)
        )


def names_read(nodes: ast.AST | Sequence[ast.AST]) -> set[str]:
    """Return names that are read."""
    return _names(nodes, ast.Load)


def names_bound(nodes: ast.AST | Sequence[ast.AST]) -> set[str]:
    """Return names that are bound; assigning to a subscript binds its name."""
    found = _names(nodes, ast.Store)
    for node in _walk(nodes):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found |= names_read(node.value)
    return found


def _names(nodes: ast.AST | Sequence[ast.AST], context: type[ast.expr_context]) -> set[str]:
    return {n.id for n in _walk(nodes) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def _walk(nodes: ast.AST | Sequence[ast.AST]) -> Iterator[ast.AST]:
    for node in [nodes] if isinstance(nodes, ast.AST) else nodes:
        yield from ast.walk(node)


def names_needed(body: Sequence[ast.stmt]) -> set[str]:
    """Return names that statements read before binding them."""
    needed: set[str] = set()
    bound: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.For):
            bound |= names_bound(statement.target)
        inner = names_bound(statement) if isinstance(statement, (ast.For, ast.With)) else set[str]()
        first = {n for n in names_read(statement) if n not in bound}
        # A loop may bind a name before its use: names bound inside count only if read first.
        needed |= first - inner
        needed |= {n for n in first & inner if _is_read_first(statement, n)}
        bound |= names_bound(statement)
    return needed


def _is_read_first(statement: ast.stmt, name: str) -> bool:
    """Whether a statement reads a name before binding it."""
    uses = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == name]
    uses.sort(key=lambda n: (n.lineno, isinstance(n.ctx, ast.Store), n.col_offset))
    return bool(uses) and isinstance(uses[0].ctx, ast.Load)


def _is_assign(node: ast.stmt) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign)


def _assigned_values(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Yield names with their values for `A = 1` and `A, B = 1, 2`."""
    target = node.targets[0]
    if isinstance(target, ast.Name):
        yield target.id, node.value
    elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        for name, value in zip(target.elts, node.value.elts):
            if isinstance(name, ast.Name):
                yield name.id, value


def number_of(node: ast.expr, values: Mapping[str, int]) -> int | None:
    """Evaluate integer arithmetic; None for other expressions."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return values.get(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = number_of(node.left, values), number_of(node.right, values)
        is_division = isinstance(node.op, (ast.FloorDiv, ast.Mod))
        if left is None or right is None or (is_division and not right):
            return None
        return _ARITHMETIC[type(node.op)](left, right)
    return None
