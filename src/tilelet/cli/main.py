"""`tilelet`: the command line. Only what the chosen command needs is imported."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tilelet import __version__
from tilelet.cli import interrupt, output

# What a process leaves behind after SIGPIPE and SIGINT, by convention.
BROKEN_PIPE, INTERRUPTED = 141, 130
COULD_NOT_RUN = 3

_FORMATS = ("text", "json", "sarif")

_EPILOG = """\
examples:
  tilelet run kernel.py -p a2a3sim          run a script, its own options after its name
  tilelet run --dump-passes kernel.py       and write the program after every pass
  tilelet tasks kernel.py                   count its tasks without executing them
  tilelet profile kernel.py -p a2a3         what an NPU would do with it, modelled
  tilelet check kernel.py -p a2a3           whether its tiles fit on chip
  tilelet compare before.py after.py        two programs, and why one is faster
  tilelet demo                              a Qwen3 layer before and after, checked
  tilelet list                              programs that can be run by name
  tilelet run qwen3/scope3 --variant tuned  one of them, with its own options
  tilelet doctor                            whether native runs have what they need here
  tilelet bench                             how fast they are here
  tilelet explain E0203                     what an error code means

exit codes: 0 passed, 1 mismatch or finding, 2 wrong usage, 3 could not run
"""

_RUN_EPILOG = """\
examples:
  tilelet run kernel.py
  tilelet run kernel.py -p a2a3sim --max-seq
  tilelet run --engine interp --dump-passes kernel.py
  tilelet run --keep-c kernel.py            and keep the C text it was compiled to
  tilelet run --format json kernel.py > report.json

Options of Tilelet stand before SCRIPT; everything after it belongs to the script. The environment
can set them too: TILELET_ENGINE, TILELET_FORMAT, TILELET_SEED, TILELET_DUMP_PASSES=1,
TILELET_NO_CACHE=1, TILELET_BUILD_DIR, TILELET_CACHE_DIR.

Programs are compiled to C; without a C compiler they are interpreted, which is slow.
TILELET_THREADS sets the number of threads, TILELET_ISA=sse, avx2 or avx512 keeps to these
instructions, and TILELET_SANITIZE=1 compiles with address and undefined-behaviour sanitizers.
"""

_TASKS_EPILOG = """\
examples:
  tilelet tasks kernel.py
  tilelet tasks --format json kernel.py --batch 16

The script runs as usual, but its kernels are only counted: results stay as they were.
"""

_PROFILE_EPILOG = """\
examples:
  tilelet profile kernel.py -p a2a3
  tilelet profile kernel.py -p my.toml --period 2026-06
  tilelet profile --platforms a2a3,a5 kernel.py --max-seq 4096
  tilelet profile --format json qwen3/scope3:baseline > profile.json

Nothing runs on a device, and no kernel runs here: the control program does, its tasks are recorded,
and a model of the machine plays them. All figures are modelled. The run directory gets
profile.json, report/ (memory plan, budget, hints) and dfx_outputs/ (a trace for Perfetto, records,
dependencies). Exit code 1: the machine would refuse the program, see the errors.
"""

_CHECK_EPILOG = """\
examples:
  tilelet check kernel.py -p a2a3
  tilelet check --memory kernel.py -p a5      with every tile's place and budget

Only tiles count, never tensors in global memory. Exit code 1: there are findings.
"""

_COMPARE_EPILOG = """\
examples:
  tilelet compare before.py after.py
  tilelet compare qwen3/scope3:baseline qwen3/scope3:tuned -p a2a3
  tilelet compare "kernel.py --tile 64" "kernel.py --tile 128"
  tilelet compare kernel.py --platforms a2a3,a5      the same as kernel.py@a2a3 kernel.py@a5
  tilelet compare old/profile.json new/profile.json
"""

_DOCTOR_EPILOG = """\
examples:
  tilelet doctor
  tilelet doctor --json

