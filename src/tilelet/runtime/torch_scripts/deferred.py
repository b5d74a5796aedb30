"""Lazy torch tensors, whose elements are computed on first access.

A script that is only recorded (`tilelet tasks`, `tilelet profile`) still creates its inputs: it may
draw and quantize weights for minutes, although nothing reads them. While `Deferring` is active,
operations that create large tensors, and those on their results, are only recorded. A request for
elements (`item()`, `numpy()`, a shape that depends on them) runs the operations it needs, in the
same order, so that elements are the same.

Recorded operations are on a `Tape`. They are those of torch's dispatcher, whose schemas declare
views and in-place writes; a view shares the storage number of its base. To compute a storage, run
every operation that writes it and their operands; before an in-place write, run the operations that
read the elements it replaces.

Random operations keep the generator's state, and the generator is advanced at once by as many
numbers as the operation consumes, which is known from small operations of the same kind.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import ref

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.runtime.torch_scripts import mersenne_twister

if TYPE_CHECKING:
    from typing_extensions import Self

# torch is loaded already when this module is imported; much of it is untyped.
torch = import_module("torch")
_Tensor: Any = torch.Tensor
_FunctionMode: Any = import_module("torch.overrides").TorchFunctionMode
_DispatchMode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode

MIN_ELEMENTS = 1 << 16  # elements; smaller tensors are computed faster than recorded
# Elements of large tensors that a script makes before any is deferred: to describe operators
# without elements torch first loads its compiler, which takes a second.
_MIN_MADE = 1 << 24
# Elements of a blank tensor that is deferred: scripts fill it with parts of large tensors, which
# would have to be computed for the first of them.
_MIN_BLANK = 1 << 10
_MAX_WRITES = 64  # elements written singly before a tensor is computed
_MAX_ROW = 1 << 12  # elements of a row
_MAX_ROWS = 256  # rows written singly before a tensor is computed
_MAX_OPERATIONS = 20_000  # maximum number of operations on a tape

_FACTORIES = [
    "arange",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "normal",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "zeros",
    "zeros_like",
]

_BLANKS = {"empty", "empty_like", "zeros", "zeros_like"}

# Functions that expose a tensor's memory or bypass torch's dispatcher.
_LOOKS = [
    "numpy",
    "__array__",
    "tolist",
    "data_ptr",
    "storage",
    "untyped_storage",
    "__dlpack__",
    "__reduce_ex__",
    "__deepcopy__",
    "__repr__",
    "__format__",
    "share_memory_",
    "resize_",
    "set_",
    "apply_",
    "map_",
]


class TapeStorage:
    """Memory shared by cells.

    is_open   the script can access it outside the tape
    is_small  deferred only to be filled from large tensors: a write of anything else opens it
    elements  single elements that the script has written; many of them open it
    rows      writes of at most a row; many of them open it and tensors that they read
    """

    def __init__(self, is_small: bool = False) -> None:
        self.is_open = False
        self.is_small = is_small
        self.elements = 0
        self.rows = 0


@dataclass(eq=False)
class Cell:
    """A tensor on the tape: its metadata, and its elements once computed."""

    meta: Any
    storage: TapeStorage
    real: Any = None


class OperatorCall(NamedTuple):
    """A call of an operator of torch."""

    function: Any
    args: tuple[Any, ...]
    named: dict[str, Any]

    @property
    def schema(self) -> Any:
        return self.function._schema

    def map(self, function: Callable[[Any], object]) -> OperatorCall:
        """Return the call with `function` applied to every argument, also in lists."""
        return OperatorCall(self.function, _map(function, self.args), _map(function, self.named))

    def run(self) -> Any:
        return self.function(*self.args, **self.named)

    def tensors(self) -> Iterator[Any]:
        return _tensors((self.args, self.named))

    def passed(self) -> list[tuple[Any, Any]]:
        """Return arguments with their alias information in the schema."""
        declared = self.schema.arguments
        by_name = {a.name: a.alias_info for a in declared}
        return [
            *((value, a.alias_info) for value, a in zip(self.args, declared)),
            *((value, by_name[name]) for name, value in self.named.items()),
        ]


@dataclass(eq=False)
class Operation:
    """A recorded operator call, with cells in place of tensors."""

    call: OperatorCall
    results: list[ref[Cell] | None]  # None: an argument that was written
    reads: set[TapeStorage]
    writes: set[TapeStorage]
    replaces: set[TapeStorage]  # cells written in place
    state: tuple[Any, Any] | None = None  # a generator and its state
    number: int = 0  # position on the tape

    @property
    def is_wanted(self) -> bool:
        """Whether its effect is still observable."""
        return bool(self.replaces) or any(cell is not None and cell() for cell in self.results)

    def run(self) -> None:
        call = self.call.map(_real_value)
        if self.state is None:
            made = call.run()
        else:
            generator, state = self.state
            now = generator.get_state()
            generator.set_state(state)
            try:
                made = call.run()
            finally:
                generator.set_state(now)
        for result, value in zip(self.results, _tensors(made)):
            cell = result and result()
            if cell:
                cell.real = value


class Tape:
    """Operations that have not been run, in the order of the script."""

    def __init__(self) -> None:
        self._pending: list[Operation] = []
        self._made = 0  # elements of large tensors so far
        self._added = 0  # operations so far

    def takes(self, elements: int, is_blank: bool) -> bool:
        """Whether to defer a new tensor of this many elements."""
        if elements >= MIN_ELEMENTS:
            self._made += elements
        return elements >= (_MIN_BLANK if is_blank else MIN_ELEMENTS) and self._made > _MIN_MADE

    def add(self, operation: Operation) -> None:
        self._added += 1
        operation.number = self._added
        self._pending.append(operation)
        if len(self._pending) > _MAX_OPERATIONS:
            self._pending = [o for o in self._pending if o.is_wanted]
            self.compute(operation.writes)  # others stay deferred: they may be too large

    def compute(self, storages: set[TapeStorage], readers: bool = False) -> None:
        """Run the operations that write these storages; with `readers`, also their readers."""
        wanted, replaced = set(storages), set(storages) if readers else set[TapeStorage]()
        chosen: list[Operation] = []
        for operation in reversed(self._pending):
            needed = operation.writes & wanted or operation.reads & replaced
            if needed and operation.is_wanted:
                chosen.append(operation)
                wanted |= operation.reads | operation.writes
                replaced |= operation.replaces
        if chosen:
            self._run(chosen)

    def _run(self, newest_first: list[Operation]) -> None:
        """Run operations, and forget each at once: its operands may be large."""
        chosen = {operation.number for operation in newest_first}
        self._pending = [o for o in self._pending if o.number not in chosen]
        if (
            len(chosen) > 1
        ):  # a single operation, such as a read of one element, has no intermediates
            self._forget_unwanted()
        try:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
                while newest_first:
                    newest_first[-1].run()
                    newest_first.pop()
        finally:  # those after one that fails, for lack of memory, are still to be run
            if newest_first:
                rest = [*self._pending, *newest_first]
                self._pending = sorted(rest, key=lambda operation: operation.number)

    def _forget_unwanted(self) -> None:
        """Forget operations whose effect is not observable, the newest first: others may then be
        unwanted, too.
        """
        kept: list[Operation] = []
        while self._pending:
            operation = self._pending.pop()
            if operation.is_wanted:
                kept.append(operation)
        self._pending = kept[::-1]


_TAPE = Tape()


class Deferred(_Tensor):
    """A tensor whose elements are computed on first access."""

    cell: Cell

    def __new__(cls, cell: Cell) -> Self:
        meta = cell.meta
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            meta.size(),
            strides=meta.stride(),
            storage_offset=meta.storage_offset(),
            dtype=meta.dtype,
            device="cpu",
        )
        made.cell = cell
        return made

    @classmethod
    def __torch_function__(
        cls, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        named: dict[str, object] = kwargs or {}
        if not _looks(getattr(func, "__name__", ""), (*args, *named.values())):
            # Otherwise the tensors are computed; mistakes are reported by the operation itself.
            with torch._C.DisableTorchFunctionSubclass(), contextlib.suppress(Exception):
                return func(*args, **named)
        return func(*_map(open_tensor, args), **_map(open_tensor, named))

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _dispatch(OperatorCall(func, args, kwargs or {}))


def _looks(name: str, args: Sequence[object]) -> bool:
    """Whether a function needs the elements, or would choose another algorithm without them."""
    nuclear = any(isinstance(a, str) and a == "nuc" for a in args)
    return name in _LOOKS or name.startswith("linalg_") or nuclear


class Deferring(_FunctionMode):
    """While active, large tensors that the script creates are `Deferred`."""

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        names = [getattr(torch, name, None) for name in _FACTORIES]
        self._factories = {function for function in names if function is not None}

    def __torch_function__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in self._factories:
            with _Making():
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class _Making(_DispatchMode):
    """Active in functions that create tensors, whose operators have no tensor arguments."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Leave the compiler of torch alone: to skip it, torch would load it."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _dispatch(OperatorCall(func, args, kwargs or {}))


