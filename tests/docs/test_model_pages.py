"""The commands and code on the pages about models run as shown, on small models in place of the
published ones.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tilelet.cli.main import main
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.random_checkpoint import write_random_checkpoint

tokenizers: Any = pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
VOCABULARY = 9800  # the tokens that the pages name are below it


def blocks_of(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands_of(page: str) -> list[list[str]]:
    text = "\n".join(blocks_of(page, "sh"))
    lines = [shlex.split(line, comments=True) for line in text.splitlines()]
    return [line[1:] for line in lines if line and line[0] == "tilelet"]


def write_model(directory: Path, layers: int) -> None:
    config = Qwen3Config(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128,
        num_hidden_layers=layers, head_dim=32, vocab_size=VOCABULARY, tie_word_embeddings=True,
    )  # fmt: skip
    write_random_checkpoint(directory, config, layers_per_shard=4)
    words = {chr(i): i for i in range(32, 127)} | {"unknown": 0}
    words |= {f"[{i}]": i for i in range(VOCABULARY) if i not in words.values()}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="unknown"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = tokenizers.decoders.Fuse()
    tokenizer.save(str(directory / "tokenizer.json"))
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "Qwen3-0.6B", 2)
    write_model(folder / "Qwen3-32B", 18)  # the pages name layer 17
    return folder


@pytest.mark.parametrize(
    "command",
    commands_of("docs/models.md") + commands_of("docs/checkpoints.md"),
    ids=" ".join,
)
def test_command(
    command: list[str],
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    thorough: bool,
) -> None:
    if not thorough:
        pytest.skip("half a minute in all, and tests/cli/test_generate.py has the same flags")
    monkeypatch.chdir(models)
    assert main(command) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("page", ["docs/models.md", "docs/checkpoints.md"])
def test_code_from_python(page: str, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return all complete code of the page; the rest is given its imports in the text."""
    monkeypatch.chdir(models)
    whole = [block for block in blocks_of(page, "python") if "import " in block]
    assert whole
    for block in whole:
        exec(compile(block, page, "exec"), {"__name__": "page"})


def test_pages_have_commands() -> None:
    assert len(commands_of("docs/models.md")) >= 6
    assert len(commands_of("docs/checkpoints.md")) >= 2