Exit code 1: something that native runs need is broken.
"""

_BENCH_EPILOG = """\
examples:
  tilelet bench                      all of it: some ten minutes on two cores
  tilelet bench matmul decode        two sections
  tilelet bench --quick              small shapes: does it work?
  tilelet bench --list               the sections
  tilelet bench vector --json v.json

Everything is measured in one run, the machine's peaks first and then again beside each figure.
Exit code 1: something failed or gave wrong results; a figure out of reach is not an error.
"""

_DEMO_EPILOG = """\
examples:
  tilelet demo             the layer at the sizes of Qwen3-32B: a minute, 3 GB of memory
  tilelet demo --quick     the same program at a fraction of the size

One layer of Qwen3-32B, one new token for each of 16 sequences. `baseline` is the program as it was
first written, `optimised` the same computation with its faults taken out. Both run natively, so a C
compiler is needed, and all outputs, K/V caches too, are compared with a reference in double. The
table shows tasks, bytes of global memory, time on the modelled NPU, and time on this CPU. What was
wrong and what it cost, step by step, is told in docs/qwen3.md.
"""

_STORY_EPILOG = """\
examples:
  tilelet story --write                  measure everything, write docs/qwen3.md (minutes)
  tilelet story --write --keep-cpu       only what is modelled (seconds)
  tilelet story --check                  are its modelled figures what the code gives?
  tilelet story --check --only scope1    of one program; several with commas

CPU times differ from run to run, so they are not checked. Exit code 1: the page is not up to date.
"""

_EXPLAIN_EPILOG = """\
examples:
  tilelet explain E0203
  tilelet explain          all codes, one line each
"""

_DOCS_EPILOG = """\
examples:
  tilelet docs --write     write docs/ops.md and docs/errors.md
  tilelet docs --check     exit 1 if they are not up to date
"""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints look like all of Tilelet's."""

    def error(self, message: str) -> NoReturn:
        from tilelet.diag.catalogue.command import BadFlag
        from tilelet.diag.render import render_text, use_color
        from tilelet.diag.text import printable

        self.print_usage(sys.stderr)
        message = printable(message)
        named = re.search(r"(?<!\w)--?[\w-]+", message)
        if named is None:
            self.exit(2, f"error: {message}\n")
        problem = BadFlag(named.group(), message, _long_options(self))
        self.exit(2, render_text(problem.diagnostic, use_color(sys.stderr)) + "\n")


