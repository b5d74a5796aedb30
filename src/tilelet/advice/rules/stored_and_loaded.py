"""Rule stored-and-loaded."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source, names_bound
from tilelet.advice.windows import SourceWindow, load_of, store_of
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.editing import Edit


class StoredAndLoaded(Caution, code="W1318"):
    """A scope stores a tile in global memory and loads the same window again."""

    def __init__(self, load: Loc, store: Loc, tensor: str) -> None:
        super().__init__(
            f"the scope has just stored this window of `{tensor}`",
            [Label(load, "loaded here"), Label(store, "stored here")],
            helps=["use the tile that was stored"],
        )


def find(subject: Subject) -> Iterator[Advice]:
    source = subject.source
    for scope in source.scopes:
        for i, store in enumerate(scope.body):
            stored = store_of(source, store)
            loads = list(_loads(source, scope.body[i + 1 :], stored[0])) if stored else []
            if stored is None or not loads:
                continue
            kernels = subject.kernels_in(scope.lineno, scope.end_lineno or 0)
            edits = _edits(source, store, stored, loads)
            problem = StoredAndLoaded(source.loc(loads[0]), source.loc(store), stored[0].tensor)
            yield subject.advice(problem, kernels, edits)


def _loads(source: Source, later: Sequence[ast.stmt], stored: SourceWindow) -> Iterator[ast.expr]:
    """Yield loads of the window until it is overwritten."""
    for statement in later:
        if names_bound(statement) & stored.names:
            return
        changes = stored.tensor in names_bound(statement)
        if changes and isinstance(statement, (ast.For, ast.With, ast.If, ast.While)):
            return
        for node in ast.walk(statement):
            window = load_of(source, node) or _part(source, node)
            if window is not None and window.is_at(stored):
                yield window.node
        if changes:
            return


def _part(source: Source, node: ast.AST) -> SourceWindow | None:
    """Return the window of a load with a valid shape, or None."""
    if source.call_of(node) != "slice" or not isinstance(node, ast.Call) or not node.keywords:
        return None
    if len(node.args) != 3 or {k.arg for k in node.keywords} != {"valid_shape"}:
        return None
    tensor, _, offset = node.args
    if not isinstance(tensor, ast.Name) or not isinstance(offset, (ast.List, ast.Tuple)):
        return None
    return SourceWindow(tensor.id, node, tuple(map(ast.unparse, offset.elts)), None)


def _edits(
    source: Source,
    store: ast.stmt,
    stored: tuple[SourceWindow, ast.expr],
    loads: Sequence[ast.expr],
) -> list[Edit]:
    """Bind the stored tile to a name, and remove a tensor that is not used otherwise."""
    window, value = stored
    tensor = window.tensor
    name = value.id if isinstance(value, ast.Name) else f"{tensor}_tile"
    named = "" if isinstance(value, ast.Name) else f"{name} = {source.of(value)}"
    makers = _makers(source, tensor)
    edits = [_forward_tile(source, load, _tile(source, load, window, name), name) for load in loads]
    is_private = _is_private(source, tensor, [store, *loads, *makers])
    if is_private or _is_overwritten(source, store, window, loads):
        edits += [source.remove(maker) for maker in makers if is_private]
        return [*edits, source.replace(store, named) if named else source.remove(store)]
    if named:
        margin = " " * store.col_offset
        edits.append(source.replace(value, name))
        edits.append(source.replace_lines(store.lineno, store.lineno - 1, f"{margin}{named}\n"))
    return edits


def _forward_tile(source: Source, load: ast.expr, text: str, name: str) -> Edit:
    """Replace the load by the tile; an alias of the tile needs no statement."""
    statement = next(n for n in source.around(load) if isinstance(n, ast.stmt))
    is_whole = isinstance(statement, ast.Assign) and statement.value is load
    if text == name and is_whole and names_bound(statement) == {name}:
        return source.remove(statement)
    return source.replace(load, text)


def _is_overwritten(
    source: Source, store: ast.stmt, window: SourceWindow, loads: Sequence[ast.expr]
) -> bool:
    """Whether the scope overwrites the window before anything else reads it."""
    scope = next(n for n in source.around(store) if isinstance(n, ast.With))
    known = {id(n) for load in loads for n in ast.walk(load)}
    for later in scope.body[scope.body.index(store) + 1 :]:
        stored = store_of(source, later)
        if stored is not None and stored[0].is_at(window) and stored[0].shape is not None:
            target = {id(n) for n in ast.walk(stored[0].node)}
            reads = [n for n in ast.walk(later) if _is_named(n, window.tensor)]
            return all(id(n) in known | target for n in reads)
        if any(_is_named(n, window.tensor) and id(n) not in known for n in ast.walk(later)):
            return False
    return False


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _tile(source: Source, load: ast.expr, stored: SourceWindow, name: str) -> str:
    """Return the text of the stored tile, or of the part that was loaded."""
    window = load_of(source, load)
    if window is not None:
        whole = source.dims.get(window.tensor)
        is_all = window.shape in (None, stored.shape, whole) or stored.shape is not None
        if is_all or set(window.offset) != {"0"}:
            return name
        return f"{source.language}.slice({name}, {window.shape_text}, [0, 0])"
    assert isinstance(load, ast.Call)
    more = "".join(f", {k.arg}={source.of(k.value)}" for k in load.keywords)
    return f"{source.language}.slice({name}, {source.of(load.args[1])}, [0, 0]{more})"


def _makers(source: Source, tensor: str) -> list[ast.stmt]:
    return [
        n
        for n in source.nodes
        if isinstance(n, ast.Assign)
        and names_bound(n) == {tensor}
        and source.call_of(n.value) == "create_tensor"
    ]


def _is_private(source: Source, tensor: str, own: Sequence[ast.AST]) -> bool:
    """Whether a tensor is created by the script and used by these statements only."""
    inside = {id(n) for statement in own for n in ast.walk(statement)}
    uses = source.names(tensor)
    return bool(_makers(source, tensor)) and all(id(n) in inside for n in uses)


RULE = Rule("stored-and-loaded", StoredAndLoaded, find, rewrites=True, needs_proof=True)
