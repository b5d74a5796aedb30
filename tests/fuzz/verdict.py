"""Judging cases: what must hold for each, and what is said if it does not."""

from __future__ import annotations

import copy
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cpu.both import share_functions
from tests.fuzz import quick
from tests.fuzz.cases import Case
from tests.fuzz.library import emitted, load_together
from tests.fuzz.mutations import spoilt
from tests.generated.generator import Kernel
from tests.generated.harness import compare, compile_text

from tilelet.cpu.emit.program import Compiled
from tilelet.cpu.run.engine import NativeProgram, are_aligned
from tilelet.diag.catalogue.harness import TooBig
from tilelet.diag.core import UserError, UserErrors
from tilelet.diag.internal import InternalError
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program
from tilelet.ir.verify import verify
from tilelet.passes.pipeline import run_passes

_FUNCTIONS = re.compile(r"\.(?:exp|log|sin|cos)\(|expdif")
_CODE = re.compile(r"error\[E\d{4}\]")
# Generated programs overflow on purpose, which is refused where all operands are constants; and
# kernels that view a parameter in another shape are called with windows, too.
_EXPECTED = ("E0322", "E0512")
_SHORT_OF_MEMORY = f"[{TooBig.code}]"
FAILURES = ("wrong", "refused", "internal", "crash", "hang")


@dataclass(frozen=True)
class Verdict:
    """kind: one of `FAILURES`; else "right", "rejected" (a user's error), "long" (till Ctrl-C)."""

    kind: str
    detail: str = ""

    @property
    def is_failure(self) -> bool:
        return self.kind in FAILURES

    @property
    def signature(self) -> str:
        """The same for failures that look the same."""
        lines = self.detail.strip().splitlines() or [""]
        raised = [
            line for line in lines if re.match(r"[\w.]+(?:Error|Exception|internal error)\b", line)
        ]
        line = raised[-1] if raised else lines[0]
        return f"{self.kind}: {re.sub(r'[0-9]+', '#', line)[:100]}"


@dataclass
class Prepared:
    """A case after all that needs no native code."""

    case: Case
    kernel: Kernel
    program: Program
    code: Compiled
    arguments: dict[str, Any]
    expected: Any  # arrays, or the code of an error
    tasks: range | None


def prepare(case: Case, folder: Path) -> Prepared | Verdict:
    """Compile and interpret; a verdict, if that is all there is to say."""
    kernel = case.kernel()
    if not case.is_generated and not _is_python(kernel.text):
        return Verdict("rejected", "no Python")
    arguments = kernel.arguments()
    try:
        program = run_passes(compile_text(kernel, folder, arguments))
        verify(program)
        code = emitted(program)
    except Exception as problem:
        return _error(case, problem)
    given = spoilt(arguments, case.inputs) if case.inputs else arguments
    prepared = Prepared(case, kernel, program, code, given, None, None)
    try:
        return _interpret(prepared)
    except AssertionError as problem:
        return Verdict("wrong", f"the interpreter: {problem}")


def _interpret(p: Prepared) -> Prepared | Verdict:
    engine = _outcome(lambda given: Interpreter().run(p.program, given), p.arguments)
    if isinstance(engine, Exception):
        verdict = _error(p.case, engine)
        if verdict.is_failure:
            return verdict
        p.expected = verdict.detail
        return p
    if p.case.is_generated:
        expected = copy.deepcopy(p.arguments)
        p.tasks = p.kernel.evaluate(expected)
        compare(engine, expected, "the oracle")
    if _FUNCTIONS.search(p.kernel.text):
        with pytest.MonkeyPatch.context() as patch:
            share_functions(patch)
            engine = _outcome(lambda given: Interpreter().run(p.program, given), p.arguments)
    p.expected = engine
    return p


def _outcome(run: Callable[[Any], Any], arguments: dict[str, Any]) -> Any:
    """The arrays that a run leaves, or its error."""
    given = _copied(arguments)
    try:
        run(given)
    except Exception as problem:
        return problem
    return given


def _copied(arguments: dict[str, Any]) -> dict[str, Any]:
    """Copies that keep strides, flags and shared memory."""
    memo: dict[int, Any] = {}

    def one(a: Any) -> Any:
        if not isinstance(a, np.ndarray):
            return a
        if id(a) not in memo:
            base = a
            while isinstance(base.base, np.ndarray):
                base = base.base
            copied = memo.setdefault(id(base), base.copy(order="K"))
            if base is a:
                memo[id(a)] = copied
            else:
                at = a.__array_interface__["data"][0] - base.__array_interface__["data"][0]
                memo[id(a)] = np.ndarray(a.shape, a.dtype, copied, at, a.strides)
            memo[id(a)].flags.writeable = a.flags.writeable
        return memo[id(a)]

    return {name: one(a) for name, a in arguments.items()}


