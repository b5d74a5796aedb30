"""Read a Python file as a module of kernels: constants, records, decorated functions, programs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilelet.analysis.patience import OutOfSteps, within
from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.catalogue.oracle import NotEvaluated, WorkLimit
from tilelet.diag.catalogue.python import InvalidSyntax, NestedTooDeeply
from tilelet.diag.core import Loc, UserError
from tilelet.frontend.decorators import build_program
from tilelet.frontend.functions import KernelFunction, of_type
from tilelet.frontend.jit import KINDS, JitFunction, of_text
from tilelet.frontend.source import SourceFile, defaults_in, from_text
from tilelet.ir.core import FunctionKind, Program
from tilelet.ir.programs import Programs
from tilelet.static.evaluator import (
    HOST,
    NotEvaluatedError,
    RecordClass,
    Scope,
    TextFunction,
    Unknown,
    evaluate,
    execute,
    language_modules,
    namespace,
    plain_modules,
)
from tilelet.syntax.enums import Level, Role

Loader = Callable[[str, int], "StaticModule | None"]
"""Gives the module of an import: its dotted name, and how many folders up it is relative to."""

MAX_TEXT = 1 << 20
"""Largest file that is read, in characters."""
MAX_STEPS = 200_000
"""Statements and operations that reading a file, or lowering a program, may take."""


def no_imports(name: str, level: int) -> StaticModule | None:
    """Read no other file."""
    del name, level
    return None


@dataclass(eq=False)
class TextProgram:
    """A program class, or a control function, that can be lowered.

    functions  its functions by name; of a class, its methods
    """

    name: str
    node: ast.ClassDef | ast.FunctionDef
    source: SourceFile
    functions: dict[str, KernelFunction]
    jit: JitFunction | None = None

    @property
    def loc(self) -> Loc:
        return self.source.loc(self.node)

    def build(self, *arguments: object) -> Program | Programs:
        """Lower it as declared, or for arguments; raise every mistake found."""
        unknown = next(self.unknown_names(), None)
        if unknown is not None:
            raise unknown
        with limit_work("lowering the program", MAX_STEPS):
            if self.jit is not None:
                return self.jit.specialize(*arguments)
            return build_program(self.name, self.functions, self.loc)

    @property
    def is_complete(self) -> bool:
        """Whether the signature states all shapes and types."""
        return self.jit is None or all(p.type is not None for p in self.jit.parameters)

    def unknown_names(self) -> Iterator[NotEvaluated]:
        """Yield each use of a name whose value is not known, also in functions it calls."""
        for function in self.reached():
            for use, value in _uses(function):
                if isinstance(value, Unknown):
                    loc = function.source.loc(use)
                    yield NotEvaluated(loc, use.id, value.why, value.loc)

    def reached(self) -> Iterator[KernelFunction]:
        """Yield its functions and all that they call."""
        seen: set[KernelFunction] = set()
        pending = list(self.functions.values())
        while pending:
            function = pending.pop()
            if function in seen:
                continue
            seen.add(function)
            yield function
            called = (getattr(value, "kernel_function", value) for _, value in _uses(function))
            pending += [f for f in called if isinstance(f, KernelFunction)]


@dataclass(eq=False)
class StaticModule:
    """What a file defines.

    names     module-level names; those that are not known without executing it are `Unknown`
    programs  what can be run, in the order of the file
    functions all decorated functions, also those that are only called
    """

    source: SourceFile
    scope: Scope
    programs: list[TextProgram] = field(default_factory=list[TextProgram])
    functions: list[KernelFunction] = field(default_factory=list[KernelFunction])
    problems: list[UserError] = field(default_factory=list[UserError])

    @property
    def names(self) -> Mapping[str, Any]:
        return self.scope.names


def parse_text(text: str, path: str) -> SourceFile:
    """Parse a file; raise `InvalidSyntax` or `NestedTooDeeply` if Python cannot."""
    if len(text) > MAX_TEXT:
        raise InvalidSyntax(Loc(path, 1, 0, 1), f"the text is longer than {MAX_TEXT} characters")
    try:
        return from_text(text, path)
    except (RecursionError, MemoryError):
        raise NestedTooDeeply(Loc(path, 1)) from None
    except (SyntaxError, ValueError) as problem:
        line, column = getattr(problem, "lineno", 1) or 1, getattr(problem, "offset", 1) or 1
        message = getattr(problem, "msg", str(problem))
        raise InvalidSyntax(Loc(path, line, column - 1, line), message) from None


def read_module(text: str, path: str, load: Loader = no_imports) -> StaticModule:
    """Read a file without executing it."""
    reader = _Reader(parse_text(text, path), load)
    with limit_work("evaluating the file", MAX_STEPS):
        for s in reader.module.source.tree.body:
            reader.statement(reader.module.scope, s)
    return reader.module


@contextmanager
def limit_work(what: str, steps: int) -> Generator[None]:
    """Count the work of a block; raise `WorkLimit` if it is more than `steps`."""
    try:
        with within(steps):
            yield
    except OutOfSteps:
        raise WorkLimit(what, f"{steps:,} statements and operations") from None


@dataclass
class FolderLoader:
    """Reads the neighbors of a file, each once; `texts` replaces files by unsaved text."""

    folder: Path
    texts: Mapping[Path, str] = field(default_factory=dict[Path, str])
    read: dict[Path, StaticModule | None] = field(default_factory=dict[Path, "StaticModule | None"])

    def __call__(self, name: str, level: int) -> StaticModule | None:
        above = self.folder.parents[level - 2] if level > 1 else self.folder
        tail = Path(*name.split(".")) if name else Path("__init__")
        folders = [above] if level else [above, *list(above.parents)[:3]]
        for folder in folders:
            for path in (folder / tail.with_suffix(".py"), folder / tail / "__init__.py"):
                if path in self.read or path in self.texts or path.is_file():
                    return self._module(path)
        return None

    def _module(self, path: Path) -> StaticModule | None:
        if path not in self.read:
            self.read[path] = None  # a cycle of imports finds nothing, as half-read modules do
            try:
                text = self.texts.get(path) or path.read_text(encoding="utf-8")
                inner = FolderLoader(path.parent, self.texts, self.read)
                self.read[path] = read_module(text, str(path), inner)
            except (OSError, UnicodeDecodeError, UserError):
                return None
        return self.read[path]


class _Reader:
    def __init__(self, source: SourceFile, load: Loader) -> None:
        scope = Scope(source.path, {"__name__": source.path}, define=self.define)
        self.module = StaticModule(source, scope)
        self.source = source
        self.load = load
        self.languages = language_modules()
        self.plain = plain_modules(source.path)

    def statement(self, scope: Scope, s: ast.stmt) -> None:
        """Evaluate a statement as far as possible; names that it would bind become unknown."""
        try:
            execute(s, scope)
        except NotEvaluatedError as problem:
            for name in _bound_names(s):
                scope.names[name] = Unknown(name, str(problem), self.source.loc(s))
            if isinstance(s, (ast.If, ast.With, ast.Try)):
                for inner in (n for n in ast.walk(s) if isinstance(n, ast.FunctionDef)):
                    if inner.decorator_list:
                        self.define(scope, inner)

    def define(self, scope: Scope, s: ast.stmt) -> bool:
        """Take an import, a function or a class; return whether `s` is one."""
        match s:
            case ast.Import():
                for alias in s.names:
                    self._import(scope, alias, s)
            case ast.ImportFrom():
                self._import_from(scope, s)
            case ast.FunctionDef():
                scope.names[s.name] = self._function(scope, s)
            case ast.ClassDef():
                scope.names[s.name] = self._class(scope, s)
            case ast.AsyncFunctionDef():
                why = "it is an asynchronous function"
                scope.names[s.name] = Unknown(s.name, why, self.source.loc(s))
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                pass
            case _:
                return False
        return True

    def _import(self, scope: Scope, alias: ast.alias, s: ast.stmt) -> None:
        bound = alias.asname or alias.name.partition(".")[0]
        if alias.name in self.languages and alias.asname:
            scope.names[bound] = self.languages[alias.name]
        elif alias.name in self.plain:
            scope.names[bound] = self.plain[alias.name]
        else:
            module = self.load(alias.name, 0) if "." not in alias.name or alias.asname else None
            scope.names[bound] = (
                namespace(alias.name, module.scope.names)
                if module
                else self._not_imported(bound, alias.name, s)
            )

    def _import_from(self, scope: Scope, s: ast.ImportFrom) -> None:
        name = s.module or ""
        module = None if name in ("__future__", "typing") else self._loaded(name, s.level)
        for alias in s.names:
            bound = alias.asname or alias.name
            whole = f"{name}.{alias.name}"
            if whole in self.languages:
                scope.names[bound] = self.languages[whole]
            elif name in self.languages:
                scope.names[bound] = HOST.attribute(self.languages[name], alias.name)
            elif name in self.plain:
                scope.names[bound] = self._plain_name(name, alias.name, s)
            elif module is not None and alias.name in module.names:
                scope.names[bound] = module.names[alias.name]
            elif module is not None and alias.name == "*":
                public = {n: v for n, v in module.names.items() if not n.startswith("_")}
                scope.names.update(public)
            else:
                scope.names[bound] = self._not_imported(bound, name, s)

    def _plain_name(self, module: str, name: str, s: ast.stmt) -> object:
        try:
            return HOST.attribute(self.plain[module], name)
        except AttributeError:
            return self._not_imported(name, module, s)

    def _loaded(self, name: str, level: int) -> StaticModule | None:
        known = name in self.languages or name in self.plain
        return None if known else self.load(name, level)

    def _not_imported(self, bound: str, name: str, s: ast.stmt) -> Unknown:
        return Unknown(bound, f"`{name}` is not imported", self.source.loc(s))

    def _function(self, scope: Scope, node: ast.FunctionDef, in_class: bool = False) -> object:
        if node.decorator_list:
            try:
                found = [self._decorator(scope, d) for d in node.decorator_list]
                chosen = next(((n, o) for n, o in found if n is not None), None)
                made = chosen and self._decorated(*chosen, scope, node, in_class)
            except UserError as problem:
                self.module.problems.append(problem)
                return Unknown(node.name, problem.diagnostic.message, self.source.loc(node))
            if made is None:
                why = f"`@{ast.unparse(node.decorator_list[0])}` is not applied"
                return Unknown(node.name, why, self.source.loc(node))
            function = made.kernel_function if isinstance(made, JitFunction) else made
            self.module.functions.append(function)
            is_entry = function.kind not in (FunctionKind.InCore, FunctionKind.Inline)
            if isinstance(made, JitFunction) and is_entry:
                functions = {node.name: function}
                program = TextProgram(node.name, node, self.source, functions, made)
                self.module.programs.append(program)
            return made
        self._kernels_inside(scope, node)
        return TextFunction(node, scope)

    def _kernels_inside(self, scope: Scope, node: ast.FunctionDef) -> None:
        """Run a function that builds programs, if it needs no arguments."""
        has_kernels = any(
            isinstance(n, (ast.FunctionDef, ast.ClassDef)) and self._is_decorated(scope, n)
            for n in ast.walk(node)
            if n is not node
        )
        args = node.args
        needed = len(args.posonlyargs) + len(args.args) > len(args.defaults)
        if not has_kernels or needed or any(d is None for d in args.kw_defaults):
            return
        inner = Scope(scope.file, {}, scope, self.define)
        try:
            for p, d in defaults_in(args):
                inner.names[p.arg] = evaluate(d, scope)
        except NotEvaluatedError:
            return
        for s in node.body:
            if isinstance(s, ast.Return):
                return
            self.statement(inner, s)

    def _is_decorated(self, scope: Scope, node: ast.FunctionDef | ast.ClassDef) -> bool:
        return any(self._decorator(scope, d)[0] for d in node.decorator_list)

    def _decorator(self, scope: Scope, node: ast.expr) -> tuple[str | None, dict[str, object]]:
        """Return the decorator of the language by its name, and its options."""
        call = node if isinstance(node, ast.Call) else None
        path: list[str] = []
        at = call.func if call else node
        while isinstance(at, ast.Attribute):
            path.insert(0, at.attr)
            at = at.value
        base = scope.chain().get(at.id) if isinstance(at, ast.Name) else None
        if not path or base is not self.languages["tilelet.language"]:
            return None, {}
        name = f"pl.{'.'.join(path)}"
        if name not in (*KINDS, "pl.function", "pl.inline", "pl.program"):
            return None, {}
        keywords = call.keywords if call else []
        return name, {k.arg or "**": self._option(scope, k) for k in keywords}

    def _option(self, scope: Scope, keyword: ast.keyword) -> object:
        try:
            return evaluate(keyword.value, scope)
        except NotEvaluatedError as problem:
            loc = self.source.loc(keyword.value)
            raise NotEvaluated(loc, ast.unparse(keyword.value), str(problem)) from None

    def _decorated(
        self,
        decorator: str,
        options: dict[str, Any],
        scope: Scope,
        node: ast.FunctionDef,
        in_class: bool,
    ) -> KernelFunction | JitFunction:
        more: dict[str, object] = {
            "frame_names": scope.chain(),
            "given_source": (self.source, node),
            "host": HOST,
        }
        where = self.source.loc(node)
        if decorator == "pl.inline":
            return of_text("pl.jit.inline", node.name, {}, where, **more)
        if decorator in KINDS:
            if decorator == "pl.jit.host" and not self._names_ranks(scope, node):
                decorator = "pl.jit"
            return of_text(decorator, node.name, options, where, **more)
        is_callback = options.get("role") is Role.SubWorker
        declared = options.get("type", FunctionKind.Opaque)
        is_host = options.get("level") is Level.HOST and not is_callback
        return of_type(
            node.name,
            FunctionKind.Host if is_host else declared,
            bool(options.get("strict_ssa", False)),
            options.get("attrs"),
            is_method=in_class,
            is_callback=is_callback,
            **more,
        )

    def _names_ranks(self, scope: Scope, node: ast.FunctionDef) -> bool:
        ranks = self.languages["tilelet.language.distributed"]
        names = scope.chain()
        return any(
            (isinstance(n, ast.keyword) and n.arg == "device")
            or (isinstance(n, ast.Name) and names.get(n.id) is ranks)
            for n in ast.walk(node)
        )

    def _class(self, scope: Scope, node: ast.ClassDef) -> object:
        found = [self._decorator(scope, d) for d in node.decorator_list]
        program = next((o for name, o in found if name == "pl.program"), None)
        if program is not None:
            return self._program(scope, node, bool(program.get("strict_ssa", False)))
        if node.bases or node.keywords:
            return Unknown(node.name, "classes with bases are not made", self.source.loc(node))
        return self._record(scope, node)

    def _program(self, scope: Scope, node: ast.ClassDef, strict_ssa: bool) -> TextProgram:
        inner = Scope(scope.file, {}, scope, self.define)
        methods: dict[str, KernelFunction] = {}
        for s in node.body:
            if not isinstance(s, ast.FunctionDef):
                self.statement(inner, s)
                continue
            made = self._function(inner, s, in_class=True)
            if isinstance(made, KernelFunction):
                made.is_method = True
                methods[s.name] = made
        if strict_ssa:
            for method in methods.values():
                method.style = replace(method.style, strict_ssa=True)
        made = TextProgram(node.name, node, self.source, methods)
        self.module.programs.append(made)
        return made

    def _record(self, scope: Scope, node: ast.ClassDef) -> object:
        fields: list[str] = []
        inner = Scope(scope.file, {}, scope, self.define)
        properties: dict[str, TextFunction] = {}
        methods: dict[str, TextFunction] = {}
        for s in node.body:
            match s:
                case ast.AnnAssign(target=ast.Name(id=name), value=value):
                    fields.append(name)
                    if value is not None:
                        self.statement(inner, s)
                case ast.FunctionDef():
                    is_property = [ast.unparse(d) for d in s.decorator_list] == ["property"]
                    into = properties if is_property else methods
                    if is_property or not s.decorator_list:
                        into[s.name] = TextFunction(s, scope)
                case _:
                    self.statement(inner, s)
        if "__init__" in methods or "__post_init__" in methods:
            return Unknown(node.name, "its constructor is not executed", self.source.loc(node))
        return RecordClass(node.name, inner.names, tuple(fields), properties, methods)


def _uses(function: KernelFunction) -> Iterator[tuple[ast.Name, object]]:
    """Yield the names of its surroundings that a function reads, with their values."""
    names = function.captured_names()
    own = {p.arg for p in ast.walk(function.node.args) if isinstance(p, ast.arg)}
    for use in _names_in(function.node):
        yield use, None if use.id in own else names.get(use.id)


def _bound_names(s: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement may bind."""
    for node in ast.walk(s):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name


def _names_in(node: ast.AST) -> Iterator[ast.Name]:
    """Yield the names that kernel text reads, also those in quoted annotations, not decorators."""
    for child in ast.iter_child_nodes(node):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and child in node.decorator_list:
            continue
        if isinstance(child, ast.Name):
            yield child
        elif isinstance(child, ast.arg) and isinstance(child.annotation, ast.Constant):
            try:
                text = ast.parse(str(child.annotation.value), mode="eval")
            except SyntaxError:
                continue
            for inner in _names_in(text):
                yield ast.copy_location(inner, child)
        else:
            yield from _names_in(child)
