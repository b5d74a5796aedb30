"""`tilelet calibrate`: compare the model with published figures, or fit it to a board."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilelet.calibration.board import BoardFit, fit_board, machine_text, report
from tilelet.calibration.kit import CASES, write_kit
from tilelet.calibration.links import link_rows, links_data, links_text
from tilelet.calibration.page import with_errors
from tilelet.calibration.page import write as write_page
from tilelet.calibration.published import recorder
from tilelet.calibration.report import (
    RowFit,
    outcomes_of,
    save,
    summary_text,
    table_text,
    to_data,
)
from tilelet.calibration.results import read_results
from tilelet.calibration.rows import lines as own_lines
from tilelet.calibration.rows import public_lines, public_rows
from tilelet.cli.options import JSON
from tilelet.device.machine.description import BUILT_IN, load_machine
from tilelet.device.run import Recorded
from tilelet.diag.catalogue.command import CannotWrite
from tilelet.diag.files import write_text
from tilelet.diag.internal import InternalError
from tilelet.diag.text import escape_controls
from tilelet.runtime.progress import progress
from tilelet.scripts import exit_codes
from tilelet.scripts.recording import RecordingOptions, record
from tilelet.scripts.target import Target


def kit_command(folder: Path, formatted: str) -> int:
    """Write the kit's scripts."""
    try:
        written = write_kit(folder)
    except OSError as error:
        raise CannotWrite(str(error.filename), error.strerror or str(error)) from error
    scripts = [path for path in written if path.suffix == ".py"]
    if formatted == JSON:
        print(json.dumps({"version": 1, "scripts": [str(path) for path in scripts]}, indent=1))
    else:
        count = len(scripts)
        print(escape_controls(f"{count} scripts in {folder}: its README.md says how to run them"))
    return exit_codes.PASSED


def fit_command(
    results: Path, like: str, period: str | None, output: Path | None, formatted: str
) -> int:
    """Fit a machine to measurements of a board, and write its file."""
    machine = load_machine(like)
    name = machine.period_name(period)
    measured = read_results(results, tuple(case.name for case in CASES))
    with progress("recording the kit's scripts"):
        runs = _kit_runs(tuple(measured))
    with progress("fitting"):
        fit = fit_board(machine, name, runs, measured)
    path = output or Path("my_board.toml")
    write_text(path, machine_text(fit, machine.name, path.stem), make_folder=False)
    if formatted == JSON:
        print(json.dumps(_data(fit, path), indent=1))
    else:
        print(escape_controls(report(fit)))
        print(
            escape_controls(f"note: {path} written: `tilelet profile ... -p {path}`"),
            file=sys.stderr,
        )
    return exit_codes.PASSED


def _kit_runs(cases: tuple[str, ...]) -> dict[str, Recorded]:
    runs: dict[str, Recorded] = {}
    with tempfile.TemporaryDirectory() as folder:
        write_kit(Path(folder))
        options = RecordingOptions(platform="a2a3", quiet=True, build_dir=Path(folder))
        for case in cases:
            found = record(Target(str(Path(folder) / f"{case}.py")), options)
            if not found.runs:
                raise InternalError(f"the kit's script `{case}` does not run")
            runs[case] = found.runs[0]
    return runs


def _data(fit: BoardFit, path: Path) -> dict[str, object]:
    return {
        "machine": str(path),
        "period": fit.period,
        "next_script": fit.next_script,
        "parameters": [
            {
                "name": p.group,
                "factor": round(p.factor, 6),
                "relative_error": None if p.error is None else round(p.error, 6),
            }
            for p in fit.parameters
        ],
        "observations": [
            {
                "script": o.case,
                "kernel": o.kernel,
                "measured_us": o.us,
                "before_us": round(float(before), 4),
                "after_us": round(float(after), 4),
            }
            for o, before, after in zip(fit.observations, fit.before, fit.after)
        ],
    }


def report_command(programs: Path | None, *, write: bool, formatted: str) -> int:
    """Model all rows that can be modelled, and print their errors."""
    machine = load_machine("a2a3")
    lines = own_lines()
    missing = [row.id for row in public_rows()]
    if programs is not None:
        with progress("recording public programs"):
            found, missing = public_lines(recorder(programs))
        lines += found
    with progress("modelling all rows"):
        outcomes = outcomes_of(machine, lines)
    if formatted == JSON:
        document = {**to_data(outcomes, missing), "links": links_data(link_rows())}
        print(json.dumps(document, indent=1))
    else:
        print(table_text(outcomes))
        print()
        print(links_text(link_rows()))
        print()
        print(summary_text(outcomes, missing))
    if write:
        _write_report(outcomes)
    return exit_codes.PASSED


def _write_report(outcomes: Sequence[RowFit]) -> None:
    """In a checkout, write the figures, the page with its plot, and the spreads in the machine
    file.
    """
    save(outcomes)
    file = BUILT_IN / "a2a3.toml"
    file.write_text(with_errors(file.read_text(encoding="utf-8"), outcomes), encoding="utf-8")
    for path in write_page(Path("docs")):
        print(escape_controls(f"note: {path} written"), file=sys.stderr)
