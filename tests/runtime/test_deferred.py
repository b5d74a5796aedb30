"""Tensors of a script that is only recorded: computed on first use, with equal bits."""

from __future__ import annotations

import copy
import random
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelet.language as pl
from tilelet.runtime import TensorSpec
from tilelet.runtime.torch_scripts import deferred, mersenne_twister
from tilelet.runtime.torch_scripts.deferred import Deferred, Deferring, Tape

torch = pytest.importorskip("torch")

BIG = (300, 300)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Return a new tape that takes the first large tensor."""
    monkeypatch.setattr(deferred, "_TAPE", Tape())
    monkeypatch.setattr(deferred, "_MIN_MADE", 0)
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


def pending() -> int:
    return len(deferred._TAPE._pending)


def quantised() -> list[Any]:
    weights = torch.randn(BIG)
    scale = 127.0 / weights.abs().amax(dim=-1).clamp_min(1e-4)
    rounded = torch.sign(weights) * torch.floor(weights.abs() * scale.unsqueeze(-1) + 0.5)
    return [rounded.to(torch.int32).clamp(-127, 127).to(torch.int8), 1.0 / scale, torch.rand(3)]


def written_in_place() -> list[Any]:
    cache = torch.zeros(BIG)
    before = cache + 1
    window = cache[3:9]
    cache[5] = 2.5
    cache[:, :5] = torch.randn(300, 5)
    doubled = window * 2
    cache.mul_(2).add_(torch.rand(BIG))
    cache[torch.tensor([1, 5])] = 0.0
    window[0, 7] = 9.0
    return [before, doubled, window, cache]


def small_operands_change() -> list[Any]:
    scale = torch.ones(300)
    product = torch.randn(BIG) * scale
    scale[:] = 5
    return [product, scale]


def draws() -> list[Any]:
    own = torch.Generator().manual_seed(4)
    return [
        torch.rand(BIG),
        torch.randn(300, 301),
        torch.randn(7),
        torch.randint(-5, 9, BIG),
        torch.randint(3, BIG, dtype=torch.int8),
        torch.empty(BIG).normal_(1, 2),
        torch.empty(BIG).uniform_(-1, 1),
        torch.normal(0.0, 1.0, (257, 300)),
        torch.randn(BIG, dtype=torch.float64),
        torch.randn(BIG, dtype=torch.bfloat16).float(),
        torch.randn(BIG, generator=own),
        torch.rand(5, generator=own),
        torch.rand_like(torch.zeros(BIG)),
        torch.bernoulli(torch.full(BIG, 0.3)),
        torch.zeros(BIG)[:, 1:].normal_(),
        torch.randperm(50),
    ]


def shapes_that_elements_decide() -> list[Any]:
    x = torch.randn(BIG)
    return [x[x > 0], torch.nonzero(x > 1), x[x.argmax(dim=0)[:3]], x[[1, 5, 7]]]


def several_results() -> list[Any]:
    x = torch.randn(BIG)
    values, indices = x.max(dim=-1)
    return [values, indices, *x.split(100), *torch.topk(x, 5, -1), torch.cat([x, x.t()])]


def of_matrices() -> list[Any]:
    x = torch.randn(BIG)
    return [torch.linalg.svdvals(x), torch.norm(x, "nuc"), x.norm(dim=-1), torch.rand(BIG)]


def out_arguments() -> list[Any]:
    x, y = torch.rand(BIG), torch.empty(BIG)
    torch.mul(x, 2, out=y)
    small = torch.empty(300)
    small.copy_(x[0])
    return [x, y, small]


def memory_given_out() -> list[Any]:
    x = torch.zeros(BIG)
    y = x + 1
    x.numpy()[0, 0] = 5.0
    z = x + 1
    return [x, y, z, x[0]]


def filled_by_rows() -> list[Any]:
    history = torch.rand(400, 300)
    cache = torch.zeros(400, 300)
    kept = cache[7]
    for row in range(400):
        cache[row] = history[row] * 2
    return [cache, history + 1, kept]


TEXTS = [
    quantised,
    filled_by_rows,
    written_in_place,
    small_operands_change,
    draws,
    shapes_that_elements_decide,
    several_results,
    of_matrices,
    out_arguments,
    memory_given_out,
]


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("make", TEXTS, ids=lambda f: f.__name__)
def test_whatever_is_looked_at_first(make: Callable[[], list[Any]], order: int) -> None:
    torch.manual_seed(order)
    expected = make()
    moved_on = torch.get_rng_state()
    torch.manual_seed(order)
    with Deferring():
        made = make()
        assert any(isinstance(t, Deferred) for t in made)
        assert torch.equal(torch.get_rng_state(), moved_on)
    numbers = list(range(len(made)))
    random.Random(order).shuffle(numbers)
    for number in numbers:
        got, want = made[number], expected[number]
        assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)
        assert np.array_equal(got.numpy(), want.numpy()), number
    assert torch.equal(torch.get_rng_state(), moved_on)


@pytest.mark.parametrize(
    "look",
    [
        lambda x: float(x.sum()),
        lambda x: x.tolist(),
        lambda x: np.asarray(x).sum(),
        repr,
        lambda x: bool((x > 5).any()),
        lambda x: torch.equal(x, x.clone()),
        lambda x: copy.deepcopy(x).sum().item(),
        lambda x: f"{x.mean():.3f}",
        lambda x: len(x.unique()),
        lambda x: [float(row[0]) for row in x],
        lambda x: x.data[0, 0].item(),
        lambda x: [len(p) for p in torch.tensor_split(x, (x[0, :3] > 0).to(torch.int64).cumsum(0))],
    ],
)
def test_looks(look: Callable[[Any], object]) -> None:
    torch.manual_seed(1)
    expected = look(torch.randn(BIG))
    torch.manual_seed(1)
    with Deferring():
        x = torch.randn(BIG)
        assert isinstance(x, Deferred)
        assert look(x) == expected


def test_only_what_is_looked_at_is_computed() -> None:
    with Deferring():
        first, second = torch.randn(BIG), torch.randn(BIG)
        wide = torch.cat([first * 2, first])
        assert pending() == 4
        second[0, 0].item()
        assert pending() == 3
        assert wide.shape == (600, 300)
        assert pending() == 3


def test_what_nobody_can_see_any_more_is_never_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    run = deferred.Operation.run

    def noted(operation: deferred.Operation) -> None:
        names.append(str(operation.call.function))
        run(operation)

    monkeypatch.setattr(deferred.Operation, "run", noted)
    with Deferring():
        x = torch.zeros(BIG)
        gone = torch.exp(x)
        del gone
        x.fill_(1)  # would have to wait for the reader of the zeros
        assert x[0, 0].item() == 1
    assert "aten.fill_.Scalar" in names
    assert "aten.exp.default" not in names


def test_small_tensors_are_as_ever() -> None:
    with Deferring():
        assert type(torch.randn(10, 10)) is torch.Tensor
    assert not pending()


def test_a_few_large_tensors_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "_MIN_MADE", 200_000)
    with Deferring():
        kinds = [type(torch.zeros(BIG)) for _ in range(4)]
    assert kinds == [torch.Tensor, torch.Tensor, Deferred, Deferred]


def test_row_by_row_the_tape_ends() -> None:
    with Deferring():
        filled_by_rows()
        assert pending() < 5 * deferred._MAX_ROWS


def test_element_by_element_the_tape_ends() -> None:
    with Deferring():
        x = torch.zeros(BIG)
        for i in range(300):
            x[i, i] = i
        assert pending() < 51
        assert x.cell.storage.is_open
        assert x.diagonal().tolist() == list(range(300))


def test_other_tensors_stay_deferred_when_the_tape_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "_MAX_OPERATIONS", 50)
    with Deferring():
        weights, x = torch.randn(BIG), torch.zeros(BIG)
        for i in range(60):
            x[i, i] = weights[0, 0] if i == 0 else i
        other = torch.randn(BIG)
        for i in range(60):
            x[i, i] = i
        assert other.cell.real is None
        assert x.diagonal()[:60].tolist() == list(range(60))


def _out_of_memory(*_: object, **__: object) -> None:
    raise MemoryError


def test_what_follows_a_failed_operation_is_still_to_be_run() -> None:
    with Deferring():
        x, y = torch.zeros(BIG), torch.ones(BIG)
        total = x + y
        operations = deferred._TAPE._pending
        whole = operations[0].call
        operations[0].call = whole._replace(function=_out_of_memory)
        with pytest.raises(MemoryError):
            deferred._TAPE.compute({total.cell.storage})
        operations[0].call = whole
        assert total[0, 0].item() == 1


def test_errors_come_as_without() -> None:
    with Deferring():
        x = torch.randn(BIG)
        with pytest.raises(RuntimeError, match="must match"):
            x + torch.zeros(7)
        with pytest.raises(RuntimeError, match="shape"):
            x.view(7, -1)


@pytest.mark.parametrize("before", [0, 5, 624, 1000])
@pytest.mark.parametrize("steps", [5_000, 624 * 9, 100_001, 3_000_000])
def test_a_jump_is_as_many_steps(monkeypatch: Any, before: int, steps: int) -> None:
    monkeypatch.setattr(mersenne_twister, "_MIN_JUMP", 1)
    generator = np.random.MT19937(before)
    generator.random_raw(before, output=False)
    state: Any = generator.state["state"]
    key, position = mersenne_twister.state_after(state["key"], state["pos"], steps)
    generator.random_raw(steps, output=False)
    wanted: Any = generator.state["state"]
    assert position == wanted["pos"]
    assert np.array_equal(key, wanted["key"])


SCRIPT = """
import torch
from golden import TensorSpec, run_jit
import pypto.language as pl

