"""Call the user's golden function, and check that it wrote its outputs."""

from __future__ import annotations

import inspect
from bdb import BdbQuit
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tilelet.diag.catalogue.cautions import GoldenLeftOutputs
from tilelet.diag.catalogue.harness import (
    GoldenRaised,
    GoldenUnknownName,
    GoldenWrongShape,
    GoldenWroteNothing,
    UnknownData,
)
from tilelet.diag.core import Loc
from tilelet.diag.tracebacks import user_traceback
from tilelet.dtypes import Array
from tilelet.runtime import session
from tilelet.runtime.data.arrays import as_array, as_tensor, is_array
from tilelet.runtime.data.inputs import seed_of
from tilelet.runtime.data.lent import NONE_LENT, LentInputs
from tilelet.runtime.data.seeds import seeded_generators, torch_seed
from tilelet.runtime.session import Session
from tilelet.runtime.torch_scripts.threads import short_work_alone

Golden = Callable[..., Any]
Bits = NDArray[np.bool_]
Scalar = np.generic

# Fill pattern that shows whether the golden writes an output; no result has such bytes.
_MARK = 0x5A


def takes_params(golden: Golden) -> bool:
    """Whether the golden can be called in the older form `golden(tensors, params)`."""
    return len(_positional(golden)) >= 2


def needs_params(golden: Golden) -> bool:
    """Whether the golden can only be called in the older form."""
    return sum(p.default is p.empty for p in _positional(golden)) >= 2


def _positional(function: Golden) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p for p in parameters if p.kind in kinds]


def golden_loc(golden: Golden) -> Loc | None:
    """Where the golden is defined."""
    code = getattr(inspect.unwrap(golden), "__code__", None)
    return Loc(code.co_filename, code.co_firstlineno) if code else None


def compute_golden(
    golden: Golden,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Scalar],
    outputs: Sequence[str],
    maybe_outputs: Sequence[str] = (),
    fresh: Sequence[str] = (),
    use_torch: bool = False,
    seed: int | None = None,
    now: Session | None = None,
    lent: LentInputs = NONE_LENT,
) -> dict[str, Array]:
    """Run the golden on copies of the arguments; return the expected array of every output.

    `seed` is the `draw_seed` of the golden's random numbers.
    `outputs` are certainly compared. `maybe_outputs` are in the result only if the golden writes
    them. `fresh` are outputs without initial data: the golden must write each of them.
    """
    names = (*outputs, *maybe_outputs)
    given = lent.copies(arrays, names)
    seed = torch_seed() if seed is None else seed
    tensors, touched = _call(golden, given, scalars, names, use_torch, seed)
    del given
    results = {name: lent.apart(_result(name, tensors[name], arrays[name])) for name in names}
    lent.restore()
    unchanged = [name for name in names if _same_bits(results[name], arrays[name])]
    written = set(names).difference(unchanged) | {name for name in names if touched.get(name)}
    suspects = [
        name
        for name in unchanged
        if name not in written
        # Tensors that torch reports as unwritten are not outputs.
        and (name in fresh or (name in maybe_outputs and touched.get(name) is None))
    ]
    if suspects or not written:
        marked = suspects or unchanged
        tensors.clear()
        kept = unchanged_elements(golden, arrays, scalars, names, marked, use_torch, seed, lent)
        written |= {name for name, elements in kept.items() if not elements.all()}
    missing = [name for name in outputs if name in fresh and name not in written]
    if missing:
        raise GoldenWroteNothing(missing, golden_loc(golden))
    if names and not written:
        (now or session.current()).report([GoldenLeftOutputs(names, golden_loc(golden)).diagnostic])
        return results
    return {name: results[name] for name in names if name in outputs or name in written}


