"""`tilelet generate` on tiny checkpoints: text and tokens, and rejected requests."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from tests.models.real.files import tensors, write_model
from tests.models.real.tiny import Sizes, ordinary, torch

from tilelet.cli import generate as command
from tilelet.cli.main import main
from tilelet.models import qwen3
from tilelet.models.qwen3 import compare, loading
from tilelet.models.qwen3.generate import NewToken, generate
from tilelet.models.qwen3.model import Model

tokenizers: Any = pytest.importorskip("tokenizers")

LETTERS = "abcdefghijklmnopqrstuvwxyz "
FEW = ["--max-new-tokens", "6", "--ignore-eos"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose tokens are letters; chats are enclosed in angle brackets."""
    directory = tmp_path_factory.mktemp("model") / "tiny"
    shutil.copytree(ordinary("float32", Sizes(layers=2)).directory, directory)
    words = {letter: i for i, letter in enumerate(LETTERS)} | {"<": 90, ">": 91, "?": 92}
    words |= {f"[{i}]": i for i in range(96) if i not in words.values()}
    model = tokenizers.models.WordLevel(words, unk_token="?")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = tokenizers.decoders.Fuse()
    tokenizer.save(str(directory / "tokenizer.json"))
    template = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


def best_tokens(checkpoint: Path, prompt: list[int], count: int) -> list[int]:
    return list(qwen3.load(checkpoint, max_seq=256, batch=1).generate(prompt, max_new_tokens=count))


def test_text_in_and_out(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(checkpoint), "--prompt", "hello", *FEW]) == 0
    told = capsys.readouterr()
    tokenizer = tokenizers.Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    wanted = best_tokens(checkpoint, [LETTERS.index(c) for c in "hello"], 6)
    assert told.out == tokenizer.decode(wanted) + "\n"
    assert "memory: " in told.err
    assert "5 prompt tokens in" in told.err


