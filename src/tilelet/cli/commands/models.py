"""Commands about checkpoints and models: generate, layer, demo."""

from __future__ import annotations

from pathlib import Path

from tilelet.cli.declaration import Command, argument, option
from tilelet.cli.options import (
    DEFAULT_MACHINE,
    JSON,
    TEXT,
    dtype_option,
    engine_option,
    format_option,
    platform_option,
)
from tilelet.cli.values import (
    folder,
    machines,
    new_file,
    number,
    positive_number,
    rank_count,
    token_list,
    whole_number,
)
from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.command import BadFlag
from tilelet.scripts import interrupt

MODELS = "run models"

_GIVEN, _CHOSEN, _ASKED = "input", "sampling", "reports"
_HOW = "execution"
_INTO = "input"


@dataclass(frozen=True, kw_only=True)
class GenerateCommand(Command, group=MODELS):
    """Generate text from a checkpoint.

    Examples:
      tilelet generate Qwen3-0.6B --prompt "The capital of France is"
      tilelet generate Qwen3-0.6B --chat --prompt "Name three rivers." --temperature 0.7 --seed 3
      tilelet generate Qwen3-0.6B --prompt "One" --prompt "Two" --max-new-tokens 64
      tilelet generate Qwen3-0.6B --prompt "Hello" --compare    beside `transformers`, by layer
      tilelet generate Qwen3-0.6B --prompt "Hello" --profile a2a3   modelled time of a token
      tilelet generate Qwen3-0.6B --prompt "Hello" --int8 --compare   what INT8 changes, by layer
      tilelet generate Qwen3-32B --layers 4 --stream --tokens "9707 11"   part of a large model
      mpiexec -n 4 tilelet generate Qwen3-32B --ranks mpi --prompt "Hello"   a quarter each

    MODEL_DIR holds `config.json`, `.safetensors` files and, for text, `tokenizer.json`. Embedding,
    layers, output head and sampling are tile programs. Prompts and new tokens of a sequence have at
    most --max-seq positions. Text needs the extra `tilelet[generate]`; tokens go in and come out
    without it.

    --compare gives the same tokens to `transformers`: relative L2 distance of the hidden states
    after every layer, the first token that differs, and the distance of its logits. A difference
    that rounding explains is called a near-tie; exit code 1: there is another.
    --int8 converts the matrices of the layers on load, with one scale per output; --compare then
    shows the distance from the weights as stored, after every layer and at the logits.
    --ranks divides heads and MLP columns of every layer among ranks; with mpi each process reads
    only its part of them.
    Ctrl-C ends the generation; what was generated stays.
    """

    model: str = argument("a folder with a checkpoint", "MODEL_DIR")
    prompt: list[str] = option(
        "a text to continue; may be repeated", default=[], metavar="TEXT", many=True, section=_GIVEN
    )
    tokens: list[list[int]] = option(
        "token ids to continue; prints token ids",
        default=[],
        parse=token_list,
        metavar="IDS",
        many=True,
        section=_GIVEN,
    )
    chat: bool = option("treat each prompt as a message of a user", section=_GIVEN)
    max_new_tokens: int = option(
        "limit (128)", default=128, parse=positive_number, metavar="N", section=_CHOSEN
    )
    temperature: float = option(
        "temperature; 0 (default): take the most likely token",
        default=0.0,
        parse=number,
        metavar="T",
        section=_CHOSEN,
    )
    top_k: int = option(
        "sample among the K most likely (0: all)",
        default=0,
        parse=whole_number,
        metavar="K",
        section=_CHOSEN,
    )
    top_p: float = option(
        "sample among the likeliest with sum P (1: all)",
        default=1.0,
        parse=number,
        metavar="P",
        section=_CHOSEN,
    )
    seed: int = option(
        "seed of the random numbers", default=0, parse=whole_number, metavar="N", section=_CHOSEN
    )
    ignore_eos: bool = option("continue after the end-of-text token", section=_CHOSEN)
    compare: bool = option("compare with `transformers`, layer by layer", section=_ASKED)
    profile: str | None = option(
        "modelled time per token: a2a3, a5",
        default=None,
        metavar="MACHINE",
        section=_ASKED,
        words=machines,
    )
    format: str = format_option(TEXT, JSON)
    dtype: str | None = dtype_option(_HOW)
    int8: bool = option("store the weights of the layers in INT8", section=_HOW)
    max_seq: int = option(
        "maximum positions of a sequence",
        default=0,
        parse=positive_number,
        metavar="N",
        section=_HOW,
    )
    batch: int = option(
        "sequences at a time (16)", default=16, parse=positive_number, metavar="N", section=_HOW
    )
    layers: int = option(
        "run only the first N layers", default=0, parse=positive_number, metavar="N", section=_HOW
    )
    stream: bool = option("keep no layer in memory", section=_HOW)
    weights_cache: Path | None = option(
        "folder for converted weights", default=None, parse=folder, metavar="DIR", section=_HOW
    )
    ranks: int = option(
        "divide the layers among N ranks, or `mpi`: one process each",
        default=1,
        parse=rank_count,
        metavar="N",
        section=_HOW,
    )
    engine: str | None = engine_option(_HOW)

    def run(self) -> int:
        if self.ranks != 1 and (self.compare or self.stream or self.weights_cache or self.int8):
            others = "`--compare`, `--int8`, `--stream` or `--weights-cache`"
            raise BadFlag(f"`--ranks` does not go together with {others}")
        if not self.prompt and not self.tokens:
            raise BadFlag("nothing to continue: give `--prompt` or `--tokens`")
        if self.prompt and self.tokens:
            raise BadFlag("`--prompt` and `--tokens` do not go together")
        if self.chat and self.tokens:
            raise BadFlag("`--chat` is for texts, not for `--tokens`")
        with interrupt.defer():
            from tilelet.cli.generate import generate_command

        return generate_command(self)


