"""`tilelet generate --ranks`: the tokens of one rank, in one process and over MPI."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.ranks.mpi_processes import needs_mpiexec, run_processes

from tilelet.cli.main import main
from tilelet.diag.catalogue.models import BadTile
from tilelet.models import qwen3
from tilelet.models.qwen3.config import Qwen3Config, Qwen3MoeConfig
from tilelet.models.qwen3.random_checkpoint import write_random_checkpoint

CONFIG = Qwen3Config(64, 8, 4, 128, 2, head_dim=16, vocab_size=200)
ARGUMENTS = ("--dtype", "float32", "--tokens", "5 6 7", "--tokens", "9", "--max-new-tokens", "4")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_random_checkpoint(folder, CONFIG, 1)
    return folder


def answers(text: str) -> list[list[int]]:
    return [answer["tokens"] for answer in json.loads(text)["sequences"]]


def generated(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[list[int]]:
    assert main(["generate", str(folder), *ARGUMENTS, "--format", "json", *options]) == 0
    return answers(capsys.readouterr().out)


def test_tokens_are_those_of_one_rank(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = generated(checkpoint, capsys)
    for ranks in ("2", "4"):
        assert generated(checkpoint, capsys, "--ranks", ranks) == wanted


@needs_mpiexec
@pytest.mark.parametrize("ranks", [2, 4])
def test_processes_read_their_parts_and_give_the_same_tokens(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], ranks: int
) -> None:
    wanted = generated(checkpoint, capsys)
    command = ("generate", str(checkpoint), *ARGUMENTS, "--format", "json", "--ranks", "mpi")
    done = run_processes(ranks, *command)
    assert done.returncode == 0, done.stderr
    assert answers(done.stdout) == wanted


def test_tokens_of_a_model_with_experts(tmp_path: Path) -> None:
    config = Qwen3MoeConfig(
        64, 4, 2, 64, 2, head_dim=16, vocab_size=200, num_experts=8, num_experts_per_tok=2,
        moe_intermediate_size=32, norm_topk_prob=True, mlp_only_layers=(0,),
    )  # fmt: skip
    write_random_checkpoint(tmp_path, config, 1)
    tokens = [
        list(
            qwen3.load(
                tmp_path, dtype="float32", engine="interp", max_seq=32, page=16, chunk=32, batch=1,
                ranks=ranks,
            ).generate(np.arange(18), max_new_tokens=3)
        )
        for ranks in (1, 2)
    ]  # fmt: skip
    assert tokens[0] == tokens[1]
    own = qwen3.load(tmp_path, ranks=2, rank=1).weights.source.layers(1, 1)
    whole = qwen3.load(tmp_path).weights.source.layers(1, 1)
    assert own["w_up"].strides[0] == 0, "one part in memory"
    assert np.array_equal(own["w_up"][1], np.split(whole["w_up"], 2)[1]), "the last four experts"
    assert np.array_equal(own["w_router"], whole["w_router"])


def test_a_process_loads_only_its_part(checkpoint: Path) -> None:
    all_parts = qwen3.load(checkpoint, ranks=4).weights.source.layers(0, 2)
    own = qwen3.load(checkpoint, ranks=4, rank=2).weights.source.layers(0, 2)
    for name, array in own.items():
        if name.endswith("norm"):
            assert np.array_equal(array, all_parts[name])
        else:
            assert array.strides[0] == 0, "one part in memory"
            assert np.array_equal(array[2], all_parts[name][2])
            assert not np.array_equal(all_parts[name][2], all_parts[name][1])


def test_layers_must_divide(checkpoint: Path) -> None:
    with pytest.raises(BadTile, match="a divisor of `num_key_value_heads`, 4"):
        qwen3.load(checkpoint, ranks=8)
