"""Write everything Tilelet says about a fixed set of programs into a directory tree.

`python -m tests.snapshot DIR` is deterministic, so `diff -r BEFORE AFTER` shows whether a change
of the code changed any printed IR, source span, diagnostic, task, device report or JSON answer.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import io
import os
import re
import runpy
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.diag.samples import FILE, SAMPLES, build, reader, source_of
from tests.frontend.test_catalogue_examples import HEADER, KERNEL_EXAMPLES
from tests.fuzz.cases import Case, draw
from tests.fuzz.mutations import mutated
from tests.generated.harness import described
from tests.kernels import zero_arguments
from tests.models.programs import NAMES, TINY, sizes_of

from tilelet.cli.main import main as tilelet
from tilelet.device import load_machine
from tilelet.device.memory.report import memory_map
from tilelet.device.run import DeviceRun, Recorded
from tilelet.diag.core import Diagnostic, Loc, UserError, UserErrors
from tilelet.diag.formats import to_json
from tilelet.diag.render import render_text
from tilelet.diag.sarif import to_sarif
from tilelet.diag.tables import as_text
from tilelet.frontend.jit import JitFunction
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.replay import find_control_traces
from tilelet.ir.core import Program, walk
from tilelet.ir.printer import print_program
from tilelet.ir.programs import Programs
from tilelet.language.text import parse
from tilelet.models.registry import resolve
from tilelet.passes.pipeline import run_passes
from tilelet.runtime.data.inputs import initial_array

ROOT = Path(__file__).parents[1]
MACHINES = ("a2a3", "a5")
# Measured times, the only part of an answer that may differ between two runs.
TIMES = re.compile(r'("seconds": )[-+.e\d]+|\b\d+(\.\d+)? (ms|s)\b')


class Tree:
    """The directory being written. Paths of this machine are replaced by fixed names."""

    def __init__(self, folder: Path, work: Path) -> None:
        self._folder = folder
        self._places = {str(work): "WORK", str(ROOT): "ROOT"}
        self.files = 0

    def write(self, name: str, text: str) -> None:
        for path, shown in self._places.items():
            text = text.replace(path, shown)
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        self.files += 1


# --- one program --------------------------------------------------------------------------------


def write_program(tree: Tree, name: str, program: Program, arguments: dict[str, Any]) -> None:
    """Write the IR after the frontend and after all passes, tasks, and each machine's report."""
    tree.write(f"{name}/frontend.txt", program_text(program))
    try:
        passed = run_passes(program)
        tree.write(f"{name}/passes.txt", program_text(passed))
        tasks = Interpreter().run(passed, arguments, execute=False).tasks
        find_control_traces(passed, tasks, arguments)
        tree.write(f"{name}/tasks.txt", "".join(f"{task}\n" for task in described(tasks)))
        for machine in MACHINES:
            run = DeviceRun(Recorded(passed.name, passed, tasks), load_machine(machine))
            tree.write(f"{name}/{machine}.txt", "\n\n".join(as_text(run.parts())))
            tree.write(f"{name}/{machine}.json", run.profile.to_json())
            tree.write(f"{name}/{machine}-memory.txt", memory_map(run.plans))
    except (UserError, UserErrors) as problem:
        tree.write(f"{name}/refused.txt", problem_text(problem))


def program_text(program: Program) -> str:
    """Write the printed program, its cautions, and the source span of every op."""
    spans = [
        f"{op.name} {_span(op.loc)}"
        for function in program.functions.values()
        for op in walk(function.body)
    ]
    parts = [print_program(program), diagnostics_text(program.cautions), "\n".join(spans)]
    return "\n".join(parts)


def _span(loc: Loc) -> str:
    chain = [loc, *loc.callers]
    return " < ".join(f"{x.file}:{x.line}:{x.col}-{x.end_line}:{x.end_col}" for x in chain)


def diagnostics_text(diagnostics: Iterable[Diagnostic]) -> str:
    found = list(diagnostics)
    return "\n".join([*(render_text(d, color=False) for d in found), to_json(found)])