@dataclass(frozen=True, kw_only=True)
class LayerCommand(Command, group=MODELS):
    """Run one layer of a checkpoint beside its golden.

    Examples:
      tilelet layer Qwen3-32B --layer 17                        random states, 17 positions
      tilelet layer Qwen3-32B --layer 17 --capture              states after 17 layers
      tilelet layer Qwen3-0.6B --layer 3 --capture --tokens "9707 11 1879"
      tilelet layer Qwen3-30B-A3B --layer 0 --int8              experts, weights in INT8
      tilelet layer Qwen3-0.6B --layer 3 --capture --save layer3.safetensors

    Loads one layer of a Qwen3 or Qwen3-MoE checkpoint, whatever the size of the whole, and runs it:
    all positions but the last as a prompt, the last as a decode step. The golden is computed in
    double from the same files. With --capture the states are those of tokens after the preceding
    layers, which are loaded one at a time. --save writes `states`, `out` and `golden`,
    for `TensorSpec(..., from_checkpoint="states", checkpoint="layer3.safetensors")` in scripts of
    your own. Exit code 1: the layer differs by more than rounding explains.
    """

    model: str = argument("a folder with a checkpoint", "MODEL_DIR")
    layer: int = option("which layer (0, the first)", default=0, parse=whole_number, metavar="N")
    capture: bool = option(
        "capture the states of tokens before the layer (default: random states)", section=_INTO
    )
    tokens: list[int] | None = option(
        "tokens to capture (default: random)",
        default=None,
        parse=token_list,
        metavar="IDS",
        section=_INTO,
    )
    positions: int = option(
        "number of positions (17)", default=17, parse=positive_number, metavar="N", section=_INTO
    )
    seed: int = option(
        "seed of random states and tokens",
        default=0,
        parse=whole_number,
        metavar="N",
        section=_INTO,
    )
    int8: bool = option("weights in INT8, one scale per output", section="execution")
    dtype: str | None = dtype_option("execution")
    engine: str | None = engine_option("execution")
    save: Path | None = option(
        "write states, out and golden to a new .safetensors file",
        default=None,
        parse=new_file,
        metavar="FILE",
    )
    format: str = format_option(TEXT, JSON)

    def run(self) -> int:
        if self.tokens is not None and not self.capture:
            raise BadFlag("`--tokens` is what `--capture` captures from")
        with interrupt.defer():
            from tilelet.cli.layer import layer_command

        return layer_command(self)


@dataclass(frozen=True, kw_only=True)
class DemoCommand(Command, group=MODELS):
    """Run a Qwen3 decode layer, as first written and optimized, and compare.

    Examples:
      tilelet demo             the layer at the sizes of Qwen3-32B: a minute, 3 GB of memory
      tilelet demo --quick     the same program at a fraction of the size

    One layer of Qwen3-32B, one new token for each of 16 sequences. `baseline` is the program as it
    was first written, `optimised` the same computation with its faults removed. Both run natively,
    so a C compiler is needed, and all outputs, K/V caches too, are compared with a reference in
    double. The table shows tasks, bytes of global memory, time on the modelled NPU, and time on
    this CPU. docs/qwen3.md explains what was wrong and what it cost, step by step.
    """

    quick: bool = option("a small layer, in seconds")
    platform: str = platform_option(
        "the modelled machine: a2a3 (default), a5, or a machine file (.toml)",
        default=DEFAULT_MACHINE,
    )

    def run(self) -> int:
        from tilelet.cli.blas import use_one_blas_thread

        use_one_blas_thread()
        with interrupt.defer():
            from tilelet.cli.demo import demo_command

        return demo_command(self.platform, self.quick)
