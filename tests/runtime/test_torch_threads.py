"""Short torch operations run on one thread, others on the number that is set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from tilelet.runtime.torch_scripts.threads import MIN_ELEMENTS, short_work_alone


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (lambda: ones(16, 128) @ ones(128, 128), lambda: ones(256, 256) @ ones(256, 128)),
        (lambda: ones(4, 8, 8).bmm(ones(4, 8, 8)), lambda: ones(64, 64, 64) @ ones(64, 64, 64)),
        (lambda: torch.mv(ones(8, 8), ones(8)), lambda: torch.mv(ones(4, 1 << 20), ones(1 << 20))),
        (lambda: ones(8) @ ones(8, 8), lambda: torch.matmul(ones(2048), ones(2048, 2048))),
        (lambda: linear(ones(8, 8), ones(4, 8)), lambda: linear(ones(256, 256), ones(256, 256))),
        (
            lambda: torch.einsum("ab, bc -> ac", ones(8, 8), ones(8, 8)),
            lambda: torch.einsum("ab,bc->ac", ones(256, 256), ones(256, 256)),
        ),
        (lambda: ones(8).exp(), lambda: ones(MIN_ELEMENTS).exp()),
        (lambda: torch.add(2, ones(8)), lambda: torch.add(ones(1), ones(MIN_ELEMENTS))),
    ],
)
def test_by_their_size(short: Callable[[], Any], long: Callable[[], Any]) -> None:
    with short_work_alone():
        short()
        assert torch.get_num_threads() == 1
        long()
        assert torch.get_num_threads() == 3
        short()
    assert torch.get_num_threads() == 3


def test_other_forms_of_products_take_all_threads() -> None:
    with short_work_alone():
        ones(8).exp()
        torch.einsum("...a,...a->...", ones(2, 2, 2, 8), ones(2, 2, 2, 8))
        assert torch.get_num_threads() == 3


def test_results_are_the_same() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    with short_work_alone():
        found = (x @ x.T, torch.sum(x, dim=0), x.to(torch.bfloat16), x[1:].shape)
    assert torch.equal(found[0], x @ x.T)
    assert torch.equal(found[1], x.sum(0))
    assert found[2].dtype is torch.bfloat16
    assert found[3] == (2, 4)


def test_a_number_of_threads_that_the_golden_sets_stays() -> None:
    with short_work_alone():
        torch.set_num_threads(2)
        ones(8).exp()
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 2


def test_all_threads_are_there_again_after_a_mistake() -> None:
    def golden() -> None:
        with short_work_alone():
            ones(8).exp()
            raise KeyError

    with pytest.raises(KeyError):
        golden()
    assert torch.get_num_threads() == 3
