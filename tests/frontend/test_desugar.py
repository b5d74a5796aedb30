"""`break` and `continue` become flags with the same meaning."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelet.diag import UserError
from tilelet.frontend.desugar import desugar_jumps
from tilelet.frontend.source import from_text


def trace(text: str, desugar: bool) -> list[int]:
    """Run the text as Python (`range` loops only) and return its log."""
    source = from_text(text, "<desugar test>")
    stmts = desugar_jumps(source.tree.body, source) if desugar else source.tree.body
    module = ast.fix_missing_locations(ast.Module(stmts, []))
    log: list[int] = []
    exec(compile(module, "<desugar test>", "exec"), {"log": log.append})
    return log


@given(st.data())
def test_same_trace_as_python(data: st.DataObject) -> None:
    def block(depth: int, indent: str) -> str:
        lines = []
        for _ in range(data.draw(st.integers(1, 3))):
            kind = data.draw(st.sampled_from(["log", "if", "jump", "loop"]))
            if kind == "loop" and depth < 2:
                var = f"i{depth + 1}"
                lines.append(f"{indent}for {var} in range({data.draw(st.integers(0, 4))}):")
                lines.append(block(depth + 1, indent + "    "))
            elif kind in ("if", "jump"):
                lines.append(f"{indent}if i{depth} == {data.draw(st.integers(0, 3))}:")
                jump = data.draw(st.sampled_from(["break", "continue"]))
                lines.append(f"{indent}    {jump if kind == 'jump' else 'log(7)'}")
            else:
                lines.append(f"{indent}log(i{depth} * 10 + {data.draw(st.integers(0, 9))})")
        return "\n".join(lines)

    text = "for i0 in range(4):\n" + block(0, "    ")
    assert trace(text, desugar=True) == trace(text, desugar=False)


def test_while_stops_at_break() -> None:
    text = "n = 0\nwhile n < 10:\n    n = n + 1\n    if n == 3:\n        break\n    log(n)"
    assert trace(text, desugar=True) == [1, 2]


def test_text_without_jumps_is_left_alone() -> None:
    stmts = ast.parse("for i in r:\n    a = i").body
    assert desugar_jumps(stmts, from_text("", "<empty>")) is stmts


@pytest.mark.parametrize(
    "text", ["break", "for i in pl.parallel(4):\n    continue", "for i in pl.unroll(4):\n    break"]
)
def test_jump_where_there_is_no_next_iteration(text: str) -> None:
    source = from_text(text, "<misplaced>")
    with pytest.raises(UserError) as caught:
        desugar_jumps(source.tree.body, source)
    assert caught.value.code == "E0112"


def test_condition_is_not_looked_at_after_break() -> None:
    text = (
        "n = 0\nitems = [5, 6]\nwhile items[n] > 0:\n    n = n + 1\n    if n == 2:\n        break"
    )
    assert trace(f"{text}\nlog(n)", desugar=True) == [2]