@pl.jit
def scaled(
    lengths: pl.Tensor[[4], pl.INT32],
    x: pl.Tensor[[4096, 4096], pl.BF16],
    out: pl.Out[pl.Tensor[[4096, 4096], pl.BF16]],
):
    for i in pl.range(pl.read(lengths, [0])):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[i * 16 : i * 16 + 16, 0:64] = x[i * 16 : i * 16 + 16, 0:64]
    return out

torch.manual_seed(3)
drawn = [torch.randn(4096, 4096) for _ in range(3)]
x = (drawn[0] / drawn[1].abs().amax(-1, keepdim=True)).to(torch.bfloat16)
lengths = torch.randint(1, 200, (4,), dtype=torch.int32)
print([type(t).__name__ for t in drawn])
run_jit(scaled, [
    TensorSpec("lengths", [4], torch.int32, lengths),
    TensorSpec("x", [4096, 4096], torch.bfloat16, lambda: x),
    TensorSpec("out", [4096, 4096], torch.bfloat16, is_output=True),
])
"""


def test_a_script_that_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tilelet.cli.main import main

    script = tmp_path / "scaled.py"
    script.write_text(SCRIPT)
    assert main(["tasks", str(script)]) == 0
    shown = capsys.readouterr().out
    assert "Deferred" in shown
    assert pending() >= 3  # nothing has read the weights
    torch.manual_seed(3)
    for _ in range(3):
        torch.randn(4096, 4096)
    count = int(torch.randint(1, 200, (4,), dtype=torch.int32)[0])
    assert re.findall(r"total +(\d+)", shown) == [str(count)]


@pl.jit
def copied(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    for i in pl.range(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[i * 16 : i * 16 + 16, 0:16] = x[i * 16 : i * 16 + 16, 0:16]
    return out


def test_kernels_take_them_as_arguments() -> None:
    with Deferring():
        x, out = torch.randn(BIG, dtype=torch.bfloat16), torch.zeros(BIG, dtype=torch.bfloat16)
        assert copied.compile(x, out).parameters[0].type.dtype is pl.BF16
        copied(x, out)
        assert torch.equal(out[0:64, 0:16], x[0:64, 0:16])


class Named(torch.Tensor):
    """A user's own subclass of tensor."""


