"""Names from other libraries: each has a pointer to code that compiles, and messages show it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tilelet.language as pl
from tilelet.diag.core import UserError, UserErrors
from tilelet.ops.equivalents import Equivalent, equivalent, equivalents

FRAME = """
import math
import numpy as np
import tilelet.language as pl

@pl.jit
def kernel(
    a: pl.Tensor[[16, 64], pl.FP32],
    b: pl.Tensor[[64, 16], pl.FP32],
    out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
):
    with pl.{scope}:
        x = a[:, :]
        y = pl.mul(a[:, :], 2.0)
        w = b[:, :]
        mask = pl.cmp(x, y, cmp_type="gt")
        {statement}
        out[:, :] = x
    return out
"""


def compiled(folder: Path, statement: str, scope: str = "at(level=pl.Level.CORE_GROUP)") -> str:
    """Return the message about a kernel with this statement, or ""."""
    path = folder / "kernel.py"
    path.write_text(FRAME.format(statement=statement, scope=scope))
    names: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    try:
        names["kernel"].specialize()
    except (UserError, UserErrors) as error:
        return str(error)
    return ""


BY_CODE = {found.code: name for name, found in equivalents().items() if found.code}


@pytest.mark.parametrize("code", BY_CODE)
def test_what_to_write_compiles(tmp_path: Path, code: str) -> None:
    scope = "spmd(4)" if "get_block" in code else "at(level=pl.Level.CORE_GROUP)"
    statement = code if "dump" in code else f"z = {code}"
    assert compiled(tmp_path, statement, scope) == ""


def test_remarks_name_ops_that_exist() -> None:
    for found in equivalents().values():
        for name in re.findall(r"\bpl\.(\w+)", found.code + found.remark):
            assert hasattr(pl, name), name


def test_no_entry_hides_an_op() -> None:
    """A name that `pl` has is an op, not a mistake; these also mean something else elsewhere."""
    also_methods = {"sum", "max", "min", "view"}
    assert {name for name in equivalents() if name in vars(pl)} <= also_methods


@pytest.mark.parametrize(
    ("statement", "pointer"),
    [
        ("z = x @ w", "write `pl.matmul(x, w, out_dtype=pl.FP32)`"),
        ("x @= w", "write `pl.matmul(x, w, out_dtype=pl.FP32)`"),
        ("z = x ** 2", "write `pl.mul(x, x)`"),
        ("z = x % y", "write `pl.fmod(x, y)`"),
        ("z = not x", "write `pl.sub(1.0, mask)`"),
        ("z = pl.sigmoid(x)", "write `pl.recip(pl.add(pl.exp(pl.neg(x)), 1.0))`"),
        ("z = pl.where(mask, x, y)", "write `pl.sel("),
        ("z = pl.dot(x, w)", "write `pl.matmul("),
        ("z = pl.zeros([16, 64])", "write `pl.full("),
        ("z = pl.softmax(x)", "`pl.row_expand_div`"),
        ("print(x)", "write `pl.dump(x)`"),
        ("z = abs(x)", "write `pl.abs`"),
        ("z = max(x, y)", "`pl.maximum(x, y)` is elementwise"),
        ("z = round(x)", 'write `pl.cast(x, pl.INT32, mode="floor")`'),
        ("z = np.exp(x)", "write `pl.exp`"),
        ("z = np.where(mask, x, y)", "write `pl.sel("),
        ("z = math.sqrt(x)", "write `pl.sqrt`"),
        ("z = x.sum()", "write `pl.row_sum(x)`"),
        ("z = x.exp()", "write `pl.exp`"),
        ("z = x.T", "write `pl.transpose(x, 0, 1)`"),
        ("z = x.to(pl.BF16)", "write `pl.cast(x, pl.BF16)`"),
    ],
)
def test_messages_point_to_it(tmp_path: Path, statement: str, pointer: str) -> None:
    message = compiled(tmp_path, statement)
    assert f"= help: {pointer}" in message or (pointer in message and "= help: " in message)
    assert message.count("= help:") == 1


def test_ops_are_not_mistaken_for_types(tmp_path: Path) -> None:
    assert "pl.Out" not in compiled(tmp_path, "z = pl.ot(x)")
    assert "did you mean `pl.FP32`?" in compiled(tmp_path, "z = pl.cast(x, pl.fp32)")


def test_a_users_own_function_is_told_how_to_become_a_helper(tmp_path: Path) -> None:
    """The advice is the same if its name is in the table."""
    path = tmp_path / "kernel.py"
    text = FRAME.format(statement="z = sigmoid(x)", scope="at(level=pl.Level.CORE_GROUP)")
    path.write_text(f"def sigmoid(x):\n    return x\n{text}")
    names: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    with pytest.raises(UserErrors) as caught:
        names["kernel"].specialize()
    assert "decorate a helper that takes kernel values with `@pl.jit.inline`" in str(caught.value)


def test_help_texts() -> None:
    assert Equivalent("pl.f(x)", "remark").help == "write `pl.f(x)`: remark"
    assert Equivalent("", "remark").help == "remark"
    assert equivalent("torch.exp") == "write `pl.exp`"
    assert equivalent("pl.nothing") == ""
    assert equivalent(np.linalg.__name__) == ""
