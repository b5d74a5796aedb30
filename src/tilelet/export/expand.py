"""The text of a kernel with its helpers inlined, so that it calls only ops.

Works on the source text, statement by statement, so that comments, names and the structure of the
program stay. A helper's locals keep their names unless those are taken; a local that a helper
returns gets the name that the caller assigns it to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.portability import CannotExport
from tilelet.diag.core import Loc
from tilelet.diag.editing import Edit
from tilelet.export.constants import LANGUAGE, Constants, is_language, literal
from tilelet.export.text import FileText, names_read, one_line, wrap_statement
from tilelet.frontend.dispatch import call_rule
from tilelet.frontend.functions import KernelFunction
from tilelet.frontend.nameflow import target_names
from tilelet.frontend.resolve import as_kernel_function
from tilelet.frontend.source import spelling, statements_in
from tilelet.ir.core import FunctionKind
from tilelet.ir.spec import spec_of

_ATOM = re.compile(r"-?[\w.]+")
# Nodes whose replaced operands need parentheses.
_BINDS = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Attribute)
_MISSING = object()


@dataclass
class InlineFrame:
    """One inlined instance of a function, with the meaning of its names.

    names     replacement text for each name of the kernel
    parents   the parent of each node
    """

    function: KernelFunction
    file: FileText
    captured: Mapping[str, object]
    names: dict[str, str]
    caller: Loc | None = None
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict[ast.AST, ast.AST])

    def loc(self, node: ast.AST) -> Loc:
        return self.function.source.loc(node, self.caller)


def assigned_names(stmts: Sequence[ast.stmt]) -> list[str]:
    """Return all names that statements bind, in source order."""
    found: dict[str, None] = {}
    for s in statements_in(stmts):
        targets: list[ast.expr] = []
        if isinstance(s, ast.Assign):
            targets = s.targets
        elif isinstance(s, (ast.AugAssign, ast.AnnAssign, ast.For)):
            targets = [s.target]
        elif isinstance(s, ast.With):
            targets = [i.optional_vars for i in s.items if i.optional_vars is not None]
        for target in targets:
            if not isinstance(target, ast.Subscript):  # writes through the name
                found.update(dict.fromkeys(sorted(target_names(target))))
    return list(found)


def _body(function: KernelFunction) -> list[ast.stmt]:
    """Return the original statements without the docstring."""
    stmts = function.node.body
    first = stmts[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return stmts[1:]
    return stmts


class Expander:
    """Writes one function; `constants` are shared by all functions of a script."""

    def __init__(self, constants: Constants, kernels: Mapping[int, str], chunks: bool) -> None:
        """`kernels`: names of functions that are not inlined, by id.

        chunks   whether `pl.incore` and chunked loops stay; if not, they are written as `pl.at`
        """
        self._constants = constants
        self._kernels = kernels
        self._chunks = chunks
        self._lines: list[str] = []
        self._taken: set[str] = set()
        self._files: dict[str, FileText] = {}
        # Text that replaces the call of an inlined helper.
        self._results: dict[int, list[str]] = {}

    def body_of(self, function: KernelFunction, given: Mapping[str, str], indent: str) -> list[str]:
        """Return the lines of a function's body; `given` is replacement text for parameters."""
        own = [p.arg for p in function.parameters]
        names = {name: given.get(name, name) for name in own}
        stmts = _body(function)
        names |= {name: name for name in assigned_names(stmts) if name not in names}
        if function.is_method:
            names["self"] = "self"
        self._taken |= set(names)
        self._lines = []
        frame = self._frame(function, names, None)
        for text in self._docstring(function):
            self._lines.append(indent + text if text else "")
        self._block(frame, stmts, indent, function.node.body[0].lineno - 1)
        return self._lines

    def annotation(self, function: KernelFunction, node: ast.expr) -> str:
        """Return a parameter's type in the names of the script."""
        return one_line(self._render(self._frame(function, {}, None), node))

    def _docstring(self, function: KernelFunction) -> list[str]:
        text = ast.get_docstring(function.node)
        if text is None:
            return []
        lines = text.split("\n")
        return ['"""' + lines[0], *lines[1:], '"""'] if len(lines) > 1 else [f'"""{text}"""']

    def _frame(
        self, function: KernelFunction, names: dict[str, str], caller: Loc | None
    ) -> InlineFrame:
        file = self._files.setdefault(function.source.path, FileText(function.source))
        frame = InlineFrame(function, file, function.captured_names(), names, caller)
        for node in ast.walk(function.node):
            for child in ast.iter_child_nodes(node):
                frame.parents[child] = node
        return frame

    # --- statements ------------------------------------------------------------------------------

    def _block(
        self, frame: InlineFrame, stmts: Sequence[ast.stmt], indent: str, after: int
    ) -> None:
        for s in stmts:
            is_first = s is stmts[0]
            for comment in frame.file.leading(after, s.lineno):
                if comment or not (is_first or not self._lines or not self._lines[-1]):
                    self._lines.append(indent + comment if comment else "")
            self._statement(frame, s, indent)
            after = s.end_lineno or s.lineno

    def _write(self, text: str, indent: str, comment: str = "") -> None:
        lines = wrap_statement(text, indent)
        lines[-1 if len(lines) == 1 else 0] += comment
        self._lines += lines

    def _statement(self, frame: InlineFrame, s: ast.stmt, indent: str) -> None:
        match s:
            case ast.Assign(targets=[target], value=value):
                self._assignment(frame, s, target, value, indent)
            case ast.AugAssign():
                self._calls_in(frame, s.value, indent)
                target, symbol = self._render(frame, s.target), _symbol(s.op)
                value = self._operand(frame, s.value)
                self._write(f"{target} = {target} {symbol} {value}", indent, frame.file.trailing(s))
            case ast.Return() if frame.caller is not None:
                pass  # the returned value replaces the call
            case ast.For():
                self._calls_in(frame, s.iter, indent)
                header = f"for {self._render(frame, s.target)} in {self._render(frame, s.iter)}:"
                self._compound(frame, s, header, s.iter, indent)
            case ast.While():
                if _has_helper(frame, s.test):
                    raise CannotExport(frame.loc(s.test), "a helper in the condition of a loop")
                self._compound(frame, s, f"while {self._render(frame, s.test)}:", s.test, indent)
            case ast.With() if not self._chunks and _retired_scope(s) is not None:
                self._retired_scope(frame, s, indent)
            case ast.With():
                items = [self._with_item(frame, item, indent) for item in s.items]
                last = s.items[-1].optional_vars or s.items[-1].context_expr
                self._compound(frame, s, f"with {', '.join(items)}:", last, indent)
            case ast.If():
                self._if(frame, s, indent)
            case ast.Expr(value=ast.Call() as call) if self._helper(frame, call) is not None:
                self._calls_in(frame, call, indent)
            case ast.Expr() | ast.Assign() | ast.AnnAssign() | ast.Return() | ast.Pass():
                self._calls_in(frame, s, indent)
                self._write(one_line(self._render(frame, s)), indent, frame.file.trailing(s))
            case ast.Break() | ast.Continue():
                self._write(one_line(self._render(frame, s)), indent)
            case _:
                raise CannotExport(frame.loc(s), f"a statement of Python's, `{type(s).__name__}`")

    def _retired_scope(self, frame: InlineFrame, s: ast.With, indent: str) -> None:
        """Write `pl.incore` and similar scopes as `pl.at`, chunked loops as nested loops."""
        scope = _retired_scope(s)
        assert scope is not None
        hint = [f"name_hint={self._render(frame, scope.hint)}"] if scope.hint is not None else []
        split = [f"optimizations=[{LANGUAGE}.split({self._render(frame, scope.split)})]"] if (
            scope.split is not None) else []  # fmt: skip
        level = f"level={LANGUAGE}.Level.CORE_GROUP"
        header = f"with {LANGUAGE}.at({', '.join([level, *split, *hint])}):"
        loops = [_chunk_size(frame, inner) for inner in s.body] if scope.is_auto else []
        if not any(loops):
            self._write(header, indent, frame.file.trailing(s, s.items[-1].context_expr.end_lineno))
            self._inner(frame, s.body, indent, s.items[-1].context_expr.end_lineno or s.lineno)
            return
        after = s.items[-1].context_expr.end_lineno or s.lineno
        for inner, chunk in zip(s.body, loops, strict=True):
            if chunk is None or not isinstance(inner, ast.For):
                raise CannotExport(frame.loc(inner), "a statement beside a chunked loop")
            for comment in frame.file.leading(after, inner.lineno):
                if comment:
                    self._lines.append(indent + comment)
            self._chunk_loop(frame, inner, chunk, header, indent)
            after = inner.end_lineno or inner.lineno

    def _chunk_loop(
        self, frame: InlineFrame, s: ast.For, chunk: ast.expr, header: str, indent: str
    ) -> None:
        """Write a loop over chunks that contains a scope with a loop over one chunk."""
        assert isinstance(s.iter, ast.Call)
        if any(_chunk_size(frame, inner) for inner in statements_in(s.body)):
            raise CannotExport(frame.loc(s), "a chunked loop inside another")
        self._calls_in(frame, s.iter, indent)
        bounds = [one_line(self._render(frame, a)) for a in s.iter.args]
        start, stop, step = ("0", *bounds, "1") if len(bounds) == 1 else (*bounds, "1")[:3]
        name = self._render(frame, s.target)
        first = self._fresh(f"{name}_first")
        count = one_line(self._render(frame, chunk))
        span = count if step == "1" else f"{count} * {step}"
        kind = spelling(s.iter.func).rpartition(".")[2]
        self._write(f"for {first} in {LANGUAGE}.{kind}({start}, {stop}, {span}):", indent)
        self._write(header, indent + "    ")
        end = f"{LANGUAGE}.min({first} + {span}, {stop})"
        values = [self._constant(frame, a) for a in (*s.iter.args, chunk)]
        if all(isinstance(v, int) for v in values):
            *known, each = [v for v in values if isinstance(v, int)]
            low, high, by = (0, *known, 1) if len(known) == 1 else (*known, 1)[:3]
            if (high - low) % (each * by) == 0:
                end = f"{first} + {span}"
        arguments = f"{first}, {end}" if step == "1" else f"{first}, {end}, {step}"
        inner = indent + " " * 8
        self._write(f"for {name} in {LANGUAGE}.range({arguments}):", inner)
        self._inner(frame, s.body, inner, s.iter.end_lineno or s.lineno)

    def _with_item(self, frame: InlineFrame, item: ast.withitem, indent: str) -> str:
        self._calls_in(frame, item.context_expr, indent)
        text = one_line(self._render(frame, item.context_expr))
        if item.optional_vars is None:
            return text
        return f"{text} as {self._render(frame, item.optional_vars)}"

    def _compound(
        self,
        frame: InlineFrame,
        s: ast.For | ast.While | ast.With,
        header: str,
        last: ast.expr,
        indent: str,
    ) -> None:
        first = s.body[0].lineno
        end = next((n for n in range(last.end_lineno or s.lineno, first) if n in frame.file.comments
                    and not frame.file.is_alone(n)), last.end_lineno)  # fmt: skip
        self._write(one_line(header), indent, frame.file.trailing(s, end))
        self._inner(frame, s.body, indent, end or s.lineno)

    def _inner(
        self, frame: InlineFrame, stmts: Sequence[ast.stmt], indent: str, after: int
    ) -> None:
        written = len(self._lines)
        self._block(frame, stmts, indent + "    ", after)
        if not any(line.strip() and not line.strip().startswith("#")
                   for line in self._lines[written:]):  # fmt: skip
            self._lines.append(f"{indent}    pass")

    def _if(self, frame: InlineFrame, s: ast.If, indent: str) -> None:
        value = self._constant(frame, s.test)
        if value is not _MISSING:
            self._block(frame, s.body if value else s.orelse, indent, s.test.end_lineno or s.lineno)
            return
        self._calls_in(frame, s.test, indent)
        header = f"if {self._render(frame, s.test)}:"
        self._write(one_line(header), indent, frame.file.trailing(s, s.test.end_lineno))
        self._inner(frame, s.body, indent, s.test.end_lineno or s.lineno)
        if s.orelse:
            self._lines.append(f"{indent}else:")
            self._inner(frame, s.orelse, indent, s.body[-1].end_lineno or s.lineno)

    def _assignment(
        self, frame: InlineFrame, s: ast.Assign, target: ast.expr, value: ast.expr, indent: str
    ) -> None:
        comment = frame.file.trailing(s)
        helper = self._helper(frame, value)
        names = [target.id] if isinstance(target, ast.Name) else None
        if isinstance(target, ast.Tuple) and all(isinstance(e, ast.Name) for e in target.elts):
            names = [e.id for e in target.elts if isinstance(e, ast.Name)]
        if helper is not None and names is not None:
            assert isinstance(value, ast.Call)
            wanted = [frame.names[name] for name in names]
            for argument in value.args:
                self._calls_in(frame, argument, indent)
            texts = self._splice(frame, value, helper, indent, wanted)
            if len(texts) != len(wanted):
                raise CannotExport(frame.loc(value), "a tuple of values under one name")
            self._assign_all(wanted, texts, indent, comment)
        elif isinstance(value, ast.Tuple) and names is not None and len(names) > 1:
            self._calls_in(frame, value, indent)
            wanted = [frame.names[name] for name in names]
            self._assign_all(wanted, [self._render(frame, e) for e in value.elts], indent, comment)
        else:
            self._calls_in(frame, s, indent)
            self._write(one_line(self._render(frame, s)), indent, comment)

    def _assign_all(
        self, targets: Sequence[str], texts: Sequence[str], indent: str, comment: str
    ) -> None:
        """Write a tuple assignment as single ones without overwriting names that are still read."""
        pairs = zip(targets, texts, strict=True)
        pending: list[tuple[str, str]] = [(t, one_line(e)) for t, e in pairs if t not in (e, "_")]
        while pending:
            for i, (target, text) in enumerate(pending):
                others = [e for j, (_, e) in enumerate(pending) if j != i]
                if not any(_mentions(e, target) for e in others):
                    self._write(f"{target} = {text}", indent, comment)
                    comment = ""
                    del pending[i]
                    break
            else:
                target, text = pending[0]
                kept = self._fresh(target)
                self._write(f"{kept} = {target}", indent)
                pending = [(t, _replace_name(e, target, kept)) for t, e in pending]

    # --- helpers ---------------------------------------------------------------------------------

    def _helper(self, frame: InlineFrame, node: ast.expr) -> KernelFunction | None:
        """Return the helper that a call inlines, or None."""
        if not isinstance(node, ast.Call):
            return None
        found = as_kernel_function(_global_value(frame, node.func))
        if found is None or id(found) in self._kernels:
            return None
        if found.kind is not FunctionKind.Inline:
            raise CannotExport(frame.loc(node), f"a call of `{found.name}`")
        return found

    def _calls_in(self, frame: InlineFrame, node: ast.AST, indent: str) -> None:
        """Write the statements of all helpers that are called in an expression or statement."""
        for child in ast.iter_child_nodes(node):
            self._calls_in(frame, child, indent)
        if isinstance(node, ast.Call):
            helper = self._helper(frame, node)
            if helper is not None:
                self._results[id(node)] = self._splice(frame, node, helper, indent, None)

    def _splice(
        self,
        frame: InlineFrame,
        call: ast.Call,
        helper: KernelFunction,
        indent: str,
        targets: Sequence[str] | None,
    ) -> list[str]:
        """Write a helper's statements; return the text of its result."""
        stmts = _body(helper)
        last = stmts[-1]
        returned: list[ast.expr] = []
        if isinstance(last, ast.Return) and last.value is not None:
            is_tuple = isinstance(last.value, ast.Tuple)
            returned = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
            if is_tuple and targets is None:
                raise CannotExport(frame.loc(call), "a tuple of values inside an expression")
        params = [p.arg for p in helper.parameters]
        arguments = dict(zip(params, [self._render(frame, a) for a in call.args], strict=True))
        arguments = {name: one_line(text) for name, text in arguments.items()}
        shared = self._shared(stmts, returned, targets, arguments)
        inner = self._frame(helper, {}, frame.loc(call))
        if helper.is_method:
            inner.names["self"] = "self"
        self._bind_parameters(inner, stmts, arguments, shared, indent)
        for name in assigned_names(stmts):
            if name not in inner.names:
                inner.names[name] = shared.get(name) or self._fresh(name)
        self._block(inner, stmts, indent, helper.node.body[0].lineno - 1)
        for node in returned:
            self._calls_in(inner, node, indent)
        return [self._render(inner, node) for node in returned]

    def _shared(
        self,
        stmts: Sequence[ast.stmt],
        returned: Sequence[ast.expr],
        targets: Sequence[str] | None,
        arguments: Mapping[str, str],
    ) -> dict[str, str]:
        """Return locals of a helper that can take the caller's name.

        Excluded are those for which the helper still reads the old value of that name.
        """
        local = set(assigned_names(stmts))
        names = [node.id for node in returned if isinstance(node, ast.Name)]
        found: dict[str, str] = {}
        for node, target in zip(returned, targets or (), strict=False):
            if not isinstance(node, ast.Name) or node.id not in local or target == "_":
                continue
            others = [text for name, text in arguments.items() if name != node.id]
            reads_target = any(_mentions(text, target) for text in others)
            if names.count(node.id) == 1 and not reads_target:
                found[node.id] = target
        return found

    def _bind_parameters(
        self,
        inner: InlineFrame,
        stmts: Sequence[ast.stmt],
        arguments: Mapping[str, str],
        shared: Mapping[str, str],
        indent: str,
    ) -> None:
        """Replace parameters by their arguments' text, or bind them to locals."""
        local = set(assigned_names(stmts))
        reads = names_read(stmts)
        for name, text in arguments.items():
            if name in local:
                inner.names[name] = shared.get(name) or self._fresh(name)
                if inner.names[name] != text:
                    self._write(f"{inner.names[name]} = {text}", indent)
            elif _ATOM.fullmatch(text) or (reads.count(name) < 2 and "(" not in text):
                inner.names[name] = text
            else:
                inner.names[name] = self._fresh(name)
                self._write(f"{inner.names[name]} = {text}", indent)

    def _fresh(self, name: str) -> str:
        candidate, number = name, 2
        while candidate in self._taken or candidate in self._constants.values:
            candidate = f"{name}_{number}"
            number += 1
        self._taken.add(candidate)
        self._constants.taken.add(candidate)
        return candidate

    # --- expressions -----------------------------------------------------------------------------

    def _render(self, frame: InlineFrame, node: ast.expr | ast.stmt) -> str:
        edits: list[Edit] = []
        self._edits(frame, node, edits)
        return frame.file.edited(edits, *frame.file.span(node))

    def _operand(self, frame: InlineFrame, node: ast.expr) -> str:
        text = one_line(self._render(frame, node))
        return f"({text})" if isinstance(node, (ast.BinOp, ast.Compare, ast.BoolOp)) else text

    def _edits(self, frame: InlineFrame, node: ast.AST, edits: list[Edit]) -> None:
        text = self._replacement(frame, node)
        if text is None:
            for child in ast.iter_child_nodes(node):
                self._edits(frame, child, edits)
            return
        assert isinstance(node, ast.expr)
        is_operand = isinstance(frame.parents.get(node), _BINDS) or (
            isinstance(parent := frame.parents.get(node), ast.Subscript) and parent.value is node
        )
        if is_operand and not _ATOM.fullmatch(text) and not _is_closed(text):
            text = f"({text})"
        edits.append(frame.file.replace(node, text))

    def _replacement(self, frame: InlineFrame, node: ast.AST) -> str | None:
        """Return replacement text, or None to keep the node and visit its children."""
        if isinstance(node, ast.Call):
            if id(node) in self._results:
                texts = self._results.pop(id(node))
                if len(texts) != 1:
                    raise CannotExport(frame.loc(node), "a tuple of values inside an expression")
                return one_line(texts[0])
            return self._python(frame, node)
        if isinstance(node, ast.Attribute):
            return self._python(frame, node)
        if isinstance(node, ast.Name):
            return self._name(frame, node)
        if isinstance(node, (ast.JoinedStr, ast.IfExp, ast.ListComp)):  # not read by parsers
            value = self._constant(frame, node)
            return literal(value) if value is not _MISSING else None
        return None

    def _name(self, frame: InlineFrame, node: ast.Name) -> str | None:
        if node.id in frame.names:
            text = frame.names[node.id]
            return None if text == node.id else text
        if node.id not in frame.captured:
            return None
        value = frame.captured[node.id]
        if is_language(value):
            return LANGUAGE
        kernel = as_kernel_function(value)
        if kernel is not None and id(kernel) in self._kernels:
            return self._kernels[id(kernel)]
        text = self._constants.text(node.id, value, frame.function.name)
        if text is None:
            raise CannotExport(frame.loc(node), f"`{node.id}`, a Python {type(value).__name__}")
        return text

    def _python(self, frame: InlineFrame, node: ast.Call | ast.Attribute) -> str | None:
        """Return the text of a compile-time expression's value."""
        if _is_of_language(frame, node):
            return None
        value = self._constant(frame, node)
        return None if value is _MISSING else literal(value)

    def _constant(self, frame: InlineFrame, node: ast.expr) -> object:
        """Evaluate an expression without names of the kernel."""
        names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
        if any(name in frame.names for name in names):
            return _MISSING
        if any(isinstance(n, ast.Call) and _is_of_language(frame, n) for n in ast.walk(node)):
            return _MISSING
        code = compile(ast.Expression(node), frame.function.source.path, "eval")
        try:
            return eval(code, dict(frame.captured))  # noqa: S307 - the program's own text
        except Exception:  # not a compile-time expression after all
            return _MISSING