def open_tensor(value: object) -> Any:
    """Return a computed tensor that the script may modify."""
    if not isinstance(value, Deferred):
        return value
    storage = value.cell.storage
    if not storage.is_open:
        _TAPE.compute({storage}, readers=True)
        storage.is_open = True
    return _value(value)


def _value(value: object) -> Any:
    """Return a computed tensor for reading."""
    if not isinstance(value, Deferred):
        return value
    _TAPE.compute({value.cell.storage})
    return value.cell.real


def _dispatch(call: OperatorCall) -> Any:
    """Record an operator if its result is large or an operand is deferred, else run it."""
    made = _without_elements(call)
    if made is None:
        return _run_now(call)
    passed = call.passed()
    is_small = call.function._overloadpacket.__name__ in _BLANKS and made.numel() < MIN_ELEMENTS
    results = [
        _result(value, alias, passed, is_small) for value, alias in _with_aliases(call, made)
    ]
    changed = {id(value) for value in _changed_tensors(passed)}
    fresh = [None if id(result) in changed else ref(result.cell) for result in results]
    reads = {t.cell.storage for t in call.tensors() if isinstance(t, Deferred)}
    operation = Operation(
        call.map(_keep_copy),
        fresh,
        reads,
        {result.cell.storage for result in results},
        {value.cell.storage for value in _changed_tensors(passed)},
    )
    is_draw = torch.Tag.nondeterministic_seeded in call.function.tags
    if is_draw:
        generator = call.named.get("generator") or torch.default_generator
        before = generator.get_state()
        moved = _after_draw(generator, call, results[0].cell.meta)
        if moved is not None:
            operation.state = generator, before
            generator.set_state(moved)
    _TAPE.add(operation)
    if is_draw and operation.state is None:
        _TAPE.compute(operation.writes)
    return _in_form(made, iter(results))


