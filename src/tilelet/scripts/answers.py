"""The JSON documents of `verdict`, `advise` and `tune`, which share one layout.

`answers.schema.json` is that layout; docs/answers.md is made from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tilelet.diag.core import Diagnostic
from tilelet.diag.formats import to_data
from tilelet.diag.json_types import JsonObject

SCHEMA = Path(__file__).with_name("answers.schema.json")

_HEAD = """\
# Answers for programs

`tilelet verdict`, `tilelet advise` and `tilelet tune` print one JSON document with `--json`
(the messages alone, as SARIF 2.1.0, with `--format sarif`). This page is generated from its JSON
Schema, `tilelet/scripts/answers.schema.json`. Programs that write programs need one call:

```python
import tilelet

verdict = tilelet.verdict("kernel.py", platform="a2a3")
verdict.correct, verdict.first_wrong, verdict.fits, verdict.costs  # as data: verdict.to_data()
```

or `tilelet verdict kernel.py --json`: exit code 0 if the outputs are right and no check has a
finding, 1 if not, 3 if the script could not run.

With `--json` the other commands that answer a question print one document each, too. After wrong
usage (exit code 2), and if a script could not run (3), standard output has a document whose
`diagnostics` say why; `tilelet explain CODE --json` has the manual of a code.

"""


def document(
    command: str,
    program: str,
    machines: Sequence[str],
    diagnostics: Iterable[Diagnostic],
    **answer: object,
) -> str:
    """The document of a command; `answer` is its own part, by name."""
    found = to_data(diagnostics)
    head = {name: found.pop(name) for name in ("version", "tool")}
    head |= {"command": command, "program": program, "machines": list(machines)}
    return json.dumps({**head, **answer, **found}, indent=1, ensure_ascii=False)


def costs_data(
    us: float, interval: Sequence[float] | None, tasks: int, gm_bytes: int
) -> JsonObject:
    """Return the `costs` object of the schema."""
    return {
        "us": round(us, 4),
        "interval_us": [round(bound, 4) for bound in interval] if interval else None,
        "tasks": tasks,
        "gm_bytes": gm_bytes,
    }


def answers_markdown() -> str:
    """Return the contents of docs/answers.md."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    parts = [_HEAD + f"## document\n\n{schema['description']}\n\n" + _field_table(schema)]
    parts += [
        f"## {name}\n\n{body['description']}\n\n" + _field_table(body)
        for name, body in schema["$defs"].items()
    ]
    return "\n".join(parts)


def _field_table(schema: JsonObject) -> str:
    rows = ["| field | | |", "|---|---|---|"]
    for name, body in schema["properties"].items():
        optional = "" if name in schema["required"] else " (optional)"
        about = body.get("description") or f"see [{_name(body)}](#{_name(body)})"
        rows.append(f"| `{name}` | {_kind(body)}{optional} | {about} |")
    return "\n".join(rows) + "\n"


def _name(body: JsonObject) -> str:
    return body["$ref"].rpartition("/")[2]


def _kind(body: JsonObject) -> str:
    """Describe the type of a field."""
    if "$ref" in body:
        return f"[{_name(body)}](#{_name(body)})"
    if "anyOf" in body:
        return " or ".join(_kind(option) for option in body["anyOf"])
    if "enum" in body or "const" in body:
        return ", ".join(json.dumps(value) for value in body.get("enum", [body.get("const")]))
    kind: str | list[str] = body.get("type", "anything")
    text = kind if isinstance(kind, str) else " or ".join(kind)
    inside: dict[str, object] | None = body.get("items") or body.get("additionalProperties")
    return f"{text} of {_kind(inside)}" if inside else text
