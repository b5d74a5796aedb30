"""Messages that cost newcomers time: their text, and one message per mistake."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilelet.language as pl
from tilelet.diag.catalogue.windows import WindowOutOfRange
from tilelet.diag.core import UserError, UserErrors
from tilelet.runtime import session
from tilelet.static.module import read_module

FRAME = """
import tilelet.language as pl

@pl.jit
def kernel(
    x: pl.Tensor[[64, 128], pl.FP32],
    out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        t = x[0:16, :]
{body}
        out[:, :] = t
    return out
"""


def messages(folder: Path, *lines: str) -> list[str]:
    """Return the messages about a kernel with these lines in its scope."""
    path = folder / "kernel.py"
    path.write_text(FRAME.format(body="\n".join(f"        {line}" for line in lines)))
    names: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    try:
        names["kernel"].specialize()
    except UserErrors as errors:
        return [str(UserErrors([d])) for d in errors.diagnostics]
    except UserError as error:
        return [str(error)]
    return []


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("a = x[56:72, :]", "`pl.slice(..., clamp=True)`"),
        ("a = pl.slice(x, [16, 128], [56, 0])", "`pl.slice(..., clamp=True)`"),
        ("a = pl.load(x, [56, 0], [16, 128])", "clamp=True"),
        ("a = x[80:96, :]", "the whole window is outside: check the offset"),
    ],
)
def test_a_window_past_the_end_names_the_remedy(tmp_path: Path, line: str, remedy: str) -> None:
    (message,) = messages(tmp_path, line)
    assert message.startswith("error[E0501]")
    assert remedy in message


@pl.jit
def reads_at(
    x: pl.Tensor[[64, 128], pl.FP32],
    n: pl.Tensor[[1, 8], pl.INT32],
    out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        k = pl.read(n, [0, 0])
        out[:, :] = pl.exp(pl.slice(x, [16, 128], [k, 0]))
    return out


@pytest.mark.parametrize("engine", ["interp", "cpu"])
@pytest.mark.parametrize(("at", "remedy"), [(56, "clamp=True"), (70, "check the offset")])
def test_both_engines_name_the_remedy_at_run_time(engine: str, at: int, remedy: str) -> None:
    arguments = (
        np.zeros((64, 128), np.float32),
        np.full((1, 8), at, np.int32),
        np.zeros((16, 128), np.float32),
    )
    with (
        session.active(session.Session(engine=engine, quiet_diagnostics=True)),
        pytest.raises(WindowOutOfRange) as caught,
    ):
        reads_at(*arguments)
    assert remedy in str(caught.value)


@pl.jit
def writes_at(
    x: pl.Tensor[[16, 128], pl.FP32],
    n: pl.Tensor[[1, 8], pl.INT32],
    out: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        k = pl.read(n, [0, 0])
        out[k : k + 16, :] = pl.exp(x[:, :])
    return out


@pytest.mark.parametrize("engine", ["interp", "cpu"])
def test_a_store_past_the_end_is_not_told_to_clamp(engine: str) -> None:
    arguments = (
        np.zeros((16, 128), np.float32),
        np.full((1, 8), 56, np.int32),
        np.zeros((64, 128), np.float32),
    )
    with (
        session.active(session.Session(engine=engine, quiet_diagnostics=True)),
        pytest.raises(WindowOutOfRange) as caught,
    ):
        writes_at(*arguments)
    assert "clamp" not in str(caught.value)


def test_one_value_is_not_a_tuple_of_one(tmp_path: Path) -> None:
    (message,) = messages(tmp_path, "(a,) = pl.exp(t)")
    assert "error[E0118]: cannot unpack one value into a tuple of 1 name" in message
    assert "a single value, not a tuple" in message
    assert "assign it to a single name" in message


def test_a_failed_yield_is_one_message(tmp_path: Path) -> None:
    found = messages(
        tmp_path,
        "for i, (a, b) in pl.range(4, init_values=(t, t)):",
        "    a1, b1 = pl.yield_(pl.addd(a, b), b)",
    )
    assert [text.splitlines()[0] for text in found] == ["error[E0301]: no op `pl.addd`"]


def test_a_loop_without_a_yield_is_still_an_error(tmp_path: Path) -> None:
    (message,) = messages(
        tmp_path, "for i, (a,) in pl.range(4, init_values=(t,)):", "    b = pl.add(a, a)"
    )
    assert "error[E0113]" in message


ORDERED = """
import tilelet.language as pl

@pl.jit.incore
def exchange(
{params}
):
{loads}
    pl.system.syncall()
{stores}
    return t0

@pl.jit
def main(
{params}
):
    t0, tid = pl.submit(exchange, {names}{option})
    return t0
"""


def refusal(option: str) -> str:
    """Return the message about a kernel of eight tensors, or about an option of its call."""
    names = [f"t{i}" for i in range(8)]
    each = {
        "params": "    {}: pl.InOut[pl.Tensor[[16, 16], pl.FP32]],",
        "loads": "    v{0} = pl.load({0}, [0, 0], [16, 16])",
        "stores": "    {0} = pl.store(v{0}, [0, 0], {0})",
    }
    lines = {key: "\n".join(line.format(n) for n in names) for key, line in each.items()}
    text = ORDERED.format(names=", ".join(names), option=option, **lines)
    (program,) = read_module(text, "exchange.py").programs
    with pytest.raises(UserErrors) as caught:
        program.build()
    return str(caught.value)


def test_a_barrier_names_the_first_tensor_that_it_orders() -> None:
    found = {refusal("").splitlines()[0] for _ in range(10)}
    (message,) = found
    assert message.endswith("cannot order accesses of its blocks to `t0`")


def test_the_options_of_submit_are_listed_in_one_order() -> None:
    options = "`deps`, `dumps`, `predicate`, `allow_early_resolve`, `name_hint` and `sync_start`"
    assert f"`submit` takes {options}" in refusal(", early=True")
