"""The commands of `tilelet`: their options, and what runs them.

Only what the chosen command needs is imported, and only here does anything know argparse's
namespaces.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tilelet import __version__
from tilelet.checks.registry import CHECKS
from tilelet.cli import manual
from tilelet.cli.options import (
    DEFAULT_MACHINE,
    FORMATS,
    JSON,
    TEXT,
    AdviseOptions,
    CheckOptions,
    CompareOptions,
    DeviceOptions,
    DivergeOptions,
    ExportOptions,
    RunOptions,
    TuneOptions,
    VerdictOptions,
    taken,
)
from tilelet.cli.usage import (
    OneOf,
    Parser,
    budget,
    folder,
    from_environment,
    local_address,
    name_list,
    new_file,
    positive,
    seconds,
    variation,
    whole_number,
)
from tilelet.scripts import exit_codes, interrupt
from tilelet.scripts.target import Target, options_after

Namespace = argparse.Namespace

# Options of `profile` and `check` that may also stand after the script.
AFTER_SCRIPT = (
    "-p",
    "--platform",
    "--platforms",
    "--period",
    "--format",
    "--no-files",
    "--execute",
    "--memory",
    "--portable",
    "--as-runtime",
    "--fix",
    "--in-place",
    "--html",
    "--open",
    "--vary",
    "--objective",
    "--budget",
    "--method",
    "--search-seed",
    "--jobs",
    "--executor",
    "--results",
    "--verify",
    "--only",
    "--json",
    "--strength",
)

D = TypeVar("D", bound=DeviceOptions)


@dataclass(frozen=True)
class Command:
    """One command.

    about       one line for `tilelet --help`
    manual      what its own help says after the options
    add         gives a parser its options
    run         does the work; the result is the exit code
    is_internal  for those who work on Tilelet itself: not in `--help`, nor in completions
    """

    name: str
    about: str
    manual: str
    add: Callable[[Parser], None]
    run: Callable[[Parser, Namespace], int]
    is_internal: bool = False

    def parser(self) -> Parser:
        parser = Parser(
            f"tilelet {self.name}",
            description=f"{self.about[0].upper()}{self.about[1:]}.",
            epilog=self.manual,
        )
        self.add(parser)
        return parser


# Options that several commands have


def _add_format(parser: Parser, formats: Sequence[str], about: str) -> None:
    known = OneOf(*FORMATS)
    default = from_environment("TILELET_FORMAT", known, TEXT)
    values = OneOf(*formats)
    parser.add_argument(
        "--format",
        type=values,
        metavar=values.metavar,
        default=default if default in formats else TEXT,
        help=about,
    )


def _add_dump(parser: Parser) -> None:
    parser.add_argument(
        "--dump-passes",
        action="store_true",
        default=os.environ.get("TILELET_DUMP_PASSES", "0") not in ("", "0"),
        help="write the program after every pass to the run directory",
    )


def _add_run_options(parser: Parser) -> None:
    """What decides how a script runs, whatever is asked about it."""
    parser.add_argument(
        "--build-dir", type=folder, metavar="DIR", help="folder of run directories (build_output)"
    )
    parser.add_argument(
        "--seed",
        type=whole_number,
        default=from_environment("TILELET_SEED", whole_number, 0),
        help="draw other random inputs (default: 0)",
    )
    for name, other, about in (
        ("--pypto", "installed", "what `import pypto` means (default: tilelet)"),
        (
            "--golden",
            "script",
            "what `import golden` means: Tilelet's, or the script's own (default: tilelet)",
        ),
    ):
        values = OneOf("tilelet", other)
        parser.add_argument(
            name, type=values, metavar=values.metavar, default="tilelet", help=about
        )


def _add_device_options(parser: Parser, formats: Sequence[str]) -> None:
    machine = parser.add_mutually_exclusive_group()
    machine.add_argument(
        "-p", "--platform", metavar="NAME", help="a2a3 (default), a5, or a machine file (.toml)"
    )
    machine.add_argument(
        "--platforms",
        type=name_list,
        default=(),
        metavar="A,B",
        help="several machines, side by side",
    )
    parser.add_argument(
        "--period", metavar="MONTH", help="runtime of that month or day, as 2026-05-14"
    )
    _add_format(parser, formats, "of the answer")
    _add_run_options(parser)


def _add_script(parser: Parser) -> None:
    parser.add_argument(
        "-m", dest="module", action="store_true", help="SCRIPT is a module: package.module"
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python file, or a program's name")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="options of the script"
    )


def _target(found: Namespace) -> Target:
    arguments = tuple(found.arguments)
    if found.module:
        return Target.of_module(found.script, arguments)
    return Target(found.script, arguments)


def _add_nothing(parser: Parser) -> None:
    """A command without options."""


def _own(parser: Parser) -> frozenset[str]:
    return frozenset(parser.own_options)


# run and tasks


def _add_run(parser: Parser) -> None:
    _add_format(parser, FORMATS, "of messages; json and sarif go to stdout, all else to stderr")
    _add_dump(parser)
    _add_run_options(parser)
    parser.add_argument(
        "--engine",
        metavar="NAME",
        help="what executes programs: cpu (native code, the default) or interp (the interpreter)",
    )
    parser.add_argument(
        "--keep-c", action="store_true", help="keep the C text of programs in the run directory"
    )
    parser.add_argument("--keep-c-in", type=folder, metavar="DIR", help="keep it in this folder")
    parser.add_argument(
        "--seed-valid",
        action="store_true",
        help="lose `valid_shape` at the ops where the compilers of April 2026 lost it",
    )
    parser.add_argument("--save-data", action="store_true", help="keep inputs and goldens as .npz")
    parser.add_argument(
        "--no-golden-cache", action="store_true", help="compute goldens even if nothing changed"
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit code 1 if a check has findings, too"
    )
    parser.add_argument(
        "--no-checks", dest="checks", action="store_false", help="run only, check nothing"
    )
    _add_script(parser)


def _add_as_runtime(parser: Parser) -> None:
    parser.add_argument(
        "--as-runtime",
        action="store_true",
        help="count as the device's runtime does: allocations, both halves of mixed kernels",
    )


def _add_tasks(parser: Parser) -> None:
    _add_as_runtime(parser)
    _add_format(parser, FORMATS, "of messages; json and sarif go to stdout, all else to stderr")
    _add_dump(parser)
    _add_run_options(parser)
    _add_script(parser)


def _run(command: str) -> Callable[[Parser, Namespace], int]:
    def run(parser: Parser, found: Namespace) -> int:
        with _no_garbage(), interrupt.deferred():
            # What nearly every script needs, too.
            import tilelet.language
            import tilelet.runtime.harness  # noqa: F401
            from tilelet.cli.run import run_command

        return run_command(
            taken(RunOptions, found, command=command, own=_own(parser), target=_target(found))
        )

    return run


@contextlib.contextmanager
def _no_garbage() -> Generator[None]:
    """For imports: all that they make stays. To look for garbage among it, then and in all later
    collections, takes a tenth of a short run.
    """
    pause = gc.isenabled()
    gc.disable()
    yield
    if not gc.get_freeze_count():  # once in a process
        gc.freeze()
    if pause:
        gc.enable()


# profile, check, compare


def _add_execute(parser: Parser) -> None:
    parser.add_argument(
        "--execute",
        action="store_true",
        help="run the kernels too: for programs whose results decide their tasks",
    )


def _add_page(parser: Parser) -> None:
    parser.add_argument(
        "--html",
        type=new_file,
        metavar="FILE",
        help="write a page to look at: one file that needs no network",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def _add_profile(parser: Parser) -> None:
    _add_as_runtime(parser)
    _add_device_options(parser, FORMATS)
    _add_page(parser)
    _add_execute(parser)
    parser.add_argument(
        "--no-files", dest="files", action="store_false", help="print the report, write nothing"
    )
    _add_script(parser)


def _add_check(parser: Parser) -> None:
    _add_device_options(parser, FORMATS)
    _add_page(parser)
    parser.add_argument(
        "--only",
        type=name_list,
        default=(),
        metavar="A,B",
        help=f"make these checks only: {', '.join(CHECKS)}",
    )
    parser.add_argument(
        "--memory", action="store_true", help="print the memory plan and the TILELET budget"
    )
    parser.add_argument(
        "--budget",
        type=seconds,
        default=60.0,
        metavar="TIME",
        help="for `--only golden`: 60s (the default) or 2m",
    )
    parser.add_argument(
        "--portable",
        metavar="DIALECT",
        help="instead, what a release of PyPTO does not take of it: 2026-04 or 2026-08",
    )
    _add_execute(parser)
    _add_script(parser)


def _check(parser: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.check import check_command

    options = _device_options(parser, found, "check", CheckOptions)
    if options.portable is not None:
        from tilelet.cli.portable import portable_command

        return portable_command(options)
    return check_command(options)


def _add_diverge(parser: Parser) -> None:
    _add_format(parser, FORMATS, "of the answer")
    _add_run_options(parser)
    parser.add_argument(
        "--budget",
        type=seconds,
        default=15.0,
        metavar="TIME",
        help="for repairs: 60s (default: 15s)",
    )
    parser.add_argument(
        "--all-fp32",
        action="store_true",
        help="compare with the same program in FP32 throughout: is it logic, or rounding?",
    )
    _add_script(parser)


def _diverge(parser: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.diverge import diverge_command

    target = _target(found)
    return diverge_command(
        taken(DivergeOptions, found, command="diverge", own=_own(parser), target=target)
    )


def _profile(parser: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.profile import profile_command

    return profile_command(_device_options(parser, found, "profile", DeviceOptions))


def _device_options(parser: Parser, found: Namespace, command: str, cls: type[D]) -> D:
    """Options on both sides of the script, read by one parser."""
    from tilelet.runtime.config import PLATFORMS

    known = parser.own_options
    allowed = [name for name in AFTER_SCRIPT if name in known]
    with_value = [name for name in allowed if known[name].nargs is None]
    given = _target(found)
    after, target = options_after(given, allowed, with_value, PLATFORMS)
    named = ["-m", target.module] if target.module else [target.name]
    found = parser.parse([*after, *named, *target.arguments], found)
    return taken(cls, found, command=command, own=_own(parser), target=target)


def _add_compare(parser: Parser) -> None:
    _add_device_options(parser, (TEXT, JSON))
    _add_page(parser)
    parser.add_argument("a", metavar="A", help="a script, a program's name, or a profile.json")
    parser.add_argument("b", metavar="B", nargs="?", help="another, or the same with @machine")


def _compare(parser: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.profile import compare_command

    if len(found.platforms) > 2:
        parser.refuse(f"`--platforms`: two machines can be compared, not {len(found.platforms)}")
    return compare_command(taken(CompareOptions, found, command="compare", own=_own(parser)))


# export


def _add_export(parser: Parser) -> None:
    parser.add_argument(
        "--dialect",
        metavar="MONTH",
        default="2026-08",
        help="the release of PyPTO it is for: 2026-08 (default) or 2026-04",
    )
    parser.add_argument(
        "-o", "--output", type=new_file, metavar="FILE", help="where it goes (default: stdout)"
    )
    parser.add_argument("--program", metavar="NAME", help="which, if the script runs several")
    _add_run_options(parser)
    _add_script(parser)


def _export(parser: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.portable import export_command

    with_value = ["--dialect", "-o", "--output", "--program"]
    after, target = options_after(_target(found), with_value, with_value, ())
    named = ["-m", target.module] if target.module else [target.name]
    found = parser.parse([*after, *named, *target.arguments], found)
    return export_command(
        taken(ExportOptions, found, command="export", own=_own(parser), target=target)
    )


# report, view


def _add_report(parser: Parser) -> None:
    _add_page(parser)
    parser.add_argument("directory", metavar="RUN_DIR", help="what `tilelet profile` wrote")


def _add_view(parser: Parser) -> None:
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("-p", "--platform", metavar="NAME", help="of a script: a2a3 (default), a5")
    parser.add_argument(
        "--perfetto",
        type=local_address,
        metavar="ADDRESS",
        default=from_environment("TILELET_PERFETTO", local_address, None),
        help="a Perfetto on this machine, such as http://localhost:10000",
    )
    parser.add_argument(
        "directory", metavar="RUN_DIR", help="a run directory, a script, or a program's name"
    )


def _report(_: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.page import PageOptions, report_command

    return report_command(taken(PageOptions, found))


def _view(_: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.page import PageOptions, view_command

    return view_command(taken(PageOptions, found))


# verdict, advise and tune


def _add_verdict(parser: Parser) -> None:
    _add_device_options(parser, FORMATS)
    parser.add_argument(
        "--json", dest="format", action="store_const", const=JSON, help="the same as --format json"
    )
    parser.add_argument(
        "--strength",
        type=seconds,
        metavar="TIME",
        help="also try for so long, as 20s, whether the golden notices wrong ops",
    )
    _add_script(parser)


def _verdict(parser: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.verdict import verdict_command

    return verdict_command(_device_options(parser, found, "verdict", VerdictOptions))


def _add_advise(parser: Parser) -> None:
    _add_device_options(parser, FORMATS)
    parser.add_argument(
        "--fix",
        action="store_true",
        help="apply the rewritings one after the other, and show the ladder and the diff",
    )
    parser.add_argument(
        "--in-place", action="store_true", help="with --fix: write the result to the script"
    )
    _add_script(parser)


def _advise(parser: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.advise import advise_command

    options = _device_options(parser, found, "advise", AdviseOptions)
    if options.in_place and not options.fix:
        parser.refuse("`--in-place` writes what `--fix` makes: give both")
    return advise_command(options)


def _add_tune(parser: Parser) -> None:
    _add_device_options(parser, FORMATS)
    parser.add_argument(
        "--vary",
        type=variation,
        action="append",
        default=[],
        metavar="NAME=V,V",
        help="what to vary, and the values; may be repeated (default: whatever can be varied)",
    )
    objectives = OneOf("us", "gm_bytes", "tasks", "cpu_ms")
    parser.add_argument(
        "--objective",
        type=objectives,
        metavar=objectives.metavar,
        default="us",
        help="what should become less: modelled time (default), bytes, tasks, time on this CPU",
    )
    parser.add_argument(
        "--budget",
        type=budget,
        default=budget("200"),
        metavar="N|SECONDS",
        help="how many candidates (200), or how long: 60s, 5m",
    )
    methods = OneOf("exhaustive", "descent", "random")
    parser.add_argument(
        "--method",
        type=methods,
        metavar=methods.metavar,
        help="of the search (default: exhaustive if the budget allows it, else descent)",
    )
    parser.add_argument(
        "--search-seed", type=whole_number, default=0, metavar="N", help="search in another order"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=positive, metavar="N", help="processes (one per core)")
    where.add_argument(
        "--executor", metavar="dask://HOST:PORT", help="a dask scheduler whose workers do the work"
    )
    parser.add_argument(
        "--results", type=new_file, metavar="FILE", help="keep scores there, and go on from them"
    )
    parser.add_argument(
        "--verify",
        type=whole_number,
        default=5,
        metavar="N",
        help="how many of the best to run on this CPU until one is right (5); 0: none",
    )
    _add_script(parser)


def _tune(parser: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli.tune import tune_command

    return tune_command(_device_options(parser, found, "tune", TuneOptions))


# doctor, bench, demo


def _add_doctor(parser: Parser) -> None:
    _add_format(parser, (TEXT, JSON), "of the answer")
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
    _use_one_blas_thread()
    with interrupt.deferred():
        from tilelet.cli.demo import demo_command

    return demo_command(found.platform, found.quick)


def _use_one_blas_thread() -> None:
    """Goldens have threads of their own. Those of BLAS wait for each other in every small product,
    which takes ten times as long when the cores have other work, too. NumPy must not be loaded yet.
    """
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


# Lists and pages


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
    from tilelet.cli.completion import completion_script

    print(completion_script(found.shell, [c for c in COMMANDS.values() if not c.is_internal]))
    return exit_codes.PASSED


# calibrate


def _add_calibrate(parser: Parser) -> None:
    parser.add_argument("action", metavar="ACTION", help="kit, fit or report")
    parser.add_argument(
        "path", type=folder, nargs="?", metavar="DIR", help="of the kit, or of its results"
    )
    parser.add_argument(
        "--like", metavar="NAME", default=DEFAULT_MACHINE, help="fit: the machine to start from"
    )
    parser.add_argument("--period", metavar="MONTH", help="fit: the runtime that the board has")
    parser.add_argument(
        "-o", dest="output", type=new_file, metavar="FILE", help="fit: the machine file to write"
    )
    parser.add_argument(
        "--programs", type=folder, metavar="DIR", help="report: public programs, by revision"
    )
    parser.add_argument(
        "--write", action="store_true", help="report: write docs/calibration.md and what it is of"
    )
    _add_format(parser, (TEXT, JSON), "of the answer")


def _calibrate(parser: Parser, found: Namespace) -> int:
    with interrupt.deferred():
        from tilelet.cli import calibrate

    if found.action not in ("kit", "fit", "report"):
        parser.refuse(f"`calibrate {found.action}`: an action is kit, fit or report")
    if found.action != "report" and found.path is None:
        parser.refuse(f"`calibrate {found.action}` needs a folder")
    if found.action == "kit":
        return calibrate.kit_command(found.path)
    if found.action == "fit":
        return calibrate.fit_command(
            found.path, found.like, found.period, found.output, found.format
        )
    return calibrate.report_command(found.programs, write=found.write, formatted=found.format)


# For those who work on Tilelet itself


def _add_write_or_check(parser: Parser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="make them, and write them")
    what.add_argument("--check", action="store_true", help="compare them with the code")
    parser.add_argument(
        "--dir", type=folder, default=Path("docs"), help="their folder (default: docs)"
    )


def _docs(_: Parser, found: Namespace) -> int:
    from tilelet.cli.pages import docs_command

    return docs_command(found.dir, write=found.write)


def _add_walkthrough(parser: Parser) -> None:
    _add_write_or_check(parser)
    parser.add_argument(
        "--keep-cpu", action="store_true", help="with --write: keep the CPU times of the page"
    )
    parser.add_argument("--only", metavar="A,B", default="", help="check these programs only")


def _walkthrough(parser: Parser, found: Namespace) -> int:
    _use_one_blas_thread()
    with interrupt.deferred():
        from tilelet.cli import walkthrough

    names = [name for name in found.only.split(",") if name]
    unknown = [name for name in names if name not in walkthrough.PROGRAMS]
    if unknown:
        parser.refuse(f"`--only`: `{unknown[0]}` is none of {', '.join(walkthrough.PROGRAMS)}")
    if names and found.write:
        parser.refuse("`--only` goes with `--check`")
    if found.check:
        return walkthrough.check_page(found.dir, names)
    return walkthrough.write_page(found.dir, keep_cpu=found.keep_cpu)


COMMANDS = {
    command.name: command
    for command in (
        Command("run", "run a script and report its verdict", manual.RUN, _add_run, _run("run")),
        Command(
            "tasks",
            "count a script's tasks, kernel by kernel",
            manual.TASKS,
            _add_tasks,
            _run("tasks"),
        ),
        Command(
            "profile",
            "model a script's time on an NPU, and say where it goes",
            manual.PROFILE,
            _add_profile,
            _profile,
        ),
        Command(
            "check",
            "find races, undefined memory, tiles that do not fit",
            manual.CHECK,
            _add_check,
            _check,
        ),
        Command(
            "diverge",
            "find the first statement that goes wrong",
            manual.DIVERGE,
            _add_diverge,
            _diverge,
        ),
        Command("compare", "compare two modelled runs", manual.COMPARE, _add_compare, _compare),
        Command("report", "make the page of a run directory", manual.REPORT, _add_report, _report),
        Command(
            "view",
            "show a run in the browser, again whenever its script is saved",
            manual.VIEW,
            _add_view,
            _view,
        ),
        Command(
            "export",
            "write a program as one script for a public release of PyPTO",
            manual.EXPORT,
            _add_export,
            _export,
        ),
        Command(
            "verdict",
            "say in one answer whether a script is right, fits, and what it takes",
            manual.VERDICT,
            _add_verdict,
            _verdict,
        ),
        Command(
            "advise",
            "say what to change, tried before it is said",
            manual.ADVISE,
            _add_advise,
            _advise,
        ),
        Command(
            "tune",
            "find better tile sizes with the model",
            manual.TUNE,
            _add_tune,
            _tune,
        ),
        Command(
            "calibrate",
            "compare the model with published figures, or fit it to a board of yours",
            manual.CALIBRATE,
            _add_calibrate,
            _calibrate,
        ),
        Command("explain", "explain an error code", manual.EXPLAIN, _add_explain, _explain),
        Command(
            "examples", "list or copy small kernels", manual.EXAMPLES, _add_examples, _examples
        ),
        Command("list", "list the programs that ship with Tilelet", "", _add_nothing, _list),
        Command(
            "demo",
            "run the Qwen3 decode layer, as first written and optimised, and compare",
            manual.DEMO,
            _add_demo,
            _demo,
        ),
        Command(
            "doctor",
            "report the compiler, CPU and cache that native runs use",
            manual.DOCTOR,
            _add_doctor,
            _doctor,
        ),
        Command(
            "bench", "measure the native engine on this machine", manual.BENCH, _add_bench, _bench
        ),
        Command(
            "completion",
            "print a script that completes these commands in your shell",
            manual.COMPLETION,
            _add_completion,
            _completion,
        ),
        Command("version", "print the version", "", _add_nothing, _version),
        Command(
            "docs",
            "generate the reference pages",
            manual.DOCS,
            _add_write_or_check,
            _docs,
            is_internal=True,
        ),
        Command(
            "walkthrough",
            "generate the page about the Qwen3 programs, step by step",
            manual.WALKTHROUGH,
            _add_walkthrough,
            _walkthrough,
            is_internal=True,
        ),
    )
}