def _long_options(parser: argparse.ArgumentParser) -> list[str]:
    """The options of a parser and of its commands: argparse reports unknown ones at the top."""
    found: list[str] = []
    for action in parser._actions:
        found += [option for option in action.option_strings if option.startswith("--")]
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                found += _long_options(command)
    return found


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tilelet",
        description="Run, check and profile tile kernels written in the pl language, on any CPU.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tilelet {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    run = _command(commands, "run", "run a script and report its verdict", _RUN_EPILOG)
    _add_script_options(run)
    run.add_argument(
        "--engine",
        metavar="NAME",
        help="what executes programs: cpu (native code, the default) or interp (the interpreter)",
    )
    run.add_argument(
        "--keep-c", action="store_true", help="keep the C text of programs in the run directory"
    )
    run.add_argument("--keep-c-in", type=Path, metavar="DIR", help="keep it in this folder")
    run.add_argument(
        "--seed-valid",
        action="store_true",
        help="lose `valid_shape` at the ops where the compilers of April 2026 lost it",
    )
    run.add_argument("--save-data", action="store_true", help="keep inputs and goldens as .npz")
    run.add_argument(
        "--no-golden-cache", action="store_true", help="compute goldens even if nothing changed"
    )
    _add_script(run)

    tasks = _command(commands, "tasks", "count a script's tasks, kernel by kernel", _TASKS_EPILOG)
    _add_script_options(tasks)
    _add_script(tasks)

    _add_device_commands(commands)

    text = "report the compiler, CPU and cache that native runs use"
    doctor = _command(commands, "doctor", text, _DOCTOR_EPILOG)
    doctor.add_argument("--json", action="store_true", help="for machines")

    bench = _command(commands, "bench", "measure the native engine on this machine", _BENCH_EPILOG)
    bench.add_argument("sections", nargs="*", metavar="SECTION", help="what to measure (all)")
    bench.add_argument("--list", action="store_true", help="list the sections")
    bench.add_argument("--quick", action="store_true", help="small shapes, few runs")
    bench.add_argument(
        "--json", type=Path, metavar="FILE", help="where the figures go (build_output/bench_*.json)"
    )

    explain = _command(commands, "explain", "explain an error code", _EXPLAIN_EPILOG)
    explain.add_argument("code", nargs="?", metavar="CODE", help="such as E0203")

    docs = _command(commands, "docs", "generate the reference pages", _DOCS_EPILOG)
    what = docs.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write the pages")
    what.add_argument("--check", action="store_true", help="compare the pages with the code")
    docs.add_argument("--dir", type=Path, default=Path("docs"), help="their folder (default: docs)")

    text = "run the Qwen3 decode layer, as first written and optimised, and compare"
    demo = _command(commands, "demo", text, _DEMO_EPILOG)
    demo.add_argument("--quick", action="store_true", help="a small layer, in seconds")
    demo.add_argument(
        "-p",
        "--platform",
        metavar="NAME",
        default="a2a3",
        help="the modelled machine: a2a3 (default), a5, or a machine file (.toml)",
    )

    text = "generate the page about the Qwen3 programs, step by step"
    story = _command(commands, "story", text, _STORY_EPILOG)
    what = story.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="measure, and write page and plot")
    what.add_argument("--check", action="store_true", help="compare page and plot with the code")
    story.add_argument(
        "--keep-cpu", action="store_true", help="with --write: keep the CPU times of the page"
    )
    story.add_argument("--only", metavar="A,B", default="", help="check these programs only")
    story.add_argument("--dir", type=Path, default=Path("docs"), help="its folder (default: docs)")

    _command(commands, "list", "list the programs that ship with Tilelet", "")
    _command(commands, "version", "print the version", "")
    return parser


def _command(
    commands: argparse._SubParsersAction[Any], name: str, text: str, epilog: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _add_script_options(parser: argparse.ArgumentParser) -> None:
    environment = os.environ
    chosen = environment.get("TILELET_FORMAT", "text")
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default=chosen if chosen in _FORMATS else "text",
        help="of messages; json and sarif go to stdout, the script's own output to stderr",
    )
    parser.add_argument(
        "--dump-passes",
        action="store_true",
        default=environment.get("TILELET_DUMP_PASSES", "0") not in ("", "0"),
        help="write the program after every pass to the run directory",
    )
    _add_run_options(parser)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """What decides how a script runs, whatever is asked about it."""
    parser.add_argument(
        "--build-dir", type=Path, metavar="DIR", help="folder of run directories (build_output)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=os.environ.get("TILELET_SEED", "0"),
        help="draw other random inputs (default: 0)",
    )
    parser.add_argument(
        "--pypto",
        choices=("tilelet", "installed"),
        default="tilelet",
        help="what `import pypto` means (default: tilelet)",
    )
    parser.add_argument(
        "--golden",
        choices=("tilelet", "script"),
        default="tilelet",
        help="what `import golden` means: Tilelet's, or the script's own (default: tilelet)",
    )