def _result(value: Any, alias: Any, passed: Sequence[tuple[Any, Any]], is_small: bool) -> Deferred:
    """Return the cell of a result: a modified argument, a view of one, or a new tensor."""
    if alias is None:
        return Deferred(Cell(value, TapeStorage(is_small)))
    sets = alias.before_set  # none where the result is a list
    base = next(a for a, info in passed if info and (not sets or info.before_set & sets))
    return base if alias.is_write else Deferred(Cell(value, base.cell.storage))


def _without_elements(call: OperatorCall) -> Any | None:
    """Return the result on the meta device; None if the operation cannot be recorded."""
    function, args, named = call
    tensors = list(call.tensors())
    if not any(isinstance(t, Deferred) for t in tensors):
        size = _size(call)
        is_blank = function._overloadpacket.__name__ in _BLANKS
        if size is None or not _TAPE.takes(size, is_blank):
            return None
    plain = [t for t in tensors if not isinstance(t, Deferred)]
    if any(t.device.type != "cpu" or t.requires_grad or t.numel() >= MIN_ELEMENTS for t in plain):
        return None
    if any(isinstance(t, Deferred) and t.cell.storage.is_open for t in tensors):
        return None
    if any(str(r.type) not in ("Tensor", "List[Tensor]") for r in call.schema.returns):
        return None
    changed = _changed_tensors(call.passed())
    if not all(isinstance(value, Deferred) for value in changed):
        return None
    filled = changed if _is_plain_fill(changed, tensors) else _filled_by_rows(changed, tensors)
    if filled:
        for value in filled:
            open_tensor(value)
        return None
    if _depends_on_elements(function, tensors):
        return None
    described = _map(_meta_of, named) | dict.fromkeys(named.keys() & {"generator"})
    if any(a.name == "device" for a in call.schema.arguments):
        if str(named.get("device") or "cpu") != "cpu":
            return None
        if not tensors or "device" in named:
            described["device"] = "meta"
    described.pop("pin_memory", None)
    try:
        return function(*_map(_meta_of, args), **described)
    except Exception:  # no meta kernel, or wrong arguments, which running it will report
        return None