def _is_python(text: str) -> bool:
    try:
        compile(text, "case", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _error(case: Case, problem: Exception) -> Verdict:
    shown = "".join(traceback.format_exception(problem))
    if not isinstance(problem, (UserError, UserErrors)):
        return Verdict("internal", shown[-4000:])
    message = str(problem)
    if not _CODE.search(message):
        return Verdict("internal", f"{message}\nno code")
    unexpected = case.is_generated and not any(code in message for code in _EXPECTED)
    return Verdict("refused" if unexpected else "rejected", message)


def finish(p: Prepared, native: NativeProgram) -> Verdict:
    """Run natively with several numbers of threads and orders of tasks."""
    if not are_aligned(p.arguments):  # the engine leaves such arrays to the interpreter
        return Verdict("right" if not isinstance(p.expected, str) else "rejected")
    rng = np.random.default_rng(len(p.kernel.text))
    orders = [(1, -1), *((threads, int(rng.integers(1 << 30))) for threads in (2, 4))]
    for threads, order in orders:
        how = f"{threads} threads, order {order}"
        try:
            verdict = _same(p, _outcome(_counting(p, native, threads, order), p.arguments))
        except AssertionError as problem:
            return Verdict("wrong", f"the native engine, {how}: {problem}")
        if verdict is not None:
            return verdict
    return Verdict("right" if not isinstance(p.expected, str) else "rejected")


def _counting(
    p: Prepared, native: NativeProgram, threads: int, order: int
) -> Callable[[Any], None]:
    def run(given: Any) -> None:
        counts = native.run(given, threads, order)
        if p.tasks is not None and counts.total not in p.tasks:
            raise AssertionError(f"{counts.total} tasks, not {p.tasks}")

    return run


def _same(p: Prepared, found: Any) -> Verdict | None:
    if isinstance(found, AssertionError):
        raise found
    if isinstance(p.expected, str) and _SHORT_OF_MEMORY in p.expected:
        return None  # the engines need different amounts, and what is free changes
    if isinstance(found, Exception):
        verdict = _error(p.case, found)
        if verdict.is_failure:
            return verdict
        expected = p.expected if isinstance(p.expected, str) else "a result"
        assert _first(verdict.detail) == _first(expected), (
            f"{_first(verdict.detail)}, but the interpreter: {_first(expected)}"
        )
        return None
    assert not isinstance(p.expected, str), f"no error, but the interpreter: {_first(p.expected)}"
    arrays = {n: a for n, a in p.expected.items() if isinstance(a, np.ndarray)}
    compare(found, arrays, "the interpreter")
    return None


def _first(message: str) -> str:
    return message.splitlines()[0]


def judge_all(cases: list[Case], folder: Path, optimise: str) -> Iterator[tuple[int, str, Any]]:
    """Judge all cases: `(number, "begins" or "is", stage or verdict)`, as they come."""
    ready: list[tuple[int, Prepared]] = []
    for i, case in enumerate(cases):
        yield i, "begins", "prepare"
        try:
            found = prepare(case, folder)
        except KeyboardInterrupt:
            found = _long(case, "interpreted")
        except Exception:
            found = Verdict("internal", traceback.format_exc())
        if isinstance(found, Verdict):
            yield i, "is", found
        else:
            ready.append((i, found))
    yield -1, "begins", "compile"
    natives = _natives(ready, optimise)
    for i, prepared in ready:
        yield i, "begins", "run"
        native = natives[i]
        if isinstance(native, Exception):
            yield i, "is", Verdict("internal", f"{native}")
            continue
        try:
            yield i, "is", finish(prepared, native)
        except KeyboardInterrupt:
            yield i, "is", _long(prepared.case, "native")


def _long(case: Case, how: str) -> Verdict:
    """A generated program takes milliseconds; any other may have an endless loop."""
    return Verdict("hang" if case.is_generated else "long", how)


def _natives(
    ready: list[tuple[int, Prepared]], optimise: str
) -> dict[int, NativeProgram | Exception]:
    """All together; if C is not accepted, halves of them, down to the one that is to blame."""
    try:
        together = load_together([(p.program, p.code) for _, p in ready], optimise) if ready else []
        return {i: native for (i, _), native in zip(ready, together)}
    except (UserError, UserErrors, InternalError, quick.RefusedError) as problem:
        if len(ready) > 1:
            half = len(ready) // 2
            return _natives(ready[:half], optimise) | _natives(ready[half:], optimise)
        if isinstance(problem, quick.RefusedError):
            return _natives(ready, "-O0")
        return {ready[0][0]: problem}