def test_kernels_take_subclasses_of_tensors() -> None:
    x = torch.randn(64, 16).bfloat16().as_subclass(Named)
    out = torch.zeros(64, 16, dtype=torch.bfloat16)
    copied(x, out)
    assert torch.equal(out, torch.Tensor(x))


def test_a_blank_tensor_that_is_filled_with_parts_of_large_ones() -> None:
    with Deferring():
        weights = torch.randn(16, *BIG)
        scales = torch.empty(16, 300, 1)  # far smaller than the default threshold
        for i in range(16):
            scales[i : i + 1] = weights[i : i + 1].abs().amax(dim=-1, keepdim=True)
        assert isinstance(scales, Deferred)
        assert all(cell.cell.real is None for cell in (weights, scales))
        assert torch.equal(scales, weights.abs().amax(dim=-1, keepdim=True))


def test_a_small_tensor_that_is_written_element_by_element_is_computed_at_once() -> None:
    with Deferring():
        large = torch.zeros(BIG)
        table = torch.zeros(64, 64)
        for i in range(64):
            table[i, i] = i
        assert pending() == 1
        assert large[0, 0].item() == 0
        assert table.diagonal().tolist() == list(range(64))


def test_a_chain_of_operations_keeps_few_intermediate_tensors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alive: list[int] = []
    run = deferred.Operation.run

    def counted(operation: deferred.Operation) -> None:
        run(operation)
        alive.append(sum(c() is not None and c().real is not None for c in cells))

    cells: list[Any] = []
    with Deferring():
        drawn = torch.randn(BIG)
        cells.append(weakref.ref(drawn.cell))
        for _ in range(20):
            drawn = (drawn * 2).abs_() - 1
            cells.append(weakref.ref(drawn.cell))
    monkeypatch.setattr(deferred.Operation, "run", counted)
    drawn.numpy()
    assert len(alive) > 50
    assert max(alive) <= 2


def test_an_unwanted_operation_keeps_no_computed_operand() -> None:
    with Deferring():
        drawn = torch.randn(BIG)
        doubled = drawn * 2
        _unused = (drawn + 1) * 3
        del _unused
        operand = weakref.ref(drawn.cell)
        del drawn
    doubled.numpy()
    assert operand() is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_tensor_of_a_spec_is_deferred_if_that_of_the_script_is(dtype: Any) -> None:
    made = TensorSpec("x", BIG, dtype, lambda: torch.randn(BIG)).create_tensor()
    with Deferring():
        spec = TensorSpec("x", BIG, dtype, lambda: torch.randn(BIG).to(dtype))
        stacked = torch.cat([spec.create_tensor()] * 3)
        assert isinstance(stacked, Deferred)
        given = torch.randn(BIG)
        own = TensorSpec("y", BIG, torch.float32, given).create_tensor()
        own.zero_()
    assert torch.equal(stacked[300:600].clone(), made)
    assert given.abs().max() > 0


def test_tensors_that_are_not_deferred_do_not_load_the_compiler_of_torch() -> None:
    script = f"""
import sys
import torch
from tilelet.runtime.torch_scripts.deferred import Deferring
with Deferring():
    made = torch.randn{BIG} / 3
assert type(made) is torch.Tensor
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
