"""Knobs of a program: numbers in the text of a script, sizes of a shipped program."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeAlias

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.command import FileMissing, NotAScript
from tilelet.diag.core import Loc
from tilelet.diag.editing import Edit, SourceText
from tilelet.diag.files import read_script
from tilelet.scripts.target import Target

Setting: TypeAlias = int | str
"""An integer, or source text for enumerations such as split modes."""

Settings: TypeAlias = Mapping[str, Setting]

# Arguments that affect the layout of a loop or scope, not its results.
_LAYOUT_NUMBERS = ("chunk", "stage", "unroll")
_SPLIT_MODES = ("NONE", "UP_DOWN", "LEFT_RIGHT")


@dataclass(frozen=True)
class Knob:
    """One number that can be varied.

    name    `K_CHUNK`, `build_program.k_chunk` (a default), `chunk@88` (an argument in that line)
    value   the present value
    loc     its location; None for a size of a shipped program
    span    its byte range in the script
    others  other possible values of an enumeration; values of numbers depend on sizes
    """

    name: str
    value: Setting
    loc: Loc | None = None
    span: tuple[int, int] = (0, 0)
    others: tuple[Setting, ...] = ()


class TunableProgram(Protocol):
    """A program with knobs."""

    target: Target

    @property
    def knobs(self) -> Sequence[Knob]: ...

    def varied(self, settings: Settings) -> Target:
        """Return the program with other values."""
        ...


def subject_of(target: Target) -> TunableProgram:
    """Return the program of `target` with its knobs."""
    return ShippedProgram(target) if target.is_model else ScriptText(target)


class ScriptText:
    """A script, whose knobs are literals in its text."""

    def __init__(self, target: Target) -> None:
        self.target = target
        if target.text is None:
            self.target = dataclasses.replace(target, text=_read(target.name))
        self._source = SourceText(self.target.text or "")

    @property
    def knobs(self) -> Sequence[Knob]:
        return self._knobs

    @cached_property
    def _knobs(self) -> list[Knob]:
        tree = ast.parse(self._source.data)
        found = [*_constants(tree), *_defaults(tree), *_layout_arguments(tree)]
        return [self._knob(name, node) for name, node in _distinct(found)]

    def varied(self, settings: Settings) -> Target:
        spans = {knob.name: knob.span for knob in self.knobs}
        edits = [Edit(*spans[name], str(value)) for name, value in settings.items()]
        return dataclasses.replace(self.target, text=self._source.edited(edits))

    def _knob(self, name: str, node: ast.expr) -> Knob:
        span, text = self._source.span(node), self._source.of(node)
        loc = Loc(str(Path(self.target.name).absolute()), node.lineno, node.col_offset + 1)
        if isinstance(node, ast.Attribute):
            owner = text.rpartition(".")[0]
            others = tuple(f"{owner}.{mode}" for mode in _SPLIT_MODES if mode != node.attr)
            return Knob(name, text, loc, span, others)
        return Knob(name, int(text, 0), loc, span)


def _read(path: str) -> str:
    try:
        return read_script(Path(path))
    except FileNotFoundError:
        raise FileMissing(path) from None
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        raise NotAScript(path, str(error)) from None


def _is_number(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value > 0


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield module constants such as `K_CHUNK = 128`; names assigned twice are not constant."""
    found: list[tuple[str, ast.expr]] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name):
            found.append((target.id, value))
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = zip(target.elts, value.elts)
            found += [(name.id, v) for name, v in pairs if isinstance(name, ast.Name)]
    names = [name for name, _ in found]
    yield from ((n, v) for n, v in found if _is_number(v) and names.count(n) == 1)


def _defaults(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield parameter defaults of the script's functions."""
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        arguments = function.args
        positional = [*arguments.posonlyargs, *arguments.args]
        given = positional[len(positional) - len(arguments.defaults) :]
        for parameter, default in [
            *zip(given, arguments.defaults),
            *zip(arguments.kwonlyargs, arguments.kw_defaults),
        ]:
            if default is not None and _is_number(default):
                yield f"{function.name}.{parameter.arg}", default


def _layout_arguments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield layout arguments: `chunk=4`, `stage=2`, `pl.SplitMode.UP_DOWN`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in _LAYOUT_NUMBERS and _is_number(keyword.value):
                    yield f"{keyword.arg}@{keyword.value.lineno}", keyword.value
        elif isinstance(node, ast.Attribute) and node.attr in _SPLIT_MODES:
            owner = node.value
            if isinstance(owner, ast.Attribute) and owner.attr == "SplitMode":
                yield f"split@{node.lineno}", node


def _distinct(found: Sequence[tuple[str, ast.expr]]) -> Iterator[tuple[str, ast.expr]]:
    """Distinguish arguments on one line by their columns."""
    names = [name for name, _ in found]
    for name, node in found:
        yield (f"{name}:{node.col_offset + 1}" if names.count(name) > 1 else name), node


class ShippedProgram:
    """A shipped program, whose knobs are the size options of its script."""

    def __init__(self, target: Target) -> None:
        self.target = target

    @property
    def knobs(self) -> Sequence[Knob]:
        return self._knobs

    @cached_property
    def _knobs(self) -> list[Knob]:
        from tilelet.models import registry

        try:
            model, variant = registry.resolve(self.target.name)
        except registry.UnknownModelError as error:
            raise FileMissing(self.target.name, error.known) from None
        shape = model.shape_for(variant)
        sizes = {f.name: getattr(shape, f.name) for f in dataclasses.fields(shape)}
        found: list[Knob] = []
        for name, value in sizes.items():
            given = self.target.argument_of(_option(name))
            if given is not None and given.isdecimal():
                found.append(Knob(name, int(given)))
            elif given is None and isinstance(value, int):
                found.append(Knob(name, value))
        return found

    def varied(self, settings: Settings) -> Target:
        # The last of several wins, as argparse has it.
        more = [text for name, v in settings.items() for text in (_option(name), str(v))]
        return dataclasses.replace(self.target, arguments=(*self.target.arguments, *more))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
