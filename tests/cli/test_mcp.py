# pyright: reportAttributeAccessIssue=false
# The protocol answers with unions; a wrong member fails the test.
"""`tilelet mcp` with the client of the protocol's own SDK."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("mcp") is None:
    pytest.skip("no package mcp", allow_module_level=True)

EXAMPLES = Path(__file__).parents[2] / "examples"
HELLO = str(EXAMPLES / "01_hello.py")


def ask(*calls: tuple[str, dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Start a server and call tools; return the names of all tools and the answers."""

    async def session() -> tuple[list[str], list[str]]:
        # Imported here: it takes a second, which every test process would pay.
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        command = StdioServerParameters(command=sys.executable, args=["-m", "tilelet", "mcp"])
        async with Client(stdio_client(command)) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            answers = [await client.call_tool(name, given) for name, given in calls]
            return tools, [answer.content[0].text for answer in answers]

    return asyncio.run(asyncio.wait_for(session(), 120))


def test_tools_answer_as_the_commands_do(tmp_path: Path) -> None:
    wrong = tmp_path / "candidate.py"
    wrong.write_text(Path(HELLO).read_text().replace("pl.add(", "pl.sub("))
    tools, answers = ask(
        ("judge", {"candidate": HELLO, "reference": HELLO}),
        ("judge", {"candidate": str(wrong), "reference": HELLO}),
        ("judge", {"candidate": HELLO, "reference": str(tmp_path / "none.py")}),
        ("check", {"script": HELLO}),
        ("explain", {"code": "E0203"}),
        ("search_ops", {"words": "row sum"}),
        ("search_examples", {"words": "paged attention"}),
    )
    assert {"judge", "verdict", "check", "diverge", "profile", "advise"} <= set(tools)
    right, broken, missing, checked, explained, ops, example = answers
    assert json.loads(right)["judgement"]["ok"]
    assert json.loads(broken)["judgement"]["first_wrong"]["line"] == 25
    assert "none.py" in json.loads(missing)["error"]
    assert json.loads(checked)["errors"] == 0
    assert "E0203" in explained
    assert ops.startswith("pl.row_sum(")
    assert example.startswith("# 12_paged_decode_attention.py")


def test_bad_input_is_answered_and_the_server_stays(tmp_path: Path) -> None:
    broken, blind = tmp_path / "broken.py", tmp_path / "blind.py"
    broken.write_text("def kernel(:\n")
    blind.write_text(Path(HELLO).read_text().replace("golden_fn=golden, ", ""))
    calls: list[tuple[tuple[str, dict[str, Any]], str]] = [
        (("judge", {"candidate": str(broken), "reference": HELLO}), '"why": "invalid syntax"'),
        (("judge", {"candidate": HELLO, "reference": str(blind)}), "there is no golden"),
        (("judge", {"candidate": HELLO, "reference": str(tmp_path)}), "is a directory"),
        (("judge", {"candidate": str(EXAMPLES / "06_rope.py"), "reference": HELLO}),
         "parameter `a` is missing"),
        (("judge", {"candidate": HELLO, "reference": HELLO, "platform": "a9"}), "no machine"),
        (("judge", {}), "Field required"),
        (("none", {}), "Unknown tool"),
        (("verdict", {"script": "--help"}), "--help"),
        (("explain", {"code": "nothing"}), "no code"),
        (("search_ops", {"words": ""}), "nothing about"),
        (("search_ops", {"words": "row max"}), "pl.row_max("),
        (("search_examples", {"words": "moe"}), "# 13_moe_layer.py"),
        (("explain", {"code": "E0203"}), "E0203"),
    ]  # fmt: skip
    _, answers = ask(*(call for call, _ in calls))
    for (call, wanted), answer in zip(calls, answers):
        assert wanted in answer, (call, answer)
    assert "usage" not in answers[7]
    assert answers[10].startswith("pl.row_max(")