def _add_device_commands(commands: argparse._SubParsersAction[Any]) -> None:
    text = "model a script's time on an NPU, and say where it goes"
    profile = _command(commands, "profile", text, _PROFILE_EPILOG)
    _add_device_options(profile, ("text", "json"))
    profile.add_argument(
        "--execute",
        action="store_true",
        help="run the kernels too: for programs whose results decide their tasks",
    )
    profile.add_argument(
        "--no-files", dest="files", action="store_false", help="print the report, write nothing"
    )
    _add_script(profile)

    check = _command(commands, "check", "check tiles against a machine's limits", _CHECK_EPILOG)
    _add_device_options(check, _FORMATS)
    check.add_argument(
        "--memory", action="store_true", help="print the memory plan and the TILELET budget"
    )
    _add_script(check)

    compare = _command(commands, "compare", "compare two modelled runs", _COMPARE_EPILOG)
    _add_device_options(compare, ("text", "json"))
    compare.add_argument("a", metavar="A", help="a script, a program's name, or a profile.json")
    compare.add_argument("b", metavar="B", nargs="?", help="another, or the same with @machine")


def _add_device_options(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    machine = parser.add_mutually_exclusive_group()
    machine.add_argument(
        "-p", "--platform", metavar="NAME", help="a2a3 (default), a5, or a machine file (.toml)"
    )
    machine.add_argument("--platforms", metavar="A,B", help="several machines, side by side")
    parser.add_argument("--period", help="runtime of that month: 2026-04, 2026-06 or 2026-07")
    parser.add_argument("--format", choices=formats, default="text", help="of the answer")
    _add_run_options(parser)


def _add_script(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", metavar="SCRIPT", help="a Python file")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="options of the script"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `tilelet` command; the result is the exit code."""
    output.open_closed_streams()
    with output.watched(), interrupt.noticed():
        return _guarded(argv)


def _guarded(argv: Sequence[str] | None) -> int:
    try:
        if argv is None and os.environ.get("TILELET_SANITIZE"):
            from tilelet.cpu import sanitize

            sanitize.restart()
        options = build_parser().parse_args(argv)
        with interrupt.deferred():
            command = _command_of(options)
        code = command()
        sys.stdout.flush()
    except (KeyboardInterrupt, ImportError, SyntaxError, SystemError) as error:
        if not interrupt.explains(error):
            raise
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output is gone: nothing to say, and nothing left to flush.
        output.discard()
        return BROKEN_PIPE
    except OSError as error:
        if not output.failed_by(error):
            raise
        output.say_failed(error)
        return COULD_NOT_RUN
    return code


def _use_one_blas_thread() -> None:
    """Goldens have threads of their own. Those of BLAS wait for each other in every small product,
    which takes ten times as long when the cores have other work, too. NumPy must not be loaded yet.
    """
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def _command_of(options: argparse.Namespace) -> Callable[[], int]:
    """What the chosen command does, with the modules that it needs imported."""
    if options.command in ("run", "tasks"):
        from tilelet.cli.run import run_command

        return lambda: run_command(options)
    if options.command in ("profile", "check", "compare"):
        from tilelet.cli import profile

        command = getattr(profile, f"{options.command}_command")
        return lambda: command(options)
    if options.command == "explain":
        from tilelet.cli.pages import explain_command

        return lambda: explain_command(options.code)
    if options.command == "docs":
        from tilelet.cli.pages import docs_command

        return lambda: docs_command(options.dir, write=options.write)
    if options.command == "doctor":
        from tilelet.cli.doctor import doctor_command

        return lambda: doctor_command(options)
    if options.command == "bench":
        from tilelet.cli.bench import bench_command

        return lambda: bench_command(options)
    if options.command == "demo":
        _use_one_blas_thread()
        from tilelet.cli.demo import demo_command

        return lambda: demo_command(options)
    if options.command == "story":
        _use_one_blas_thread()
        from tilelet.cli.walkthrough import story_command

        return lambda: story_command(options)
    if options.command == "list":
        from tilelet.cli.models import list_models

        return lambda: _say(list_models())
    return lambda: _say(f"tilelet {__version__}")


def _say(text: str) -> int:
    print(text)
    return 0
