"""`tilelet mcp`: the commands as tools of the Model Context Protocol, on stdin and stdout.

Each tool returns what its command prints with `--json`. `judge` runs in this process, so that a
reference is prepared once; commands that execute a script run in a process of their own.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilelet import __version__
from tilelet.cli.examples import example_files
from tilelet.device.machine.description import load_machine
from tilelet.diag.catalogue import classes, describe, explain
from tilelet.diag.catalogue.command import MissingModule
from tilelet.diag.core import UserError
from tilelet.diag.render import render_text
from tilelet.ir.spec import REGISTRY
from tilelet.oracle.judgement import judge_candidate
from tilelet.oracle.reference import Reference, load_reference

if TYPE_CHECKING:
    from mcp.server import MCPServer

MAX_SECONDS = 300
"""Time limit of a command that executes a script."""
MAX_FOUND = 12
INSTRUCTIONS = """\
Tile kernels in the pl language, run and modelled without an NPU. Write a candidate file, then
`judge` it against a reference script: the candidate is read, never executed. `check`, `diverge`,
`profile` and `advise` execute the script that they are given. `search_ops` and `search_examples`
show how things are written; `explain` says what a code means."""


_one_at_a_time = threading.Lock()


def _run(command: str, script: str, *options: str) -> str:
    """Return what a command prints with `--json`, or its messages if it prints nothing."""
    path = f"./{script}" if script.startswith("-") else script  # never an option of the command
    words = [sys.executable, "-m", "tilelet", command, path, "--json", *options]
    try:
        ran = subprocess.run(  # noqa: S603 - the script is what the client asks about
            words, capture_output=True, text=True, timeout=MAX_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return json.dumps({"error": f"stopped after {MAX_SECONDS} s"})
    return ran.stdout.strip() or json.dumps({"error": ran.stderr.strip()[-4000:]})


@functools.lru_cache(maxsize=8)
def _reference(path: str, modified: int) -> Reference:
    del modified  # part of the key: a reference that was changed is prepared again
    return load_reference(path)


def judge(candidate: str, reference: str, platform: str = "a2a3") -> str:
    """Judge a candidate file by the specs, inputs and golden of a reference script.

    The candidate is read, never executed. The answer says whether it is right on the reference's
    inputs and on further ones, names ways to pass without the work, and gives the modelled time
    with its floor, the share of the floor that is reached, and the first wrong statement.
    """
    try:
        machine = load_machine(platform)
        with _one_at_a_time:
            against = _reference(reference, Path(reference).stat().st_mtime_ns)
            return judge_candidate(candidate, against, [machine]).to_json()
    except UserError as error:
        return json.dumps({"error": render_text(error.diagnostic, color=False)})
    except OSError as error:
        return json.dumps({"error": f"{reference}: {error.strerror}"})


def verdict(script: str, platform: str = "a2a3") -> str:
    """Run a script once: is it right, does it fit, what do the checks find, what does it cost."""
    return _run("verdict", script, "-p", platform)


def check(script: str, platform: str = "a2a3") -> str:
    """Check a script: windows, undefined reads, races, on-chip capacity, alignment, limits."""
    return _run("check", script, "-p", platform)


def diverge(script: str) -> str:
    """Find the first statement whose result is wrong, compared with the script's golden."""
    return _run("diverge", script)


def profile(script: str, platform: str = "a2a3") -> str:
    """Model a script's time on an NPU: by kernel, by tensor, with interval and what bounds it."""
    return _run("profile", script, "-p", platform)


def advise(script: str, platform: str = "a2a3") -> str:
    """Suggest changes to a script, each verified by the model, with its diff."""
    return _run("advise", script, "-p", platform)


def explain_code(code: str) -> str:
    """Explain an error code such as E0203: what it means, why, and how to fix it."""
    try:
        return explain(code)
    except UserError as error:
        return render_text(error.diagnostic, color=False)


def search_ops(words: str) -> str:
    """Search the ops of `pl` and the error codes; return signatures and manuals."""
    wanted = words.lower().split()
    found: list[tuple[int, str]] = []
    for name, spec in REGISTRY.items():
        score = _matches(wanted, name, spec.doc)
        if score and spec.doc:
            found.append((-score, f"pl.{name}{spec.signature}\n{spec.doc}"))
    for code, cls in classes().items():
        about = describe(cls)
        text = f"{about.title} {about.summary}".lower()
        if wanted and all(w in text for w in wanted):
            found.append((-1, f"{code}: {about.summary}"))
    shown = [text for _, text in sorted(found)[:MAX_FOUND]]
    return "\n\n".join(shown) or f"nothing about {words!r}"


def _matches(wanted: list[str], name: str, text: str) -> int:
    """Count words in a text; one in the name weighs more, and the name itself most."""
    inside = sum(text.lower().count(word) + 9 * (word in name.lower()) for word in wanted)
    return inside + 99 * ("_".join(wanted) == name)


def search_examples(words: str) -> str:
    """Search the examples that ship with Tilelet; return the text of the best one."""
    wanted = words.lower().split()
    scored = [
        (_matches(wanted, file.stem, text), file.name, text)
        for file in example_files()
        for text in [file.read_text(encoding="utf-8")]
    ]
    score, name, text = max(scored, default=(0, "", ""))
    others = ", ".join(other for n, other, _ in sorted(scored, reverse=True)[1:5] if n)
    return f"# {name} (also: {others})\n{text}" if score else f"nothing about {words!r}"


TOOLS = {
    "judge": judge, "verdict": verdict, "check": check, "diverge": diverge, "profile": profile,
    "advise": advise, "explain": explain_code, "search_ops": search_ops,
    "search_examples": search_examples,
}  # fmt: skip


def make_server() -> MCPServer[Any]:
    """Return a server with all tools."""
    from mcp.server import MCPServer

    server = MCPServer("tilelet", instructions=INSTRUCTIONS, version=__version__)
    for name, function in TOOLS.items():
        server.tool(name, description=function.__doc__)(function)
    return server


def mcp_command() -> int:
    """Serve until the client disconnects."""
    try:
        server = make_server()
    except ModuleNotFoundError as error:
        raise MissingModule(error.name or "mcp", "`tilelet mcp`", "mcp") from None
    server.run("stdio")
    return 0
