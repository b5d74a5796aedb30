"""Read JSON objects from untrusted files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from tilelet.diag.catalogue.models import BadModelConfig
from tilelet.diag.json_types import JsonObject

# Configurations are a few kilobytes; an index of a large model a few hundred.
_MAX_JSON_BYTES = 64 << 20


def read_json_object(path: Path) -> JsonObject:
    """Read the JSON object in a file; any problem is an error that names the file."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_JSON_BYTES + 1)
    except OSError as error:
        raise BadModelConfig(str(path), error.strerror or str(error)) from error
    if len(data) > _MAX_JSON_BYTES:
        raise BadModelConfig(str(path), "it is far too large")
    try:
        return parse_json_object(data)
    except ValueError as error:
        raise BadModelConfig(str(path), str(error)) from error


def parse_json_object(data: bytes) -> JsonObject:
    """Parse one JSON object in UTF-8 without duplicate keys; ValueError says what is wrong."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from error
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise ValueError("not JSON: nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("its JSON is not an object")
    return cast("JsonObject", value)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:80]!a} occurs twice")
        found[key] = value
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")