@dataclass(frozen=True)
class _Scope:
    """A deprecated scope: whether its chunked loops are split, and its settings."""

    is_auto: bool
    hint: ast.expr | None
    split: ast.expr | None


def _retired_scope(s: ast.With) -> _Scope | None:
    """Return the deprecated scope (April 2026) that a `with` opens, or None."""
    call = s.items[0].context_expr
    if not isinstance(call, ast.Call) or len(s.items) != 1:
        return None
    name = spelling(call.func).rpartition(".")[2]
    options = {k.arg: k.value for k in call.keywords}
    text = " ".join(
        ast.unparse(options[k]) for k in ("optimization", "optimizations") if k in options
    )
    is_auto = name == "auto_incore" or "auto_chunk" in text or "chunked_loop_optimizer" in text
    if name not in ("incore", "auto_incore", "at") or (
        name == "at" and not is_auto and "split" not in options
    ):
        return None
    split = options.get("split", call.args[0] if name != "at" and call.args else None)
    for node in ast.walk(call):  # `pl.split(MODE)` and `pl.chunked_loop_optimizer(split=MODE)`
        if isinstance(node, ast.Call) and node is not call:
            given = [*node.args, *(k.value for k in node.keywords if k.arg in ("mode", "split"))]
            split = given[0] if given else split
    return _Scope(is_auto, options.get("name_hint"), split)


