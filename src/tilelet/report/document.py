"""Contents of a page: runs, a comparison of two runs, or check findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilelet import __version__
from tilelet.device.report.compare import ProfileComparison
from tilelet.device.report.profile import Profile
from tilelet.device.run import DeviceRun
from tilelet.diag.json_types import JsonObject
from tilelet.report.columns import VERSION, Columns
from tilelet.report.run_data import NO_FIGURES, profile_data, run_data, short


def profile_document(runs: Sequence[DeviceRun]) -> bytes:
    """Runs of one or several programs, each on its machine."""
    columns = Columns()
    data = [run_data(run, columns) for run in runs]
    return columns.pack(_header("profile", data))


def check_document(checked: Sequence[tuple[DeviceRun, Mapping[str, object]]]) -> bytes:
    """Runs with the JSON verdict of the checks on each."""
    columns = Columns()
    data = [run_data(run, columns, verdict) for run, verdict in checked]
    return columns.pack(_header("check", data))


def ranks_document(runs: Sequence[tuple[str, str, Mapping[str, object]]]) -> bytes:
    """Programs of several ranks: name, machine, and what each rank did and sent."""
    data = [
        {"name": name, "machine": machine, "profile": NO_FIGURES, "ranks": ranks}
        for name, machine, ranks in runs
    ]
    return Columns().pack(_header("profile", data))


def numbers_document(name: str, numbers: Mapping[str, object]) -> bytes:
    """Output differences from the golden, without a modelled run."""
    run = {"name": name, "machine": "this CPU", "profile": NO_FIGURES}
    return Columns().pack(_header("run", [run], numbers=numbers))


def compare_document(sides: Sequence[DeviceRun | Profile]) -> bytes:
    """Two runs side by side; a saved profile has tables only."""
    columns = Columns()
    a, b = (side if isinstance(side, Profile) else side.profile for side in sides)
    data = [
        profile_data(side.to_json(), side.program, side.machine)
        if isinstance(side, Profile)
        else run_data(side, columns)
        for side in sides
    ]
    comparison = ProfileComparison(a, b)
    found = comparison.to_data()
    found["verdict"] = comparison.verdict()
    found["notes"] = comparison.notes()
    found["causes"] = [{"us": round(c.us, 4), "text": c.text} for c in comparison.causes()]
    return columns.pack(_header("compare", data, comparison=found))


def _header(kind: str, runs: Sequence[Mapping[str, object]], **more: object) -> JsonObject:
    names = dict.fromkeys(str(run["name"]) for run in runs)
    return {
        "format": "tilelet-page",
        "version": VERSION,
        "generator": f"tilelet {__version__}",
        "kind": kind,
        "title": short(" and ".join(names)),
        "runs": list(runs),
        **more,
    }
