"""Judging of cases: required properties, and what is reported if one fails."""

from __future__ import annotations

import copy
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
from tilelet.interp.state import State
from tilelet.ir.core import Program
from tilelet.ir.verify import verify
from tilelet.passes.pipeline import run_passes
from tilelet.tasks.arguments import bind_arguments

_FUNCTIONS = re.compile(r"\.(?:exp|log|sin|cos)\(|expdif")
_CODE = re.compile(r"error\[E\d{4}\]")
# Generated programs overflow on purpose, which is rejected if all operands are constants; and
# kernels that view a parameter in another shape are also called with windows.
_EXPECTED = ("E0322", "E0512")
_SHORT_OF_MEMORY = f"[{TooBig.code}]"
FAILURES = ("wrong", "refused", "internal", "crash", "hang")


@dataclass(frozen=True)
class Verdict:
    """kind: one of `FAILURES`; else "right", "rejected" (a user's error), "long" (till Ctrl-C).

    inputs  number of input sets that were tried
    """

    kind: str
    detail: str = ""
    inputs: int = 1

    @property
    def is_failure(self) -> bool:
        return self.kind in FAILURES

    @property
    def signature(self) -> str:
        """Return a key that similar failures share."""
        lines = self.detail.strip().splitlines() or [""]
        raised = [
            line for line in lines if re.match(r"[\w.]+(?:Error|Exception|internal error)\b", line)
        ]
        line = raised[-1] if raised else lines[0]
        return f"{self.kind}: {re.sub(r'[0-9]+', '#', line)[:100]}"


@dataclass
class Trial:
    """Arguments, and the interpreter's results for them: arrays, or the message of an error."""

    arguments: dict[str, Any]
    expected: Any
    tasks: range | None = None


@dataclass
class Prepared:
    """Judge a case that needs no native code."""

    case: Case
    kernel: Kernel
    program: Program
    code: Compiled
    trials: list[Trial]


def prepare(case: Case, folder: Path) -> Prepared | Verdict:
    """Compile and interpret; return a verdict if native code is not needed."""
    kernel = case.kernel()
    if not case.is_generated and not _is_python(kernel.text):
        return Verdict("rejected", "no Python")
    try:
        program = run_passes(compile_text(kernel, folder, kernel.arguments()))
        verify(program)
        code = emitted(program)
    except Exception as problem:
        return _error(case, problem)
    prepared = Prepared(case, kernel, program, code, [])
    oracle = _Oracle(prepared)
    try:
        for number in range(case.input_sets):
            found = oracle.trial(_arguments(case, kernel, number), is_first=number == 0)
            if isinstance(found, Verdict):
                return found
            prepared.trials.append(found)
    except AssertionError as problem:
        return Verdict("wrong", f"the interpreter: {problem}")
    return prepared


def _arguments(case: Case, kernel: Kernel, number: int) -> dict[str, Any]:
    """Return the arguments of one trial; those of a text also with and without extreme values."""
    params = tuple(
        replace(p, seed=p.seed + 1009 * number, nasty=p.nasty ^ (number % 2 and case.is_text))
        for p in (case.kernel(number).params if case.sizes else kernel.params)
    )
    arguments = replace(kernel, params=params).arguments()
    return spoilt(arguments, case.inputs + number) if case.inputs else arguments


class _Oracle:
    """Return the interpreter, which lowers a program once for all trials."""

    def __init__(self, prepared: Prepared) -> None:
        self._of = prepared
        self._state: State | None = None
        self._has_functions = bool(_FUNCTIONS.search(prepared.kernel.text))

    def _run(self, given: dict[str, Any]) -> None:
        engine, program = Interpreter(), self._of.program
        if self._state is None:
            self._state, bound = engine.begin(program, given)
        else:
            self._state.restart()
            bound = bind_arguments(program, given, execute=True)
        engine.go_on(program, self._state, bound)

    def trial(self, arguments: dict[str, Any], *, is_first: bool) -> Trial | Verdict:
        """Interpret with exp and the like as defined, and again as the engine computes them."""
        outcome, tasks = None, None
        if is_first or not self._has_functions:
            outcome = _outcome(self._run, arguments)
            if self._of.case.is_generated and not isinstance(outcome, Exception):
                expected = copy.deepcopy(arguments)
                tasks = self._of.kernel.evaluate(expected)
                compare(outcome, expected, "the oracle")
        if self._has_functions and not isinstance(outcome, Exception):
            with pytest.MonkeyPatch.context() as patch:
                share_functions(patch)
                outcome = _outcome(self._run, arguments)
        if not isinstance(outcome, Exception):
            return Trial(arguments, outcome, tasks)
        verdict = _error(self._of.case, outcome)
        return verdict if verdict.is_failure else Trial(arguments, verdict.detail)


def _outcome(run: Callable[[Any], Any], arguments: dict[str, Any]) -> Any:
    """Return the arrays that a run leaves, or its error."""
    given = _copied(arguments)
    try:
        run(given)
    except Exception as problem:
        return problem
    return given


def _copied(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return copies that keep strides, flags and shared memory."""
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
    """Run natively: the first trial with several numbers of threads and orders of tasks."""
    rng = np.random.default_rng(len(p.kernel.text))
    kinds: set[str] = set()
    for number, trial in enumerate(p.trials):
        kinds.add("rejected" if isinstance(trial.expected, str) else "right")
        if not are_aligned(trial.arguments):  # the engine leaves such arrays to the interpreter
            continue
        orders = [(threads, int(rng.integers(1 << 30))) for threads in (2, 4)]
        orders = [(1, -1), *orders] if number == 0 else orders[number % 2 :][:1]
        for threads, order in orders:
            how = f"input {number}, {threads} threads, order {order}"
            try:
                verdict = _same(p.case, trial, _native_outcome(trial, native, threads, order))
            except AssertionError as problem:
                return Verdict("wrong", f"the native engine, {how}: {problem}")
            if verdict is not None:
                return verdict
    return Verdict("right" if "right" in kinds else "rejected", inputs=len(p.trials))


def _native_outcome(trial: Trial, native: NativeProgram, threads: int, order: int) -> Any:
    def run(given: Any) -> None:
        counts = native.run(given, threads, order)
        if trial.tasks is not None and counts.total not in trial.tasks:
            raise AssertionError(f"{counts.total} tasks, not {trial.tasks}")

    return _outcome(run, trial.arguments)


def _same(case: Case, trial: Trial, found: Any) -> Verdict | None:
    if isinstance(found, AssertionError):
        raise found
    wanted = trial.expected
    if isinstance(wanted, str) and _SHORT_OF_MEMORY in wanted:
        return None  # the engines need different amounts, and free memory varies
    if isinstance(found, Exception):
        verdict = _error(case, found)
        if verdict.is_failure:
            return verdict
        expected = wanted if isinstance(wanted, str) else "a result"
        assert verdict.detail == expected, f"{verdict.detail}\nbut the interpreter: {expected}"
        return None
    assert not isinstance(wanted, str), f"no error, but the interpreter: {_first(wanted)}"
    arrays = {n: a for n, a in wanted.items() if isinstance(a, np.ndarray)}
    compare(found, arrays, "the interpreter")
    return None


def _first(message: str) -> str:
    return message.splitlines()[0]


def judge_all(cases: list[Case], folder: Path, optimise: str) -> Iterator[tuple[int, str, Any]]:
    """Judge all cases: yield `(number, "begins" or "is", stage or verdict)`."""
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
    """Compile all together; if C is rejected, bisect down to the case to blame."""
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
