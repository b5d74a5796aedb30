"""What the text says and the program does not: stale constants, look-alikes, hidden equalities."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping

from tilelet.advice.core import Advice, Subject
from tilelet.advice.source import Edit, Source
from tilelet.diag.catalogue.advice import ExplicitScope, HiddenEquality, LookAlike, StaleConstant
from tilelet.diag.core import Loc

_MENTION = re.compile(r"\b([A-Z][A-Z0-9_]{2,})\s*(?:=|is|:|of)\s*(\d+)\b")

# Characters that look like ones of the language, and what was meant.
_LOOK_ALIKES = {
    "\u00d7": "x",
    "\u2217": "*",
    "\u2212": "-",
    "\u2013": "-",
    "\u2264": "<=",
    "\u2265": ">=",
    "\uff08": "(",
    "\uff09": ")",
    "\uff0c": ",",
    "\uff1a": ":",
}


def stale_constants(subject: Subject) -> Iterator[Advice]:
    """`BATCH_TILE=4` in a comment or docstring, where the script says 16."""
    for source in (subject.source, *subject.parts):
        yield from _stale(subject, source)


def _stale(subject: Subject, source: Source) -> Iterator[Advice]:
    values = subject.source.numbers
    for loc, start, text in _prose(source):
        for found in _MENTION.finditer(text):
            name, said = found.group(1), int(found.group(2))
            if name in values and values[name] != said:
                at = start + len(text[: found.start(2)].encode())
                edit = Edit(at, at + len(found.group(2)), str(values[name]))
                line = loc.line + text[: found.start()].count("\n")
                problem = StaleConstant(Loc(source.path, line), name, said, values[name])
                yield subject.advice(problem, [], [edit] if source is subject.source else None)


def look_alikes(subject: Subject) -> Iterator[Advice]:
    """A multiplication sign where an x is meant, and its kin, in comments and docstrings."""
    for source in (subject.source, *subject.parts):
        yield from _look_alike(subject, source)


def _look_alike(subject: Subject, source: Source) -> Iterator[Advice]:
    for loc, start, text in _prose(source):
        for place, character in enumerate(text):
            if character in _LOOK_ALIKES:
                at = start + len(text[:place].encode())
                meant = _LOOK_ALIKES[character]
                edit = Edit(at, at + len(character.encode()), meant)
                line = loc.line + text[:place].count("\n")
                problem = LookAlike(Loc(source.path, line), character, meant)
                yield subject.advice(problem, [], [edit] if source is subject.source else None)
                break  # one for each comment


def hidden_equalities(subject: Subject) -> Iterator[Advice]:
    """`kv0 // head_dim` where `kv0` steps by another constant: right only while both are equal."""
    source = subject.source
    values = source.numbers
    steps = _steps(source)
    for node in source.nodes:
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.FloorDiv):
            continue
        if not isinstance(node.left, ast.Name) or not isinstance(node.right, ast.Name):
            continue
        step, divisor = steps.get(node.left.id), node.right.id
        if step is None or step == divisor:
            continue
        if step in values and values.get(divisor) == values[step]:
            problem = HiddenEquality(source.loc(node), source.of(node), step, divisor)
            yield subject.advice(problem, [])


def explicit_scopes(subject: Subject) -> Iterator[Advice]:
    """`pl.incore` nearly everywhere: one finding for the whole script."""
    explicit: list[tuple[Source, ast.With]] = []
    automatic = 0
    for source in (subject.source, *subject.parts):
        for scope in source.scopes:
            header = source.of(scope.items[0].context_expr)
            if "auto_incore" in header or "auto_chunk" in header:
                automatic += 1
            elif source.call_of(scope.items[0].context_expr) == "incore":
                explicit.append((source, scope))
    if len(explicit) > max(2, automatic):
        source, scope = explicit[0]
        yield subject.advice(ExplicitScope(source.loc(scope), len(explicit), automatic), [])


def _steps(source: Source) -> Mapping[str, str]:
    """Names that are multiples of a constant: `kv0 = kb * KV_CHUNK`, or a loop in such steps."""
    found: dict[str, str] = {}
    for node in source.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Name) and isinstance(value.op, ast.Mult):
                for side in (value.left, value.right):
                    if isinstance(side, ast.Name) and side.id.isupper():
                        found[target.id] = side.id
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            arguments = node.iter.args
            if len(arguments) == 3 and isinstance(arguments[2], ast.Name):
                found[source.of(node.target)] = arguments[2].id
    return found


def _prose(source: Source) -> Iterator[tuple[Loc, int, str]]:
    """Comments and docstrings with their places, and the bytes they start at."""
    starts = [0]
    for line in source.text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = source.text.splitlines(keepends=True)
    docstrings = {
        node.body[0].lineno
        for node in source.nodes
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
        and isinstance(node.body[0].value.value, str)
    }
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        is_docstring = token.type == tokenize.STRING and token.start[0] in docstrings
        if token.type == tokenize.COMMENT or is_docstring:
            row, column = token.start
            before = lines[row - 1][:column].encode()
            yield Loc(source.path, row, len(before)), starts[row - 1] + len(before), token.string
