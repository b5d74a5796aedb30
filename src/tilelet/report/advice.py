"""Advice on the page: each change with its gain, diff and line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import cast

from tilelet.diag.json_types import JsonObject
from tilelet.report.columns import repack, unpack

COPIED = "code", "rule", "message", "claim", "rounding", "applied_by"

MAX_DIFF = 20_000
"""Maximum number of characters of a diff on the page."""


def with_advice(data: bytes, advice: JsonObject, script: str) -> bytes:
    """Return the packed page `data` with the result of `tilelet advise` on `script`."""
    header, columns = unpack(data)
    files = cast("list[JsonObject]", header["runs"][0].get("files") or [])
    names = [str(file["name"]) for file in files]
    before: Mapping[str, object] = advice["before"]
    changes = [
        _change(found, before, names)
        for found in cast("Sequence[JsonObject]", advice["findings"])
        if found["applied_by"]
    ]
    return repack({**header, "advice": {"script": script, "changes": changes}}, columns)


def _change(
    found: Mapping[str, object], before: Mapping[str, object], names: Sequence[str]
) -> JsonObject:
    name = PurePath(str(found["file"] or "")).name
    diff = str(found["diff"])
    return {
        **{key: found[key] for key in COPIED},
        "place": [names.index(name), found["line"]] if name in names else None,
        "before": before,
        "after": found["after"],
        "diff": diff if len(diff) <= MAX_DIFF else f"{diff[:MAX_DIFF]}\n…\n",
    }
