"""Edits of what has no op: assignments of numbers and names, and assignments that are missing.

`col = 0` and `m = m_new` define a value for several statements, and a variable that a loop does not
assign is not carried by it. The definition of the control program is changed in place, lowered
again, and restored.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from tilelet.diag.core import Loc
from tilelet.divergence.case import Source
from tilelet.divergence.edits import Edit, is_float_tile
from tilelet.divergence.source_text import assigned_names, loc_of
from tilelet.ir.core import Op, Program, Value, walk
from tilelet.ir.types import ScalarType, Type

_MAX_NAMES = 10
_MAX_NUMBERS = 8


class SourceEdits:
    """Yields the edits of a definition whose statements have no op."""

    def __init__(
        self, source: Source, program: Program, integers: Sequence[int], numbers: Sequence[float]
    ) -> None:
        """`integers` and `numbers` are likely constants."""
        self._source = source
        self._integers, self._numbers = integers[:_MAX_NUMBERS], numbers[:_MAX_NUMBERS]
        self._ops: dict[int, Op] = {}
        self._types: dict[str, set[Type]] = {}
        for function in program.functions.values():
            for param in function.params:
                self._enter(param)
            for op in walk(function.body):
                if op.loc.file == source.file and not op.spec.terminator:
                    self._ops.setdefault(op.loc.line, op)
                for value in (*op.results, *(p for block in op.blocks for p in block.params)):
                    self._enter(value)
        self._enter_second_names(source.definition)

    def _enter_second_names(self, definition: ast.FunctionDef) -> None:
        """Enter the names that assignments such as `m = new` give to values of other names."""
        renamings = [
            n
            for n in ast.walk(definition)
            if isinstance(n, ast.Assign) and isinstance(n.value, ast.Name)
        ]
        for statement in sorted(renamings, key=lambda n: n.lineno):
            assert isinstance(statement.value, ast.Name)
            for name in assigned_names(statement):
                types = self._types.get(statement.value.id, ())
                self._types.setdefault(name, set()).update(types)

    def _enter(self, value: Value) -> None:
        self._types.setdefault(value.name, set()).add(value.type)

    def edits(self) -> Iterator[Edit]:
        definition = self._source.definition
        names = [arg.arg for arg in definition.args.args]
        yield from self._of_block(definition.body, names)

    def _of_block(self, body: list[ast.stmt], known: Sequence[str]) -> Iterator[Edit]:
        names = list(known)
        for statement in body:
            if isinstance(statement, ast.Assign):
                if statement.lineno not in self._ops and not _calls(statement.value):
                    yield from self._assignment(statement, names)
                names += assigned_names(statement)
            elif isinstance(statement, ast.For | ast.While):
                target = statement.target if isinstance(statement, ast.For) else None
                inner = [*names, target.id] if isinstance(target, ast.Name) else names
                yield from self._of_block(statement.body, inner)
                yield from self._missing(statement, names)
                names += [n for s in statement.body for n in _assigned_in(s)]
            else:
                inner_body: list[ast.stmt] = getattr(statement, "body", [])
                yield from self._of_block(inner_body, names)
                yield from self._of_block(getattr(statement, "orelse", []), names)
                names += [n for s in inner_body for n in _assigned_in(s)]

    # Assignments without an op

    def _assignment(self, statement: ast.Assign, names: Sequence[str]) -> Iterator[Edit]:
        """Assign another number or variable."""
        old = statement.value
        (target, *more) = assigned_names(statement) or [""]
        if not target or more:
            return
        types = self._types.get(old.id, set()) if isinstance(old, ast.Name) else set[Type]()
        for new in self._values(old, target, types, _nearest(names)):
            text = ast.unparse(new)
            if text != ast.unparse(old):
                what = f"`{text}` instead of `{ast.unparse(old)}`"
                kind = "carried value" if types else "index"
                yield self._edit(statement, kind, what, ast.unparse(old), text, new)

    def _values(
        self, old: ast.expr, target: str, types: Collection[Type], names: Sequence[str]
    ) -> Iterator[ast.expr]:
        if any(not isinstance(t, ScalarType) for t in types):
            yield from (_name(n) for n in self._alike(names, types))
            if target in names and any(is_float_tile(Value("", t)) for t in types):
                for op in ("add", "maximum", "mul"):
                    yield _parse(f"pl.{op}({target}, {ast.unparse(old)})")
        elif isinstance(old, ast.Constant) and isinstance(old.value, float):
            yield from (_parse(repr(n)) for n in self._numbers)
        elif not isinstance(old, ast.Constant) or type(old.value) is int:
            for n in (n for n in names if self._is_index(n)):
                yield _name(n)
                yield from (_parse(f"{n} * {by}") for by in self._integers)
            yield from (_parse(str(n)) for n in dict.fromkeys((0, 1, *self._integers)))

    def _alike(self, names: Sequence[str], types: Collection[Type]) -> Iterator[str]:
        yield from (n for n in names if self._types.get(n, set()).intersection(types))

    def _is_index(self, name: str) -> bool:
        types = self._types.get(name, ())
        return any(isinstance(t, ScalarType) and not t.dtype.is_float for t in types)

    # Missing assignments

    def _missing(self, loop: ast.For | ast.While, before: Sequence[str]) -> Iterator[Edit]:
        """Assign what a loop computes to a variable that the loop reads and does not assign."""
        made = list(dict.fromkeys(n for s in loop.body for n in _assigned_in(s)))
        read = {n.id for s in loop.body for n in ast.walk(s) if isinstance(n, ast.Name)}
        for old in dict.fromkeys(before):
            types = self._types.get(old, set())
            if old not in read or old in made or not types:
                continue
            for new in self._alike(made, types):
                text = f"{old} = {new}"
                yield self._edit(
                    loop.body[-1], "missing assignment", f"`{text}` after it", "", "", None, text
                )

    def _edit(
        self,
        statement: ast.stmt,
        kind: str,
        what: str,
        old: str,
        new: str,
        value: ast.expr | None,
        after: str = "",
    ) -> Edit:
        """Return the edit that gives an assignment another value, or puts another one after it."""

        def lowered() -> Program:
            definition = self._source.definition
            if value is not None:
                assert isinstance(statement, ast.Assign)
                before, statement.value = statement.value, ast.copy_location(value, statement)
                try:
                    return self._source.lower(ast.fix_missing_locations(definition))
                finally:
                    statement.value = before
            (added,) = ast.parse(after).body
            body = next(b for b in _bodies(definition) if statement in b)
            body.append(ast.copy_location(added, statement))
            try:
                return self._source.lower(ast.fix_missing_locations(definition))
            finally:
                body.pop()

        loc = loc_of(self._source.file, statement)
        return Edit(self._op_at(loc), kind, what, (), None, 2, old, new, place=loc, lowered=lowered)

    def _op_at(self, loc: Loc) -> Op:
        """Return the op nearest to a statement."""
        return self._ops[min(self._ops, key=lambda line: abs(line - loc.line))]


def _calls(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Call | ast.Subscript | ast.Attribute) for n in ast.walk(node))


def _assigned_in(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign):
            yield from assigned_names(node)


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for inner in ast.walk(node):
        for part in ("body", "orelse"):
            found = getattr(inner, part, None)
            if isinstance(found, list):
                yield found


def _nearest(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(reversed(names)))[:_MAX_NAMES]


def _name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