def problem_text(problem: UserError | UserErrors) -> str:
    if isinstance(problem, UserErrors):
        stopped = "\nstopped early" if problem.truncated else ""
        return diagnostics_text(problem.diagnostics) + stopped
    return diagnostics_text([problem.diagnostic])


# --- sections -----------------------------------------------------------------------------------


def examples(tree: Tree, _: int) -> None:
    """Write the examples, with the command line's answers about them."""
    for path in sorted((ROOT / "examples").glob("[0-9]*.py")):
        shutil.copy(path, path.name)
        names = runpy.run_path(path.name)
        specs = names["SPECS"]
        arguments = {spec.name: initial_array(spec) for spec in specs}
        for value in list(names.values()):
            if isinstance(value, JitFunction):
                value = value.specialize(*arguments.values())
            if isinstance(value, Program):
                write_program(tree, f"examples/{path.stem}/{value.name}", value, arguments)
        write_answers(tree, f"examples/{path.stem}", [path.name], "verdict")


def models(tree: Tree, _: int) -> None:
    """Write every variant of the Qwen3 programs at a tiny size."""
    for name in NAMES:
        model, variant = resolve(name)
        sizes = sizes_of(name, TINY)
        arguments = {
            spec.name: initial_array(spec)
            for spec in model.specs(model.shape_for(variant, **sizes))
        }
        folder = f"models/{name.replace('/', '-').replace(':', '-')}"
        write_program(tree, folder, model.build(variant, **sizes), arguments)
        options = [f"--{key.replace('_', '-')}={n}" for key, n in sizes.items()]
        write_answers(tree, folder, [name.split(":")[0], "--variant", variant, *options])


def write_answers(tree: Tree, folder: str, script: list[str], *more: str) -> None:
    """Return stdout, stderr and exit code of the commands that read a script."""
    machines = ("--platforms", ",".join(MACHINES))
    commands = {"tasks": (), "profile": (*machines, "--no-files"), "check": machines}
    commands |= dict.fromkeys(more, machines)
    for command, options in commands.items():
        for form in ("text", "json"):
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    code = tilelet([command, "--format", form, *options, *script])
                except SystemExit as stop:
                    code = stop.code
            answer = f"{out.getvalue()}\n--- stderr\n{err.getvalue()}\n--- exit code {code}\n"
            tree.write(f"{folder}/{command}.{form}", TIMES.sub(r"\g<1>TIME", answer))


def diagnostics(tree: Tree, _: int) -> None:
    """Write a sample of every message, and the results of the catalogue's examples."""
    for cls in SAMPLES:
        d = build(cls).diagnostic
        sources = reader({FILE: source_of(cls)})
        rendered = render_text(d, color=False, sources=sources)
        data = [to_json([d], sources=sources), to_sarif([d], sources=sources)]
        tree.write(f"diagnostics/samples/{cls.code}.txt", "\n".join([rendered, *data]))
    for code, text in KERNEL_EXAMPLES.items():
        write_text(tree, f"diagnostics/examples/{code}", HEADER + text, lambda _: None)


def generated(tree: Tree, count: int) -> None:
    """Write generated programs, right ones and wrong ones, as the fuzz target draws them."""
    for number in range(count):
        case = draw(0, number)
        write_case(tree, f"generated/{number:04}", case)
        spoilt = _mutated(case.kernel().text, np.random.default_rng(number))
        write_text(tree, f"generated/{number:04}/mutated", spoilt, _specialized(case))


def _mutated(text: str, rng: np.random.Generator) -> str:
    """Return a text with a mistake that Python's parser accepts, if one is drawn soon."""
    for _ in range(10):
        found = mutated(text, rng)
        with contextlib.suppress(SyntaxError, ValueError):
            ast.parse(found)
            return found
    return text


def write_case(tree: Tree, name: str, case: Case) -> None:
    write_text(tree, name, case.kernel().text, _specialized(case))


