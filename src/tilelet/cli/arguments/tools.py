"""The options of what is about Tilelet and this machine: doctor, bench, demo, lists."""

from __future__ import annotations

from tilelet import __version__
from tilelet.cli import manual
from tilelet.cli.arguments.command import Command
from tilelet.cli.arguments.shared import Namespace, add_format, add_nothing, use_one_blas_thread
from tilelet.cli.options import DEFAULT_MACHINE, JSON, TEXT
from tilelet.cli.usage import OneOf, Parser, folder, new_file
from tilelet.scripts import exit_codes, interrupt


def _add_doctor(parser: Parser) -> None:
    add_format(parser, (TEXT, JSON), "of the answer")
    parser.add_argument(
        "--json", dest="format", action="store_const", const=JSON, help="the same as --format json"
    )


def _doctor(_: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.doctor import doctor_command

    return doctor_command(as_json=found.format == JSON)


def _add_bench(parser: Parser) -> None:
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="what to measure (all)")
    parser.add_argument("--list", action="store_true", help="list the sections")
    parser.add_argument("--quick", action="store_true", help="small shapes, few runs")
    parser.add_argument(
        "--against",
        metavar="TREE",
        help="compare with a git revision, source folder, sdist or wheel; 1 if slower",
    )
    parser.add_argument(
        "--json",
        type=new_file,
        metavar="FILE",
        help="where the figures go (build_output/bench_*.json)",
    )


def _bench(_: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli import bench

    if found.list:
        return bench.list_sections()
    if found.against is not None:
        return bench.against_command(found.against, found.sections, found.quick, found.json)
    return bench.bench_command(found.sections, found.quick, found.json)


def _add_demo(parser: Parser) -> None:
    parser.add_argument("--quick", action="store_true", help="a small layer, in seconds")
    parser.add_argument(
        "-p",
        "--platform",
        metavar="NAME",
        default=DEFAULT_MACHINE,
        help="the modelled machine: a2a3 (default), a5, or a machine file (.toml)",
    )


def _demo(_: Parser, found: Namespace) -> int:
    use_one_blas_thread()
    with interrupt.deferred():
        from tilelet.cli.demo import demo_command

    return demo_command(found.platform, found.quick)


def _add_explain(parser: Parser) -> None:
    parser.add_argument("code", nargs="?", metavar="CODE", help="such as E0203")


def _explain(_: Parser, found: Namespace) -> int:
    from tilelet.cli.pages import explain_command

    return explain_command(found.code)


def _add_examples(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as hello or 01_hello (all)")
    parser.add_argument("--copy", type=folder, metavar="DIR", help="copy them to this folder")


def _examples(_: Parser, found: Namespace) -> int:
    from tilelet.cli.examples import examples_command

    return examples_command(found.names, found.copy)


def _list(_: Parser, __: Namespace) -> int:
    from tilelet.cli.messages import print_text
    from tilelet.cli.models import list_models

    print_text(list_models())
    return exit_codes.PASSED


def _version(_: Parser, __: Namespace) -> int:
    print(f"tilelet {__version__}")
    return exit_codes.PASSED


def _add_completion(parser: Parser) -> None:
    from tilelet.cli.completion import SHELLS

    shells = OneOf(*SHELLS)
    parser.add_argument("shell", type=shells, metavar="SHELL", help="bash, zsh or fish")


def _completion(_: Parser, found: Namespace) -> int:
    from tilelet.cli.commands import COMMANDS
    from tilelet.cli.completion import completion_script

    print(completion_script(found.shell, [c for c in COMMANDS.values() if not c.is_internal]))
    return exit_codes.PASSED


EXPLAIN = Command("explain", "explain an error code", manual.EXPLAIN, _add_explain, _explain)
EXAMPLES = Command(
    "examples", "list or copy small kernels", manual.EXAMPLES, _add_examples, _examples
)
LIST = Command("list", "list the programs that ship with Tilelet", "", add_nothing, _list)
DEMO = Command(
    "demo",
    "run the Qwen3 decode layer, as first written and optimised, and compare",
    manual.DEMO,
    _add_demo,
    _demo,
)
DOCTOR = Command(
    "doctor",
    "report the compiler, CPU and cache that native runs use",
    manual.DOCTOR,
    _add_doctor,
    _doctor,
)
BENCH = Command(
    "bench", "measure the native engine on this machine", manual.BENCH, _add_bench, _bench
)
COMPLETION = Command(
    "completion",
    "print a script that completes these commands in your shell",
    manual.COMPLETION,
    _add_completion,
    _completion,
)
VERSION = Command("version", "print the version", "", add_nothing, _version)