def _chunk_size(frame: InlineFrame, s: ast.stmt) -> ast.expr | None:
    """Return the chunk size of a loop; None if it is not chunked."""
    if not isinstance(s, ast.For) or not isinstance(s.iter, ast.Call):
        return None
    found = [k.value for k in s.iter.keywords if k.arg == "chunk"]
    if found and spelling(s.iter.func).rpartition(".")[2] != "parallel":
        raise CannotExport(frame.loc(s), "a chunked loop that is not parallel")
    return found[0] if found else None


def _has_helper(frame: InlineFrame, node: ast.AST) -> bool:
    return any(
        isinstance(n, ast.Call) and as_kernel_function(_global_value(frame, n.func)) is not None
        for n in ast.walk(node)
    )


def _global_value(frame: InlineFrame, node: ast.expr) -> object:
    """Return the global value of a dotted name; None if it is local to the kernel."""
    if isinstance(node, ast.Attribute):
        if (
            isinstance(node.value, ast.Name)
            and node.value.id == "self"
            and frame.function.is_method
        ):
            return frame.captured.get(node.attr)
        base = _global_value(frame, node.value)
        return getattr(base, node.attr, None) if base is not None else None
    if isinstance(node, ast.Name) and node.id not in frame.names:
        return frame.captured.get(node.id)
    return None


def _is_of_language(frame: InlineFrame, node: ast.Call | ast.Attribute) -> bool:
    """Whether a dotted name or callee belongs to the language."""
    root: ast.expr = node.func if isinstance(node, ast.Call) else node
    named = _global_value(frame, root)
    if isinstance(node, ast.Call) and (spec_of(named) or call_rule(named)):
        return True
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or root.id in frame.names:
        return True
    return is_language(frame.captured.get(root.id))


def _symbol(op: ast.operator) -> str:
    return spelling(ast.BinOp(ast.Name("a"), op, ast.Name("b")))[2:-2]


def _is_closed(text: str) -> bool:
    """Whether text is a single name or call, which needs no parentheses."""
    match = re.match(r"[\w.]+[(\[]", text)
    if match is None:
        return False
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if depth == 0 and c in ")]":
            return i == len(text) - 1
    return False


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}\b", text) is not None


def _replace_name(text: str, name: str, new: str) -> str:
    return re.sub(rf"(?<![\w.]){re.escape(name)}\b", new, text)
