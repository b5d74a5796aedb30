"""Pages: `--html` of several commands, `tilelet report` and `tilelet view`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tilelet.cli.options import DeviceOptions, PageOptions
from tilelet.diag.catalogue.command import CannotWrite
from tilelet.diag.catalogue.page import DamagedRun, NoRunDirectory
from tilelet.diag.text import printable
from tilelet.runtime.output.run_directory import build_root
from tilelet.runtime.progress import progress
from tilelet.scripts import exit_codes
from tilelet.scripts.target import is_model

if TYPE_CHECKING:
    from tilelet.report.server import Shown

PAGE = ("report", "page.html")
TRACE = ("dfx_outputs", "merged_swimlane.json")
POLL_SECONDS = 0.5
NO_TRACE = '{"traceEvents":[]}'


def wants_page(options: DeviceOptions) -> bool:
    return options.html is not None or options.open


def write_page(options: DeviceOptions, title: str, make: Callable[[], bytes]) -> None:
    """The page that a command was asked for, in the file named or under `build_output`."""
    from tilelet.report.html import page_html

    with progress("making the page"):
        text = page_html(title, make())
    target = options.html or (options.build_dir or build_root()) / "page.html"
    save_page(text, target, show=options.open)


def save_page(text: str, target: Path, *, show: bool) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotWrite(str(target), error.strerror or str(error)) from error
    print(printable(f"note: page in {target}"), file=sys.stderr)
    if show:
        open_address(target.resolve().as_uri(), str(target))


def open_address(address: str, name: str) -> None:
    """Show it in the user's browser; without one, say where it is."""
    import webbrowser

    try:
        opened = webbrowser.open(address)
    except webbrowser.Error:
        opened = False
    if not opened:
        print(printable(f"note: no browser here: open {name} yourself"), file=sys.stderr)


# report


def report_command(options: PageOptions) -> int:
    """Make the page of a run directory."""
    from tilelet.report.html import page_html
    from tilelet.report.run_directory import read_data

    directory = Path(options.directory)
    with progress("making the page"):
        text = page_html(directory.name or "run", read_data(directory))
    save_page(text, options.html or directory.joinpath(*PAGE), show=options.open)
    return exit_codes.PASSED


# view


def command_of(options: DeviceOptions) -> str:
    """The text of `command.json`: how to profile the same again."""
    target = options.target
    arguments = ["--pypto", options.pypto, "--golden", options.golden, "--seed", str(options.seed)]
    if options.platforms:
        arguments += ["--platforms", ",".join(options.platforms)]
    elif options.platform:
        arguments += ["-p", options.platform]
    if options.period:
        arguments += ["--period", options.period]
    if options.execute:
        arguments.append("--execute")
    return json.dumps({"version": 1, "profile": [*arguments, *target.words]}) + "\n"


def view_command(options: PageOptions) -> int:
    """Serve the page of a run, and profile again when the script is saved."""
    if options.html is not None and Path(options.directory).is_dir():
        return report_command(options)
    from tilelet.report.server import PageServer, Shown

    with tempfile.TemporaryDirectory(prefix="tilelet-view-") as scratch:
        directory = Path(options.directory)
        command = _command(directory, options)
        if not directory.is_dir():
            made = _profile_again(command, Path(scratch))
            if isinstance(made, str):
                print(made, file=sys.stderr, flush=True)
                return exit_codes.COULD_NOT_RUN
            directory = made
        page, trace = _served(directory)
        shown = Shown(page, trace, perfetto=options.perfetto or "")
        server = PageServer(shown)
        print(printable(server.address), flush=True)
        print("note: Ctrl-C ends it", file=sys.stderr, flush=True)
        if options.open:
            open_address(server.address, server.address)
        stop = threading.Event()
        watch = threading.Thread(
            target=_watch, args=(command, shown, Path(scratch), stop), daemon=True
        )
        watch.start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            stop.set()
            server.server_close()
            watch.join(timeout=5)
    return exit_codes.PASSED


def _command(directory: Path, options: PageOptions) -> list[str]:
    """What to profile: a script that was named, or what a run directory remembers."""
    from tilelet.report.run_directory import read_command

    machine = ["-p", options.platform] if options.platform else []
    if directory.is_file() or is_model(options.directory):
        return [*machine, options.directory]
    if not directory.is_dir():
        raise NoRunDirectory(options.directory, "there is no such folder, script or program")
    return read_command(directory) or []


def _served(directory: Path) -> tuple[Callable[[], str], Callable[[], str]]:
    """The page and the trace of a run directory; what cannot be read is said at once."""
    from tilelet.report.html import page_html
    from tilelet.report.run_directory import read_data

    page = page_html(directory.name, read_data(directory), served=True)
    file = directory.joinpath(*TRACE)
    trace = file.read_text(encoding="utf-8") if file.is_file() else NO_TRACE
    return lambda: page, lambda: trace


def _profile_again(command: list[str], scratch: Path) -> Path | str:
    """A new run directory in `scratch`, or what is said of a script that fails."""
    place = Path(tempfile.mkdtemp(dir=scratch))
    argv = [sys.executable, "-m", "tilelet.cli", "profile", "--build-dir", str(place), *command]
    environment = {
        **os.environ,
        "NO_COLOR": "1",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    done = subprocess.run(  # noqa: S603 the user's own command, as a list
        argv, capture_output=True, text=True, check=False, env=environment
    )
    made = sorted(place.glob("*/report/page.data"))
    if made:
        return made[0].parents[1]
    return printable(done.stderr or done.stdout).strip() or f"it ends with code {done.returncode}"


def _watched(command: list[str]) -> list[Path]:
    """The Python files of the command and those beside them."""
    scripts = [Path(a) for a in command if a.endswith(".py") and Path(a).is_file()]
    return sorted({file for script in scripts for file in script.parent.glob("*.py")})


def _stamps(command: list[str]) -> dict[Path, int]:
    found: dict[Path, int] = {}
    for file in _watched(command):
        with contextlib.suppress(OSError):  # being saved
            found[file] = file.stat().st_mtime_ns
    return found


def _watch(command: list[str], shown: Shown, scratch: Path, stop: threading.Event) -> None:
    if not _watched(command):
        shown.say("this run")
        return
    before = _stamps(command)
    while not stop.wait(POLL_SECONDS):
        now = _stamps(command)
        if now == before:
            continue
        before = now
        shown.say("profiling again …")
        made = _profile_again(command, scratch)
        try:
            if isinstance(made, Path):
                shown.renew(*_served(made))
                shutil.rmtree(made.parent, ignore_errors=True)
                continue
        except (DamagedRun, NoRunDirectory) as error:
            made = str(error)
        print(made, file=sys.stderr, flush=True)
        shown.fail(made)