def _specialized(case: Case) -> Callable[[Any], Program | None]:
    kernel = case.kernel()

    def make(module: Any) -> Program | None:
        arguments = kernel.arguments()
        if kernel.style == "program":
            return module.Generated
        return module.main.specialize(*(arguments[p.name] for p in kernel.params))

    return make


def write_text(tree: Tree, name: str, text: str, make: Callable[[Any], Program | None]) -> None:
    """Import a program text as a user's file; return its program or the reason it is rejected."""
    path = Path("snapshot_program.py")
    path.write_text(text)
    tree.write(f"{name}/program.py", text)
    try:
        try:
            module = _imported(path)
        except SyntaxError:
            programs = [parse(text, path.name)]
        else:
            made = make(module)
            programs = [made] if made is not None else list(_programs_in(module))
        for program in programs:
            write_program(tree, f"{name}/{program.name}", program, zero_arguments(program))
    except (UserError, UserErrors) as problem:
        tree.write(f"{name}/refused.txt", problem_text(problem))
    except Exception as problem:  # the program's own, outside kernels: one without its kernel
        tree.write(f"{name}/failed.txt", f"{type(problem).__name__}: {problem}")


def _imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[path.stem]
    return module


def _programs_in(module: Any) -> Iterator[Program]:
    for value in vars(module).values():
        if isinstance(value, Program):
            yield value
        elif isinstance(value, Programs):
            yield from value.by_entry.values()
        elif isinstance(value, JitFunction) and all(p.type for p in value.parameters):
            yield value.specialize()


SECTIONS: dict[str, Callable[[Tree, int], None]] = {
    "examples": examples,
    "models": models,
    "diagnostics": diagnostics,
    "generated": generated,
}


# --- programs of tests ---------------------------------------------------------------------------


class Recorder:
    """A pytest plugin that writes every program and every refusal of each test."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._parts: dict[str, None] = {}
        init, failed = Program.__init__, UserErrors.__init__

        def note_program(program: Program, *args: Any, **named: Any) -> None:
            init(program, *args, **named)
            with contextlib.suppress(Exception):
                self._parts[program_text(program)] = None

        def note_errors(errors: UserErrors, *args: Any, **named: Any) -> None:
            failed(errors, *args, **named)
            self._parts[problem_text(errors)] = None

        Program.__init__ = note_program  # pyright: ignore[reportAttributeAccessIssue]
        UserErrors.__init__ = note_errors  # pyright: ignore[reportAttributeAccessIssue]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_pycollect_makemodule(self, module_path: Path) -> Iterator[None]:
        yield
        self._write(str(module_path.relative_to(ROOT)))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        yield
        self._write(item.nodeid)

    def _write(self, name: str) -> None:
        if self._parts:
            file = re.sub(r"[^-.\w]+", "_", name)[:200]
            self._tree.write(f"tests/{file}", "\n".join(self._parts))
        self._parts.clear()


# --- command line --------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.snapshot", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write; must not exist")
    parser.add_argument(
        "--only", default=",".join(SECTIONS), help="comma-separated sections (default: %(default)s)"
    )
    parser.add_argument("--count", type=int, default=300, help="of generated programs")
    parser.add_argument(
        "--tests", nargs="+", metavar="PATH", help="instead: every program that these tests build"
    )
    options = parser.parse_args()
    folder = options.folder.absolute()
    folder.mkdir(parents=True)
    os.environ["NO_COLOR"] = "1"
    os.environ.setdefault("COLUMNS", "100")
    with tempfile.TemporaryDirectory() as work:
        tree = Tree(folder, Path(work))
        if options.tests:
            arguments = ["-q", "-n", "0", "-p", "no:cacheprovider", *options.tests]
            return int(pytest.main(arguments, plugins=[Recorder(tree)]))
        os.chdir(work)
        for section in options.only.split(","):
            SECTIONS[section](tree, options.count)
            print(f"{section}: {tree.files} files so far", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