def _is_plain_fill(changed: Sequence[Any], tensors: Sequence[Any]) -> bool:
    """Whether a write takes nothing from the tape and its target is small or filled by elements."""
    filled = {value.cell.storage for value in changed}
    if not filled or any(isinstance(t, Deferred) and t.cell.storage not in filled for t in tensors):
        return False
    for value in changed:
        value.cell.storage.elements += value.numel() == 1
    return any(s.is_small or s.elements > _MAX_WRITES for s in filled)


def _filled_by_rows(changed: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
    """Return the tensors of a write into one that the script fills row by row.

    Recording the copy of a row takes much longer than the copy. Sources larger than the target
    stay deferred.
    """
    storages = {value.cell.storage for value in changed if value.numel() <= _MAX_ROW}
    for storage in storages:
        storage.rows += 1
    if not any(storage.rows > _MAX_ROWS for storage in storages):
        return []
    largest = max(_storage_bytes(value) for value in changed)
    return [t for t in tensors if isinstance(t, Deferred) and _storage_bytes(t) <= largest]


def _storage_bytes(value: Deferred) -> int:
    return value.cell.meta.untyped_storage().nbytes()


def _size(call: OperatorCall) -> int | None:
    """Return how many elements a function creates; None if unknown."""
    for declared, value in zip(call.schema.arguments, call.args):
        if declared.name == "size":
            return math.prod(value)
        if declared.name == "self":
            return value.numel()
    return math.prod(call.named["size"]) if "size" in call.named else None


def _depends_on_elements(function: Any, tensors: Sequence[Any]) -> bool:
    """Whether the shape of the result depends on elements."""
    if function is torch.ops.aten.index.Tensor:
        return any(t.dtype in (torch.bool, torch.uint8) for t in tensors[1:])
    odd = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    return bool(odd & set(function.tags))


def _run_now(call: OperatorCall) -> Any:
    aliases = [r.alias_info for r in call.schema.returns]
    gives_views = any(alias is not None and not alias.is_write for alias in aliases)
    for value in _changed_tensors(call.passed()):
        if isinstance(value, Deferred):
            _TAPE.compute({value.cell.storage}, readers=True)
    made = call.map(open_tensor if gives_views else _value).run()
    own = {id(t.cell.real): t for t in call.tensors() if isinstance(t, Deferred)}
    return _map(lambda value: own.get(id(value), value), made)


# ---- what an operator's schema says


def _changed_tensors(passed: Sequence[tuple[Any, Any]]) -> list[Any]:
    """Return the tensors that an operator writes in place."""
    return [t for value, info in passed if info and info.is_write for t in _tensors(value)]


def _with_aliases(call: OperatorCall, made: Any) -> Iterator[tuple[object, object]]:
    """Yield tensors of a result with their alias information in the schema."""
    returns = call.schema.returns
    for value, declared in zip([made] if len(returns) == 1 else made, returns):
        for tensor in _tensors(value):
            yield tensor, declared.alias_info


# ---- arguments, which may be lists of tensors


def _tensors(value: object) -> Iterator[Any]:
    if isinstance(value, _Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(cast("dict[Any, Any]", value).values()))
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[Any]", value):
            yield from _tensors(item)


def _map(function: Callable[[Any], object], value: object) -> Any:
    if isinstance(value, dict):
        return {k: _map(function, v) for k, v in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        items = [_map(function, item) for item in cast("Sequence[Any]", value)]
        return items if isinstance(value, list) else tuple(items)
    return function(value)


def _in_form(made: object, results: Iterator[object]) -> Any:
    return _map(lambda value: next(results) if isinstance(value, _Tensor) else value, made)


def _meta_of(value: Any) -> Any:
    if isinstance(value, Deferred):
        return value.cell.meta
    if isinstance(value, _Tensor):
        # A wrapped number does not take part in type promotion.
        return value if value.ndim == 0 else value.to("meta")
    return value


def _keep_copy(value: Any) -> Any:
    """Copy a small argument, which the script may modify later."""
    if isinstance(value, Deferred):
        return value.cell
    return value.clone() if isinstance(value, _Tensor) else value


def _real_value(value: object) -> Any:
    return value.real if isinstance(value, Cell) else value


# ---- generators

_STATE_BYTES = 5056
_FILLS = ("normal_", "uniform_", "random_", "randn_like", "rand_like", "randint_like")
# Layout of the state of torch's CPU generator.
_LEFT, _NEXT, _KEY, _REST = 8, 16, 24, 24 + 8 * mersenne_twister.WORDS


def _after_draw(generator: Any, call: OperatorCall, meta: Any) -> object | None:
    """Return the generator's state after a draw of `meta`'s shape; None if unknown."""
    state = generator.get_state()
    if state.numel() != _STATE_BYTES or not meta.is_contiguous() or meta.numel() < MIN_ELEMENTS:
        return None
    last = meta.numel() % 16
    taken = [_numbers_taken(generator, call, 16 * n + last) for n in (1, 2, 3)]
    generator.set_state(state)
    first, second, third = taken
    if first is None or second is None or third is None or third - second != second - first:
        return None
    return _state_after(state, first + (meta.numel() // 16 - 1) * (second - first))


def _numbers_taken(generator: Any, call: OperatorCall, size: int) -> int | None:
    """Return how many numbers a draw of `size` elements consumes."""
    function, args, named = call
    names = [a.name for a in call.schema.arguments]
    small = list(args)
    if function.overloadpacket.__name__ in _FILLS:
        small[0] = torch.empty(size, dtype=args[0].dtype)
    elif "size" in names[: len(args)]:
        small[names.index("size")] = [size]
    else:
        return None
    if any(isinstance(v, _Tensor) for v in (*small[1:], *named.values())):
        return None
    before = generator.get_state()
    function(*small, **named)
    after = generator.get_state()
    if not torch.equal(before[_REST:], after[_REST:]):  # it caches a number for the next draw
        return None
    return (_position(after) - _position(before)) % mersenne_twister.WORDS


def _position(state: Any) -> int:
    left = int(state[_LEFT : _LEFT + 4].view(torch.int32))
    return mersenne_twister.WORDS if left == 1 else int(state[_NEXT : _NEXT + 8].view(torch.int64))


def _state_after(state: Any, steps: int) -> object:
    """Return the state after `steps` more numbers."""
    key = state[_KEY:_REST].view(torch.int64).numpy().astype(np.uint32)
    key, position = mersenne_twister.state_after(key, _position(state), steps)
    moved = state.clone()
    moved[_KEY:_REST].view(torch.int64).copy_(torch.from_numpy(key.astype(np.int64)))
    moved[_LEFT : _LEFT + 4].view(torch.int32).fill_(mersenne_twister.WORDS + 1 - position)
    moved[_NEXT : _NEXT + 8].view(torch.int64).fill_(position)
    return moved