def _call(
    golden: Golden,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Scalar],
    outputs: Sequence[str],
    use_torch: bool,
    seed: int,
) -> tuple[dict[str, object], dict[str, bool]]:
    """Call the golden once; return every tensor as it was left, replaced or returned.

    Also return whether each was written, as far as torch knows.
    """
    wrap = as_tensor if use_torch else np.asarray
    tensors: dict[str, object] = {name: wrap(array) for name, array in arrays.items()}
    # Scalars are arrays without axes, so that `.item()` works on them.
    tensors |= {name: wrap(np.array(value)) for name, value in scalars.items()}
    names = set(tensors)
    before = dict(tensors)
    versions = {name: _version(value) for name, value in tensors.items()}
    try:
        with seeded_generators(seed_of("golden", seed)), short_work_alone():
            if takes_params(golden):
                returned = golden(tensors, {name: value.item() for name, value in scalars.items()})
            else:
                returned = golden(tensors)
    except BdbQuit:
        raise
    except Exception as error:
        raise GoldenRaised(user_traceback(error), golden_loc(golden)) from error
    tensors |= _by_name(returned, outputs)
    added = [name for name in tensors if name not in names]
    if added:
        raise GoldenUnknownName(added[0], outputs)
    touched = {
        name: tensors[name] is not before[name] or _version(tensors[name]) != version
        for name, version in versions.items()
        if version is not None
    }
    return tensors, touched


def _version(tensor: Any) -> int | None:
    """Return torch's version counter of a tensor, which also counts writes through views."""
    try:
        return int(tensor._version)
    except (AttributeError, RuntimeError):
        return None


def _by_name(returned: object, outputs: Sequence[str]) -> dict[str, object]:
    """A golden may also return its results: a dictionary, or one array per output in order."""
    if isinstance(returned, Mapping):
        return dict(cast("Mapping[str, object]", returned))
    is_several = isinstance(returned, tuple | list)
    results: list[object] = [*cast("Sequence[object]", returned)] if is_several else [returned]
    if len(results) == len(outputs) and all(is_array(r) for r in results):
        return dict(zip(outputs, results))
    return {}


def _result(name: str, value: object, like: Array) -> Array:
    """Return the golden's array `name` in the output's element type."""
    try:
        found = as_array(value) if is_array(value) else np.asarray(value)
        if found.shape != like.shape:
            raise GoldenWrongShape(name, found.shape, like.shape)
        if found.dtype == like.dtype:
            return found
        with np.errstate(over="ignore", invalid="ignore"):
            return found.astype(like.dtype)
    except (TypeError, ValueError, OverflowError) as error:  # sparse, ragged, of objects
        raise UnknownData(name, type(value).__name__, why=str(error)) from None


def unchanged_elements(
    golden: Golden,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Scalar],
    outputs: Sequence[str],
    names: Sequence[str],
    use_torch: bool,
    seed: int,
    lent: LentInputs = NONE_LENT,
) -> dict[str, Bits]:
    """Return which elements of some arrays the golden leaves as it found them.

    An element that equals its initial value may have been written, so the golden runs again on
    initial data that no computation yields.
    """
    marked = lent.copies(arrays, {*outputs, *names})
    for name in names:
        # BOOL has no spare value for the fill pattern.
        _bytes(marked[name])[...] = 1 if arrays[name].dtype == np.bool_ else _MARK
    try:
        tensors, _ = _call(golden, marked, scalars, outputs, use_torch, seed)
        return {name: _still_marked(_result(name, tensors[name], arrays[name])) for name in names}
    except GoldenRaised:
        # a failure on such data means that it is read
        return {name: np.zeros(arrays[name].shape, np.bool_) for name in names}
    finally:
        lent.restore()


def _still_marked(array: Array) -> Bits:
    if array.dtype == np.bool_:
        return np.zeros_like(array, dtype=np.bool_)
    mark = np.full(array.dtype.itemsize, _MARK, np.uint8).view(f"u{array.dtype.itemsize}")
    same: Bits = np.ascontiguousarray(array).view(mark.dtype) == mark
    return same


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def _same_bits(a: Array, b: Array) -> bool:
    return np.array_equal(_bytes(np.ascontiguousarray(a)), _bytes(np.ascontiguousarray(b)))
