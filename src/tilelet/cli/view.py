"""`tilelet view`: the page of a run, served, and kept up to date with the script.

A watching thread tries changes to the script for the page's advice, and profiles again when a file
is saved or the page asks for it. A file that is saved meanwhile ends what is under way.
"""

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
from tilelet.cli.page import open_address, report_command
from tilelet.diag.catalogue.page import DamagedRun, NoRunDirectory
from tilelet.diag.json_types import JsonObject
from tilelet.diag.text import escape_controls
from tilelet.scripts import exit_codes
from tilelet.scripts.target import is_model

if TYPE_CHECKING:
    from tilelet.report.server import ServedPage

TRACE = ("dfx_outputs", "merged_swimlane.json")
POLL_SECONDS = 0.5
NO_TRACE = '{"traceEvents":[]}'
EXECUTE = "--execute"


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
        arguments.append(EXECUTE)
    return json.dumps({"version": 1, "profile": [*arguments, *target.words]}) + "\n"


def view_command(options: PageOptions) -> int:
    """Serve the page of a run, and profile again when the script is saved."""
    if options.html is not None and Path(options.directory).is_dir():
        return report_command(options)
    from tilelet.report.server import PageServer, ServedPage

    with tempfile.TemporaryDirectory(prefix="tilelet-view-") as scratch:
        directory = Path(options.directory)
        command = _command(directory, options)
        watcher = _Watcher(command, Path(scratch))
        if not directory.is_dir():
            made = watcher.profile()
            if isinstance(made, str):
                print(made, file=sys.stderr, flush=True)
                return exit_codes.COULD_NOT_RUN
            directory = made
        page, trace = _makers_of(directory, None)
        shown = ServedPage(page, trace, perfetto=options.perfetto or "")
        server = PageServer(shown)
        print(escape_controls(server.address), flush=True)
        print("note: Ctrl-C ends it", file=sys.stderr, flush=True)
        if options.open:
            open_address(server.address, server.address)
        thread = threading.Thread(target=watcher.watch, args=(shown, directory), daemon=True)
        thread.start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            watcher.stop.set()
            server.server_close()
            thread.join(timeout=5)
    return exit_codes.PASSED


def _command(directory: Path, options: PageOptions) -> list[str]:
    """Return what to profile: the named script, or the one recorded in a run directory."""
    from tilelet.report.run_directory import read_command

    machine = ["-p", options.platform] if options.platform else []
    if directory.is_file() or is_model(options.directory):
        return [*machine, options.directory]
    if not directory.is_dir():
        raise NoRunDirectory(options.directory, "there is no such folder, script or program")
    return read_command(directory) or []


def _makers_of(
    directory: Path, advice: JsonObject | None
) -> tuple[Callable[[], str], Callable[[], str]]:
    """Return makers of a run directory's page and trace; raise at once if it cannot be read."""
    from tilelet.report.advice import with_advice
    from tilelet.report.html import page_html
    from tilelet.report.run_directory import read_data

    data = read_data(directory)
    if advice is not None:
        data = with_advice(data, advice["advice"], str(advice["program"]))
    page = page_html(directory.name, data, served=True)
    file = directory.joinpath(*TRACE)
    trace = file.read_text(encoding="utf-8") if file.is_file() else NO_TRACE
    return lambda: page, lambda: trace


class _Watcher:
    """Runs `tilelet profile` and `tilelet advise` on the program that the page shows."""

    def __init__(self, command: list[str], scratch: Path) -> None:
        self.stop = threading.Event()
        self._command = command
        self._scratch = scratch
        self._stamps = self._now()

    def watch(self, shown: ServedPage, directory: Path) -> None:
        """Keep `shown` up to date until `stop` is set."""
        if not self._command:
            shown.say("this run")
            return
        self._advise(shown, directory)
        while not self.stop.wait(POLL_SECONDS):
            asked = shown.asked.is_set()
            if not (asked or self._is_outdated()):
                continue
            shown.asked.clear()
            self._stamps = self._now()
            shown.say("profiling again …")
            made = self.profile()
            try:
                if isinstance(made, Path):
                    shown.renew(*_makers_of(made, None))
                    self._advise(shown, made)
                    shutil.rmtree(made.parent, ignore_errors=True)
                    continue
            except (DamagedRun, NoRunDirectory) as error:
                made = str(error)
            print(made, file=sys.stderr, flush=True)
            shown.fail(made)

    def profile(self) -> Path | str:
        """Profile again; return the new run directory, or the output of a script that fails."""
        place = Path(tempfile.mkdtemp(dir=self._scratch))
        _, said = self._run("profile", "--build-dir", str(place), *self._command)
        made = sorted(place.glob("*/report/page.data"))
        return made[0].parents[1] if made else said

    def _advise(self, shown: ServedPage, directory: Path) -> None:
        """Try changes, and add the results to the page."""
        shown.say("trying changes …")
        options = [word for word in self._command if word != EXECUTE]
        answer, _ = self._run("advise", "--format", "json", *options)
        with contextlib.suppress(ValueError, KeyError, TypeError, DamagedRun, NoRunDirectory):
            # An answer without advice (a script that fails, a file that was saved): no change.
            shown.renew(*_makers_of(directory, json.loads(answer)))
        shown.say("live")

    def _run(self, *words: str) -> tuple[str, str]:
        """Return the output and errors of a command, which is stopped if a file is saved."""
        environment = {
            **os.environ,
            "NO_COLOR": "1",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        argv = [sys.executable, "-m", "tilelet.cli", *words]
        with subprocess.Popen(  # noqa: S603 the user's own command, as a list
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            while True:
                try:
                    out, err = process.communicate(timeout=POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    if self.stop.is_set() or self._is_outdated():
                        process.terminate()
        return out, escape_controls(err or out).strip() or f"it ends with code {process.returncode}"

    def _is_outdated(self) -> bool:
        return self._now() != self._stamps

    def _now(self) -> dict[Path, int]:
        """Return the modification times of the command's Python files and of those beside them."""
        scripts = [Path(a) for a in self._command if a.endswith(".py") and Path(a).is_file()]
        found: dict[Path, int] = {}
        for file in sorted({file for script in scripts for file in script.parent.glob("*.py")}):
            with contextlib.suppress(OSError):  # being saved
                found[file] = file.stat().st_mtime_ns
        return found
