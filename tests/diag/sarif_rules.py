"""The constraints of SARIF 2.1.0 for every object that we write, and those of code scanning.

The official schema is no part of this project, and no package brings it in a form that needs no
network, so this is our own statement of it: for each object its properties, which of them it must
have, and what they may be. An object with any other property is refused, as the schema does. The
second half is what GitHub's code scanning says beyond the schema: a place for every result, and
relative paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

Rule = Callable[[str, Any], None]


class BrokenSarifError(AssertionError):
    """A document that breaks a rule, with the path of the offending value."""


def _need(holds: bool, path: str, what: str) -> None:
    if not holds:
        raise BrokenSarifError(f"{path}: {what}")


def text(path: str, value: Any) -> None:
    _need(isinstance(value, str) and bool(value), path, "not a text")


def uri(path: str, value: Any) -> None:
    text(path, value)
    _need(re.fullmatch(r"[\w\-.~:/?#\[\]@!$&'()*+,;=%]+", value, re.ASCII) is not None, path, "URI")


def number_from(least: int) -> Rule:
    def rule(path: str, value: Any) -> None:
        _need(type(value) is int and value >= least, path, f"not a number from {least}")

    return rule


def one_of(*words: str) -> Rule:
    def rule(path: str, value: Any) -> None:
        _need(value in words, path, f"none of {words}")

    return rule


def items(rule: Rule, unique: bool = True) -> Rule:
    def check(path: str, value: Any) -> None:
        _need(isinstance(value, list), path, "not an array")
        _need(not unique or all(v not in value[:i] for i, v in enumerate(value)), path, "repeated")
        for i, item in enumerate(value):
            rule(f"{path}[{i}]", item)

    return check


def values(rule: Rule) -> Rule:
    def check(path: str, value: Any) -> None:
        _need(isinstance(value, dict), path, "not an object")
        for name, item in value.items():
            rule(f"{path}.{name}", item)

    return check


def an_object(required: dict[str, Rule], optional: dict[str, Rule] | None = None) -> Rule:
    known = {**required, **(optional or {})}

    def check(path: str, value: Any) -> None:
        _need(isinstance(value, dict), path, "not an object")
        for name in required:
            _need(name in value, path, f"lacks `{name}`")
        for name, item in value.items():
            _need(name in known, path, f"has `{name}`, which SARIF does not know")
            known[name](f"{path}.{name}", item)

    return check


LEVEL = one_of("none", "note", "warning", "error")
MESSAGE = an_object({"text": text}, {"markdown": text})
ARTIFACT = an_object({}, {"uri": uri, "uriBaseId": text, "description": MESSAGE})
REGION = an_object(
    {}, {name: number_from(1) for name in ("startLine", "startColumn", "endLine", "endColumn")}
)
LOCATION = an_object(
    {},
    {
        "physicalLocation": an_object({"artifactLocation": ARTIFACT}, {"region": REGION}),
        "message": MESSAGE,
    },
)
RESULT = an_object(
    {"message": MESSAGE},
    {
        "ruleId": text,
        "ruleIndex": number_from(-1),
        "level": LEVEL,
        "locations": items(LOCATION, unique=False),
        "relatedLocations": items(LOCATION),
        "partialFingerprints": values(text),
    },
)
RULE = an_object(
    {"id": text},
    {
        "name": text,
        "shortDescription": MESSAGE,
        "fullDescription": MESSAGE,
        "help": MESSAGE,
        "defaultConfiguration": an_object({}, {"level": LEVEL}),
    },
)
DRIVER = an_object({"name": text}, {"semanticVersion": text, "rules": items(RULE)})
RUN = an_object(
    {"tool": an_object({"driver": DRIVER})},
    {
        "columnKind": one_of("utf16CodeUnits", "unicodeCodePoints"),
        "originalUriBaseIds": values(ARTIFACT),
        "results": items(RESULT, unique=False),
    },
)
DOCUMENT = an_object(
    {"version": one_of("2.1.0"), "runs": items(RUN, unique=False)}, {"$schema": uri}
)


def check_sarif(document: Any) -> None:
    """Raise `BrokenSarifError` if the document breaks the schema or the rules of code scanning."""
    DOCUMENT("document", document)
    for run in document["runs"]:
        rules = run["tool"]["driver"].get("rules", [])
        for i, result in enumerate(run.get("results", [])):
            _check_scanned(f"results[{i}]", result, rules, run.get("originalUriBaseIds", {}))


def _check_scanned(path: str, result: Any, rules: list[Any], bases: dict[str, Any]) -> None:
    _need(bool(result.get("locations")), path, "has no place")
    index = result.get("ruleIndex", -1)
    _need(0 <= index < len(rules), path, "has no rule")
    _need(rules[index]["id"] == result["ruleId"], path, "has another rule than it says")
    for place in [*result["locations"], *result.get("relatedLocations", [])]:
        artifact = place["physicalLocation"]["artifactLocation"]
        parts = urlsplit(artifact["uri"])
        relative = not parts.scheme and not parts.netloc and not parts.path.startswith("/")
        _need(relative and ".." not in parts.path.split("/"), path, f"{artifact['uri']} is no path")
        _need(artifact["uriBaseId"] in bases, path, "has an unknown base")
        _need("startLine" in place["physicalLocation"]["region"], path, "has no line")
