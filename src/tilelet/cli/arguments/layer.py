"""The options of `tilelet layer`."""

from __future__ import annotations

from tilelet.cli import manual
from tilelet.cli.arguments.command import Command
from tilelet.cli.arguments.shared import Namespace, add_format
from tilelet.cli.options import JSON, TEXT
from tilelet.cli.usage import OneOf, Parser, new_file, positive, token_list, whole_number
from tilelet.scripts import interrupt

_DTYPES = OneOf("bfloat16", "float16", "float32")
_ENGINES = OneOf("cpu", "interp")


def _add_layer(parser: Parser) -> None:
    parser.add_argument("model", metavar="MODEL_DIR", help="a folder with a checkpoint")
    parser.add_argument(
        "--layer", type=whole_number, default=0, metavar="N", help="which layer (0, the first)"
    )
    given = parser.add_argument_group("what goes into it")
    given.add_argument(
        "--capture", action="store_true", help="tokens, through all layers before (else random)"
    )
    given.add_argument(
        "--tokens", type=token_list, metavar="IDS", help="those tokens (else random ones)"
    )
    given.add_argument("--positions", type=positive, default=17, metavar="N", help="rows (17)")
    given.add_argument("--seed", type=whole_number, default=0, help="of random rows and tokens")
    how = parser.add_argument_group("how it is run")
    how.add_argument("--int8", action="store_true", help="weights in INT8, a factor per output")
    how.add_argument("--dtype", type=_DTYPES, metavar=_DTYPES.metavar, help="(as stored)")
    how.add_argument("--engine", type=_ENGINES, metavar=_ENGINES.metavar, help="(cpu)")
    parser.add_argument(
        "--save",
        type=new_file,
        metavar="FILE",
        help="states, out and golden, as a new .safetensors file",
    )
    add_format(parser, (TEXT, JSON), "of the answer")


def _layer(parser: Parser, found: Namespace) -> int:
    if found.tokens is not None and not found.capture:
        parser.refuse("`--tokens` is what `--capture` captures from")
    with interrupt.deferred():
        from tilelet.cli.layer import layer_command

    return layer_command(found)


LAYER = Command(
    "layer", "run one layer of a checkpoint beside its golden", manual.LAYER, _add_layer, _layer
)
