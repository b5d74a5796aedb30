"""Packed columns are restored exactly, and damaged ones are reported."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.runs import column

from tilelet.report.columns import MAGIC, Columns, DamagedError, repack, unpack


def packed(values: np.ndarray, delta: bool = False, kind: str = "") -> bytes:
    columns = Columns()
    entry = columns.add(values, kind, delta=delta)
    return columns.pack({"runs": [{"columns": {"x": entry}}]})


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.booleans())
def test_integers_come_back(values: list[int], delta: bool) -> None:
    assert column(packed(np.array(values, np.int64), delta), "x") == values


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40))
def test_signed_integers_come_back(values: list[int]) -> None:
    assert column(packed(np.array(values, np.int64)), "x") == values


def test_floats_and_large_integers_come_back() -> None:
    values = [0.5, -1e300, float(2**40)]
    assert column(packed(np.array(values), kind="f8"), "x") == values
    assert column(packed(np.array([2**40, 1])), "x") == [2**40, 1]


def test_the_smallest_type_is_taken() -> None:
    for high, kind in ((255, "u1"), (256, "u2"), (65536, "u4"), (2**32, "f8")):
        assert Columns().add(np.array([0, high]))["type"] == kind


def test_a_header_can_be_replaced() -> None:
    data = packed(np.arange(5))
    header, columns = unpack(data)
    again = repack({**header, "numbers": 1}, columns)
    assert unpack(again)[0]["numbers"] == 1
    assert column(again, "x") == [0, 1, 2, 3, 4]


def test_damaged_data_is_said_to_be() -> None:
    data = packed(np.arange(1000) ** 2)
    with pytest.raises(DamagedError, match="does not begin"):
        unpack(b"<html>")
    with pytest.raises(DamagedError, match="version 99"):
        unpack(b"TLPAGE99" + data[8:])
    for cut in (8, 12, len(data) // 2):
        with pytest.raises(DamagedError):
            unpack(data[:cut])
    middle = bytearray(data)
    middle[20] ^= 0xFF
    with pytest.raises(DamagedError):
        unpack(bytes(middle))


@pytest.mark.parametrize(
    "header",
    ["[]", "{}", '{"runs": 3}', '{"runs": [{"columns": {"x": {}}}]}', '{"runs": [3]}'],
)
def test_a_header_of_another_kind_is_damage(header: str) -> None:
    import zlib

    text = header.encode()
    body = len(text).to_bytes(4, "little") + text
    with pytest.raises(DamagedError):
        unpack(MAGIC + zlib.compress(body))


def test_a_column_that_is_cut_off_is_named() -> None:
    entry = {"type": "u4", "count": 9, "at": 0}
    with pytest.raises(DamagedError, match="`x` is cut off"):
        unpack(Columns().pack({"runs": [{"columns": {"x": entry}}]}))
