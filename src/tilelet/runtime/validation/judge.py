"""Judgement of outputs against their goldens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.harness import ComparatorFailed
from tilelet.diag.tracebacks import user_traceback
from tilelet.dtypes import Array
from tilelet.runtime.data.arrays import as_array, as_tensor, is_array
from tilelet.runtime.validation.differences import failure_text, scan


@dataclass(frozen=True)
class Judgement:
    """The verdict on one output."""

    name: str
    ok: bool
    total: int
    mismatched: int
    remark: str = ""  # a comparator's own summary, in one line
    report: str = ""  # the full text of a failure


@dataclass(frozen=True)
class Judge:
    """Compares outputs by their own comparator, by a common one, or by `allclose`."""

    rtol: float
    atol: float
    compare_fn: Mapping[str, Callable[..., Any]] | Callable[..., Any]
    use_torch: bool = False

    def judge_all(
        self,
        actual: Mapping[str, Array],
        expected: Mapping[str, Array],
        inputs: Mapping[str, object],
    ) -> list[Judgement]:
        """Return one judgement per expected output, in order."""
        chosen = self.compare_fn
        comparators = dict.fromkeys(expected, chosen) if callable(chosen) else chosen
        for name in comparators:
            if name not in expected:
                raise ComparatorFailed(name, "is asked for, but no such output is compared")
        if not comparators:
            return [self._allclose(name, actual[name], expected[name]) for name in expected]
        wrap: Callable[[Any], object] = as_tensor if self.use_torch else _identity
        context = {
            "actual_outputs": {name: wrap(actual[name]) for name in expected},
            "expected_outputs": {name: wrap(array) for name, array in expected.items()},
            "inputs": {name: wrap(np.asarray(value)) for name, value in inputs.items()},
            "rtol": self.rtol,
            "atol": self.atol,
        }
        return [
            self._by_comparator(name, comparators[name], context)
            if name in comparators
            else self._allclose(name, actual[name], expected[name])
            for name in expected
        ]

    def _allclose(self, name: str, actual: Array, expected: Array) -> Judgement:
        found = scan(actual, expected, self.rtol, self.atol)
        ok = found.mismatched == 0
        report = "" if ok else failure_text(name, found, actual, expected)
        return Judgement(name, ok, found.total, found.mismatched, report=report)

    def _by_comparator(
        self, name: str, compare: Callable[..., Any], context: Mapping[str, Any]
    ) -> Judgement:
        actual, expected = context["actual_outputs"][name], context["expected_outputs"][name]
        try:
            verdict = compare(actual, expected, **context)
        except Exception as error:
            raise ComparatorFailed(name, "raised", user_traceback(error)) from error
        is_pair = isinstance(verdict, tuple)
        ok, message = cast("tuple[Any, Any]", verdict) if is_pair else (verdict, "")
        title = getattr(compare, "__name__", "comparator")
        first = str(message).strip().split("\n")[0]
        remark = f"{title}: {first}" if first else title
        report = "" if ok else f"Output '{name}' does not match golden ({title}).\n{message}"
        size = as_array(actual).size
        return Judgement(name, bool(ok), size, 0 if ok else size, remark, report)


def _identity(value: object) -> Any:
    return value


def validate_golden(
    outputs: Mapping[str, object],
    golden: Mapping[str, object],
    rtol: float = 1e-5,
    atol: float = 1e-5,
    compare_fn: Mapping[str, Callable[..., object]] | None = None,
    inputs: Mapping[str, object] | None = None,
) -> None:
    """Compare tensors or arrays by name; raise AssertionError with a report on a mismatch."""
    arrays = {name: as_array(value) for name, value in outputs.items()}
    expected = {name: as_array(value) for name, value in golden.items()}
    missing = [name for name in expected if name not in arrays]
    if missing:
        raise AssertionError(f"no output {missing} to compare with the golden")
    judge = Judge(rtol, atol, compare_fn or {}, use_torch=_all_tensors(outputs))
    raw_inputs = {
        n: as_array(v) if is_array(v) else np.asarray(v) for n, v in (inputs or {}).items()
    }
    failures = [j for j in judge.judge_all(arrays, expected, raw_inputs) if not j.ok]
    if failures:
        names = [j.name for j in failures]
        reports = [j.report for j in failures]
        raise AssertionError("\n".join([f"Output(s) does not match golden: {names}", *reports]))


def _all_tensors(values: Mapping[str, object]) -> bool:
    from tilelet.runtime.data.arrays import is_tensor

    return all(is_tensor(value) for value in values.values())
