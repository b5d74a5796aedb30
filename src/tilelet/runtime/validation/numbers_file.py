"""`report/numbers.json`: differences of a failed run's outputs from the golden.

{"version": 1, "outputs": [{"name", "ok", "shape", "total", "mismatched", "rtol", "atol",
  "relative_l2", "text", "map": {"rows", "columns", "cells"}, "histogram": {"first", "counts"},
  "where": as `divergence.wrong_regions` gives it}]}

`cells` are shares of wrong elements on a grid over the output (all axes but the last as rows).
`counts` are elements by |difference| / allowed in powers of ten, from `10**first` on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tilelet.diag.json_types import JsonObject
from tilelet.divergence.wrong_regions import Where
from tilelet.dtypes import Array
from tilelet.runtime.data.arrays import to_double
from tilelet.runtime.validation.differences import mismatches, scan
from tilelet.runtime.validation.judge import Judgement

MAX_CELLS = 64
FIRST_DECADE, DECADES = -6, 13
_BLOCK = 1 << 21


def numbers_json(
    judgements: Sequence[Judgement],
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    where: Sequence[Where],
    rtol: float,
    atol: float,
) -> str:
    return json.dumps(numbers_data(judgements, actual, expected, where, rtol, atol)) + "\n"


def numbers_data(
    judgements: Sequence[Judgement],
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    where: Sequence[Where],
    rtol: float,
    atol: float,
) -> JsonObject:
    maps = {w.output: w.to_data() for w in where}
    outputs: list[JsonObject] = []
    for j in judgements:
        data: JsonObject = {"name": j.name, "ok": j.ok, "total": j.total, "text": j.report}
        data["mismatched"] = j.mismatched
        got, wanted = actual[j.name], expected[j.name]
        if got.shape == wanted.shape:
            data |= _figures(got, wanted, rtol, atol)
        outputs.append({**data, "where": maps.get(j.name)})
    return {"version": 1, "outputs": outputs}


def _figures(actual: Array, expected: Array, rtol: float, atol: float) -> dict[str, object]:
    found = scan(actual, expected, rtol, atol)
    l2 = found.relative_l2
    return {
        "shape": list(actual.shape),
        "rtol": rtol,
        "atol": atol,
        "relative_l2": l2 if math.isfinite(l2) else None,
        "map": _map(mismatches(actual, expected, rtol, atol)),
        "histogram": _histogram(actual.reshape(-1), expected.reshape(-1), rtol, atol),
    }


def _map(wrong: Array) -> dict[str, object] | None:
    if wrong.ndim == 0 or not wrong.size:
        return None
    flat = wrong.reshape(-1, wrong.shape[-1])
    if wrong.ndim == 1:
        flat = wrong.reshape(1, -1)
    rows, columns = (min(n, MAX_CELLS) for n in flat.shape)
    starts = [np.arange(n) * size // n for n, size in zip((rows, columns), flat.shape)]
    sums = np.add.reduceat(flat.astype(np.int64), starts[0], axis=0)
    sums = np.add.reduceat(sums, starts[1], axis=1)
    sizes = [np.diff(np.append(s, size)) for s, size in zip(starts, flat.shape)]
    cells = sums / np.multiply.outer(sizes[0], sizes[1])
    return {"rows": rows, "columns": columns, "cells": np.round(cells, 4).reshape(-1).tolist()}


def _histogram(actual: Array, expected: Array, rtol: float, atol: float) -> dict[str, object]:
    counts = np.zeros(DECADES, np.int64)
    for begin in range(0, len(actual), _BLOCK):
        a, e = (to_double(x[begin : begin + _BLOCK]) for x in (actual, expected))
        with np.errstate(all="ignore"):
            ratio = np.abs(a - e) / (atol + rtol * np.abs(e))
            decade = np.floor(np.log10(ratio))
        decade = np.nan_to_num(decade, nan=1e9, posinf=1e9, neginf=-1e9)
        place = np.clip(decade - FIRST_DECADE, 0, DECADES - 1).astype(np.int64)
        counts += np.bincount(place, minlength=DECADES)
    return {"first": FIRST_DECADE, "counts": counts.tolist()}
