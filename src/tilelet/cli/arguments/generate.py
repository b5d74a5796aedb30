"""The options of `tilelet generate`."""

from __future__ import annotations

from tilelet.cli import manual
from tilelet.cli.arguments.command import Command
from tilelet.cli.arguments.shared import Namespace, add_format
from tilelet.cli.options import JSON, TEXT
from tilelet.cli.usage import OneOf, Parser, folder, number, positive, token_list, whole_number
from tilelet.scripts import interrupt

_DTYPES = OneOf("bfloat16", "float16", "float32")
_ENGINES = OneOf("cpu", "interp")


def _add_generate(parser: Parser) -> None:
    parser.add_argument("model", metavar="MODEL_DIR", help="a folder with a checkpoint")
    given = parser.add_argument_group("what is continued")
    given.add_argument(
        "--prompt", action="append", default=[], metavar="TEXT", help="a text; may be repeated"
    )
    given.add_argument(
        "--tokens",
        action="append",
        type=token_list,
        default=[],
        metavar="IDS",
        help="the same as numbers of tokens; tokens come out",
    )
    given.add_argument("--chat", action="store_true", help="each prompt is what a user says")
    chosen = parser.add_argument_group("how it is continued")
    chosen.add_argument("--max-new-tokens", type=positive, default=128, metavar="N")
    chosen.add_argument("--temperature", type=number, default=0.0, help="0 (default): the best")
    chosen.add_argument("--top-k", type=whole_number, default=0, metavar="K", help="0: all")
    chosen.add_argument("--top-p", type=number, default=1.0, metavar="P", help="1: all")
    chosen.add_argument("--seed", type=whole_number, default=0, help="of the random numbers")
    chosen.add_argument("--ignore-eos", action="store_true", help="go on after the end of a text")
    asked = parser.add_argument_group("what is said about it")
    asked.add_argument("--compare", action="store_true", help="with `transformers`, by layer")
    asked.add_argument("--profile", metavar="MACHINE", help="modelled time per token: a2a3, a5")
    add_format(parser, (TEXT, JSON), "of the answer")
    sizes = parser.add_argument_group("how the model is run")
    sizes.add_argument("--dtype", type=_DTYPES, metavar=_DTYPES.metavar, help="(as stored)")
    sizes.add_argument("--int8", action="store_true", help="layers' weights in INT8")
    sizes.add_argument("--max-seq", type=positive, default=0, metavar="N", help="positions")
    sizes.add_argument("--batch", type=positive, default=16, metavar="N", help="at a time (16)")
    sizes.add_argument("--layers", type=positive, default=0, metavar="N", help="only the first")
    sizes.add_argument("--stream", action="store_true", help="keep no layer in memory")
    sizes.add_argument(
        "--weights-cache", type=folder, metavar="DIR", help="converted weights are kept there"
    )
    sizes.add_argument("--engine", type=_ENGINES, metavar=_ENGINES.metavar, help="(cpu)")


def _generate(parser: Parser, found: Namespace) -> int:
    if not found.prompt and not found.tokens:
        parser.refuse("nothing to continue: give `--prompt` or `--tokens`")
    if found.prompt and found.tokens:
        parser.refuse("`--prompt` and `--tokens` do not go together")
    if found.chat and found.tokens:
        parser.refuse("`--chat` is for texts, not for `--tokens`")
    with interrupt.deferred():
        from tilelet.cli.generate import generate_command

    return generate_command(found)


GENERATE = Command(
    "generate", "continue texts by a checkpoint's model", manual.GENERATE, _add_generate, _generate
)
