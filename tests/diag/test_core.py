"""Places and the diagnostic sink."""

from __future__ import annotations

import pytest
from tests.diag.samples import build

from tilelet.diag import Loc, Sink, TooManyErrors, UserErrors, near
from tilelet.diag.catalogue.cautions import ImplicitScope
from tilelet.diag.catalogue.names import UndefinedName
from tilelet.diag.text import plural, quoted_names, shape_text, size_text


def undefined(line: int, name: str = "x") -> UndefinedName:
    return UndefinedName(Loc("kernel.py", line, 4, line, 5), name)


def test_callers_are_innermost_first() -> None:
    loc = Loc("a.py", 1).called_from(Loc("b.py", 2)).called_from(Loc("c.py", 3))
    assert [c.file for c in loc.callers] == ["b.py", "c.py"]
    assert Loc("a.py", 1).callers == []
    assert loc.called_from(None) == loc


def test_sink_keeps_one_of_each_mistake_per_place() -> None:
    sink = Sink()
    for problem in (undefined(1), undefined(1), undefined(2), undefined(2, "y")):
        sink.add(problem)
    assert len(sink.errors) == 3
    with pytest.raises(UserErrors) as caught:
        sink.finish()
    assert [d.message for d in caught.value.diagnostics][-1] == "name `y` is not defined"
    assert not caught.value.truncated


def test_sink_stops_at_its_limit() -> None:
    sink = Sink()
    for line in range(1, 10):
        sink.add(undefined(line))
    with pytest.raises(TooManyErrors):
        sink.add(undefined(10))
    with pytest.raises(UserErrors) as caught:
        sink.finish()
    assert caught.value.truncated
    assert len(caught.value.diagnostics) == 10


def test_cautions_do_not_stop_a_run() -> None:
    sink = Sink()
    sink.add(build(ImplicitScope))
    sink.finish()
    assert [d.code for d in sink.warnings] == ["W0401"]


def test_near_keeps_only_the_closest() -> None:
    ops = ["row_sum", "row_max", "col_sum", "exp", "matmul"]
    assert near("row_summ", ops) == ["row_sum"]
    assert near("ROW_SUM", ops) == ["row_sum"]
    assert near("zzz", ops) == []
    assert near("anything", []) == []


def test_texts() -> None:
    assert quoted_names([]) == ""
    assert quoted_names(["a"]) == "`a`"
    assert quoted_names(["a", "b", "c"], "and") == "`a`, `b` and `c`"
    assert shape_text((16, "M")) == "[16, M]"
    assert plural(1, "axis", "axes") == "1 axis"
    assert plural(2, "axis", "axes") == "2 axes"
    assert [size_text(n) for n in (0, 1023, 1024, 1536, 3 * 2**40, 5000 * 2**40)] == [
        "0 bytes",
        "1023 bytes",
        "1 KiB",
        "1.5 KiB",
        "3 TiB",
        "5000 TiB",
    ]
