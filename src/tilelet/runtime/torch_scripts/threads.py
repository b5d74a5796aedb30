"""Run small torch operations on one thread.

Goldens often compute block by block, in tens of thousands of small operations. torch parallelizes
these, too, and its threads wait by spinning: on a busy machine an operation of 50 us takes a
millisecond.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tilelet.runtime.data.arrays import loaded_torch

MIN_PRODUCT = 1 << 22
"""Minimum number of multiplications for several threads."""
MIN_ELEMENTS = 1 << 19
"""Minimum number of elements for several threads."""


@contextmanager
def short_work_alone() -> Generator[None]:
    """Runs small operations on one thread, all others on the configured number."""
    torch = loaded_torch()
    threads = torch.get_num_threads() if torch else 1
    if torch is None or threads == 1:
        yield
        return
    mode = _mode(torch)(threads)
    try:
        with mode:
            yield
    finally:
        mode.end()


@functools.lru_cache(maxsize=1)
def _mode(torch: ModuleType) -> Any:
    """The class, which exists only with torch."""
    work = _products(torch)

    class Mode(torch.overrides.TorchFunctionMode):
        def __init__(self, threads: int) -> None:
            self.threads = threads
            self.now = threads

        def __torch_function__(
            self, func: Any, types: object, args: Any = (), kwargs: Any = None
        ) -> Any:
            wanted = 1 if _is_short(torch, work, func, args) else self.threads
            # A number of threads set by the golden takes precedence.
            if wanted != self.now and torch.get_num_threads() == self.now:
                torch.set_num_threads(wanted)
                self.now = wanted
            return func(*args, **(kwargs or {}))

        def end(self) -> None:
            if self.now != self.threads and torch.get_num_threads() == self.now:
                torch.set_num_threads(self.threads)

    return Mode


def _is_short(
    torch: ModuleType, work: dict[object, Callable[..., int]], func: Any, args: Sequence[Any]
) -> bool:
    multiplications = work.get(func)
    try:
        if multiplications is not None:
            return multiplications(*args) < MIN_PRODUCT
    except (AttributeError, IndexError, TypeError, ValueError):
        return False  # called with other arguments
    sizes = [a.numel() for a in args[:3] if isinstance(a, torch.Tensor)]
    return not sizes or max(sizes) < MIN_ELEMENTS


def _products(torch: ModuleType) -> dict[object, Callable[..., int]]:
    """Map each product op to an upper bound on its multiplications."""
    tensor = torch.Tensor
    found: dict[object, Callable[..., int]] = dict.fromkeys(
        (
            *(torch.matmul, torch.mm, torch.bmm, torch.mv, torch.dot),
            *(tensor.matmul, tensor.mm, tensor.bmm, tensor.mv, tensor.dot, tensor.__matmul__),
        ),
        _of_matmul,
    )
    found[tensor.__rmatmul__] = _of_matmul_from_the_right
    found[torch.nn.functional.linear] = _of_linear
    found[torch.einsum] = _of_einsum
    return found


def _of_matmul(a: Any, b: Any) -> int:
    batches = max(math.prod(a.shape[:-2]), math.prod(b.shape[:-2]))
    rows = a.shape[-2] if a.ndim > 1 else 1
    columns = b.shape[-1] if b.ndim > 1 else 1
    return batches * rows * a.shape[-1] * columns


def _of_matmul_from_the_right(b: object, a: object) -> int:
    return _of_matmul(a, b)


def _of_linear(x: Any, weight: Any, *_: object) -> int:
    return x.numel() * weight.shape[0]


def _of_einsum(equation: str, *operands: Any) -> int:
    extents: dict[str, int] = {}
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    for labels, operand in zip(terms, operands, strict=True):
        if "." in labels:
            raise ValueError
        extents.update(zip(labels, operand.shape, strict=True))
    return math.prod(extents.values())
