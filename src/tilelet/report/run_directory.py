"""Page data in a run directory.

report/page.data      the runs, packed (see `columns`)
report/numbers.json   outputs that differ from the golden: written by a run that failed
command.json          what was profiled, so that `tilelet view` can do it again
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, cast

from tilelet.device.run import DeviceRun
from tilelet.diag.catalogue.page import DamagedRun, NoRunDirectory
from tilelet.diag.json_types import JsonObject
from tilelet.report.columns import DamagedError, repack, unpack
from tilelet.report.document import numbers_document, profile_document

DATA = ("report", "page.data")
NUMBERS = ("report", "numbers.json")
COMMAND = "command.json"
MAX_FILE_BYTES = 1 << 28


def write_data(runs: Sequence[DeviceRun], path: Callable[..., Path]) -> None:
    """Write the runs' data; `path(*parts)` returns a path in the run directory."""
    path(*DATA).write_bytes(profile_document(runs))


def read_data(directory: Path) -> bytes:
    """Read the data of a run directory, with output differences if there are any."""
    try:
        if not directory.is_dir():
            raise NoRunDirectory(str(directory), "there is no such folder")
        data = _bytes(directory.joinpath(*DATA))
        numbers = _bytes(directory.joinpath(*NUMBERS))
    except OSError as error:
        raise NoRunDirectory(str(directory), error.strerror or str(error)) from None
    if data is None and numbers is None:
        raise NoRunDirectory(str(directory), f"it has no {'/'.join(DATA)}")
    if data is None:
        return numbers_document(directory.name, _numbers(directory, numbers, []))
    try:
        header, columns = unpack(data)
    except DamagedError as error:
        raise DamagedRun(str(directory.joinpath(*DATA)), str(error)) from None
    if numbers is None:
        return data
    return repack({**header, "numbers": _numbers(directory, numbers, _files(header))}, columns)


def read_command(directory: Path) -> list[str] | None:
    """Return the arguments of `tilelet profile` that created it; None if unknown."""
    try:
        found: Any = json.loads((directory / COMMAND).read_text(encoding="utf-8"))
        return [str(a) for a in cast("list[object]", found["profile"])]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _bytes(path: Path) -> bytes | None:
    if not path.is_file():
        return None
    if path.stat().st_size > MAX_FILE_BYTES:
        raise DamagedRun(str(path), "it is too large to be the data of a page")
    return path.read_bytes()


def _numbers(directory: Path, text: bytes | None, names: Sequence[str]) -> JsonObject:
    file = str(directory.joinpath(*NUMBERS))
    try:
        return placed_numbers(json.loads(text or b""), names)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError):
        raise DamagedRun(file, "it is not what `tilelet run` writes") from None


def placed_numbers(found: Any, names: Sequence[str]) -> JsonObject:
    """Return outputs and the first divergence for the page; `names` are its files."""
    outputs = found["outputs"]
    assert isinstance(outputs, list)
    data: JsonObject = {
        "outputs": [_place_writers(o, names) for o in cast("list[JsonObject]", outputs)]
    }
    diverged: Mapping[str, object] | None = found.get("divergence")
    if diverged is not None:
        name = PurePath(str(diverged.get("file") or "")).name
        place = [names.index(name), diverged.get("line")] if name in names else None
        data["divergence"] = {"text": str(diverged["text"]), "place": place}
    return data


def diverged_data(run: DeviceRun, numbers: Mapping[str, object]) -> bytes:
    """Add output differences and the first divergence to a run."""
    header, columns = unpack(profile_document([run]))
    return repack({**header, "numbers": placed_numbers(numbers, _files(header))}, columns)


def _files(header: JsonObject) -> list[str]:
    files = cast("list[JsonObject]", header["runs"][0].get("files") or [])
    return [str(file["name"]) for file in files]


def _place_writers(output: JsonObject, names: Sequence[str]) -> JsonObject:
    """Replace locations of writers by file numbers of the page."""
    where: JsonObject = output.get("where") or {}
    regions: list[JsonObject] = []
    for writer in cast("list[JsonObject]", where.get("writers") or []):
        name = PurePath(str(writer.get("file") or "")).name
        place = [names.index(name), writer.get("line")] if name in names else None
        # The page has a link if it contains the file.
        at = f" at {name}:{writer.get('line')}" if name and not place else ""
        regions.append(
            {
                "text": f"{writer.get('wrong'):,} of {writer.get('written'):,} elements written by "
                f"{writer.get('kernel') or 'the control program'}{at} are wrong",
                "place": place,
                "task": writer.get("task"),
            }
        )
    shape: JsonObject = where.get("shape") or {}
    if shape.get("text"):
        regions.append({"text": f"It looks like {shape['text']}"})
    return {**{k: v for k, v in output.items() if k != "where"}, "regions": regions}