def test_tokens_without_a_tokenizer(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = ordinary("float32", Sizes(layers=2)).directory
    tokens = ["--tokens", "7 4 11", "--tokens", "3,5"]
    assert main(["generate", str(bare), *tokens, *FEW, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [s["tokens"] for s in found["sequences"]] == [
        best_tokens(bare, prompt, 6) for prompt in ([7, 4, 11], [3, 5])
    ]
    assert main(["generate", str(bare), "--prompt", "x"]) == 3
    assert "E1506" in capsys.readouterr().err


@pytest.mark.parametrize(("asked", "said"), [("16", "`--max-seq`"), ("512", "has no more")])
def test_a_text_that_fills_the_cache(
    checkpoint: Path, asked: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = ["--tokens", "5 6 7", "--max-new-tokens", "600", "--max-seq", asked, "--ignore-eos"]
    assert main(["generate", str(checkpoint), *tokens]) == 0
    told = capsys.readouterr()
    assert len(told.out.split()) == int(asked) - 3 + 1
    assert f"ended at {asked} positions" in told.err
    assert said in told.err


def test_chats_and_draws(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = ["--chat", "--temperature", "0.9", "--top-k", "20", "--seed", "5", "--format", "json"]
    args = ["generate", str(checkpoint), "--prompt", "hi", *FEW, *drawn]
    found: list[Any] = []
    for _ in range(2):
        assert main(args) == 0
        found.append(json.loads(capsys.readouterr().out)["sequences"])
    assert found[0] == found[1]
    assert found[0][0]["prompt"] == [90, LETTERS.index("h"), LETTERS.index("i"), 91]


def test_beside_the_reference(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(checkpoint), "--prompt", "abc", *FEW, "--compare"]) == 0
    told = capsys.readouterr().out
    assert "hidden states beside the reference" in told
    assert "6 of 6 tokens as the reference chooses them" in told


def test_without_a_reference_nothing_is_generated(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "find_spec", lambda name: None if name == "transformers" else 1)
    assert main(["generate", str(checkpoint), "--tokens", "1 2", "--compare"]) == 3
    told = capsys.readouterr()
    assert "`--compare` needs the package `transformers`" in told.err
    assert not told.out


def test_modelled_time(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["generate", str(checkpoint), "--tokens", "7 4 11", *FEW, "--profile", "a2a3"]
    assert main([*args, "--format", "json"]) == 0
    prompt, step = json.loads(capsys.readouterr().out)["modelled"]
    assert (prompt["kind"], prompt["tokens"], step["kind"], step["tokens"]) == (
        "prefill", 3, "decode", 1,
    )  # fmt: skip
    for found in (prompt, step):
        assert [part["times"] for part in found["parts"]] == [1, 2, 1]
        assert found["us"] == pytest.approx(sum(part["us"] for part in found["parts"]))
        layer = found["parts"][1]
        assert 0 < sum(layer["kernels"].values()) < layer["us"]
    assert main(args) == 0
    assert "a step of 1 token on a2a3, modelled" in capsys.readouterr().out
    assert main([*args[:-1], "a99"]) == 2


def test_a_fault_is_no_near_tie(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Layers of different models: the report names the first layer that differs."""
    loaded = command.load

    def with_fault(*args: Any, **options: Any) -> Model:
        model = loaded(*args, **options)
        model.weights.source.layers(1, 1)["w_down"][:] *= 3
        return model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "load", with_fault)
        assert main(["generate", str(checkpoint), "--prompt", "abc", *FEW, "--compare"]) == 1
    assert "differs by more than rounding: 1" in capsys.readouterr().out


def test_interrupted(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def until_third(*args: Any, **options: Any) -> Iterator[NewToken]:
        for i, new in enumerate(generate(*args, **options)):
            if i == 3:
                raise KeyboardInterrupt
            yield new

    monkeypatch.setattr(command, "generate", until_third)
    assert main(["generate", str(checkpoint), "--tokens", "7 4 11", *FEW]) == 130
    told = capsys.readouterr()
    assert [int(t) for t in told.out.split()] == best_tokens(checkpoint, [7, 4, 11], 3)
    assert "interrupted" in told.err


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--tokens", ""], 3, "prompt 0 has no tokens"),
        (["--tokens", "1 99999999999999999999"], 3, "token 1 of prompt 0 is 99999999999999999999"),
        (["--tokens", "96"], 3, "token 0 of prompt 0 is 96; the vocabulary has 96 tokens"),
        (["--tokens", " ".join(["1"] * 20), "--max-seq", "16"], 3, "the cache holds 16 positions"),
        (["--tokens", "1", "--max-seq", "1000"], 3, "at most `max_position_embeddings`, 512"),
        (["--tokens", "1", "--layers", "3"], 3, "at most 2"),
        (["--tokens", "1", "--temperature", "-1"], 2, "`temperature`"),
        ([], 2, "give `--prompt` or `--tokens`"),
        (["--tokens", "1", "--prompt", "a"], 2, "do not go together"),
        (["--tokens", "x"], 2, "`x` is not a whole number"),
        (["--tokens", "1", "--max-new-tokens", "0"], 2, "is not at least 1"),
    ],
)
def test_what_is_refused(
    checkpoint: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    text: str,
) -> None:
    try:
        found = main(["generate", str(checkpoint), *options])
    except SystemExit as ended:
        found = int(ended.code or 0)
    assert (found, text in capsys.readouterr().err) == (code, True)


def _no_index_entry(directory: Path) -> None:
    (directory / "model.safetensors").unlink()


def _truncated(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def _other_model(directory: Path) -> None:
    path = directory / "config.json"
    fields = {**json.loads(path.read_text()), "model_type": "llama"}
    path.write_text(json.dumps(fields))


@pytest.mark.parametrize(
    ("damage", "text"),
    [(_no_index_entry, "E1007"), (_truncated, "E1008"), (_other_model, "`llama` model")],
)
def test_damaged_checkpoints(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
    text: str,
) -> None:
    damage(write_model(tmp_path))
    assert main(["generate", str(tmp_path), "--tokens", "1"]) == 3
    assert text in capsys.readouterr().err


def _pointer(directory: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"
    (directory / "model.safetensors").write_text(text)


def _sliding(directory: Path) -> None:
    path = directory / "config.json"
    kinds = ["full_attention", "sliding_attention"]
    path.write_text(json.dumps({**json.loads(path.read_text()), "layer_types": kinds}))


@pytest.mark.parametrize(
    ("damage", "text"),
    [(_pointer, "a Git LFS pointer"), (_sliding, "`layer_types` of the model configuration")],
)
def test_checkpoints_that_are_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None], text: str
) -> None:
    damage(write_model(tmp_path))
    assert main(["generate", str(tmp_path), "--tokens", "1"]) == 3
    assert text in capsys.readouterr().err


def test_logits_that_are_no_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = tensors()
    arrays["model.layers.1.mlp.down_proj.weight"][3, 5] = np.nan
    args = ["--tokens", "1 2", "--engine", "interp"]
    assert main(["generate", str(write_model(tmp_path, arrays)), *args]) == 3
    assert "the logits for token 0 of sequence 0 are not finite" in capsys.readouterr().err


def test_no_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "available_memory", lambda: 10_000)
    assert main(["generate", str(write_model(tmp_path)), "--tokens", "1"]) == 3
    told = capsys.readouterr().err
    assert "E1501" in told
    assert "9.8 KiB are free" in told
    assert "keys and values" in told


def test_memory_that_the_system_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(loading.Loader, "load", refuse)
    assert main(["generate", str(write_model(tmp_path)), "--tokens", "1"]) == 3
    told = capsys.readouterr().err
    assert "E1501" in told
    assert "`ulimit -v`" in told


def test_weights_in_memory_streamed_and_cached_are_the_same(tmp_path: Path) -> None:
    directory = ordinary("bfloat16", Sizes(layers=2)).directory
    kept = tmp_path / "weights"
    ways: list[dict[str, Any]] = [{}, {"stream": True}, *[{"weights_cache": kept}] * 2]
    found = [
        list(qwen3.load(directory, max_seq=64, batch=1, **way).generate([5, 6], max_new_tokens=8))
        for way in ways
    ]
    assert found == [found[0]] * 4
    assert len(list(kept.iterdir())) == 1


def test_a_damaged_file_of_cached_weights_is_made_again(tmp_path: Path) -> None:
    directory = write_model(tmp_path)
    kept = tmp_path / "weights"
    qwen3.load(directory, max_seq=64, weights_cache=kept)
    (file,) = kept.iterdir()
    whole = file.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for damaged in (b"", whole[:100], whole[:-1], whole[:header].replace(b"head", b"lead")):
        file.write_bytes(damaged)
        qwen3.load(directory, max_seq=64, weights_cache=kept)
        assert file.read_bytes() == whole


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = loading.write_header

    def full(file: BinaryIO, tensors: Any) -> dict[str, int]:
        write(file, tensors)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(loading, "write_header", full)
    with pytest.raises(loading.WeightsNotCached, match="No space left on device"):
        qwen3.load(write_model(tmp_path), max_seq=64, weights_cache=tmp_path / "weights")
    assert list((tmp_path / "weights").iterdir()) == []


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "there is no prompt"),
        ([[1.5]], "tokens are of type float64"),
        ([[[1, 2], [3, 4]]], "several prompts are a list"),
        ([["a"]], "integers"),
        ([[-1]], "is -1"),
    ],
)
def test_prompts_that_are_none(tmp_path: Path, given: Any, text: str) -> None:
    model = qwen3.load(write_model(tmp_path), max_seq=64)
    with pytest.raises(Exception, match=text) as found:
        generate(model, given)
    assert found.type.__module__ == "tilelet.diag.catalogue.generate"


def test_tokens_of_torch_and_numpy(tmp_path: Path) -> None:
    model = qwen3.load(write_model(tmp_path), max_seq=64)
    found = [
        list(model.generate(tokens, max_new_tokens=3))
        for tokens in ([1, 2], np.array([1, 2], np.int32), torch.tensor([1, 2]))
    ]
    assert found[0] == found[1] == found[2]
