"""Each construct that August rejects, in several spellings, is reported at its place.

In the texts below a comment names the code of the finding that its line must have, and `<- name`
marks the other place of a captured name.
"""

from __future__ import annotations

import inspect
import re

import pytest
from tests.dialects.test_dialects import AUGUST, program_of

from tilelet.dialects import check
from tilelet.passes.pipeline import run_passes

_HEAD = """
@pl.jit
def kernel(x: pl.Tensor[[64, 64], pl.FP32], row: pl.Tensor[[1, 64], pl.FP32],
           out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            tile = x[r : r + 16, :]
            BODY
            out[r : r + 16, :] = done
    return out
"""

_CLASS = """
@pl.program
class Program:
    @pl.function
    def kernel(self, x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
        BODY
        return out
"""

# Statements before the kernel, and in its scope.
IN_SCOPE: dict[str, tuple[str, str]] = {
    "a local of a helper": (
        """
        @pl.inline
        def twice(t):
            tile = pl.add(t, t)  # <- tile
            return tile
        """,
        """
        other = twice(pl.mul(tile, 2.0))
        done = pl.add(other, tile)  # E1202 tile
        """,
    ),
    "parameters the other way round": (
        """
        @pl.inline
        def minus(a, b):  # <- a  <- b
            return pl.sub(a, b)
        """,
        """
        a = pl.mul(tile, 2.0)
        b = pl.mul(tile, 3.0)
        c = minus(b, a)
        d = pl.add(c, a)  # E1202 a
        done = pl.add(d, b)  # E1202 b
        """,
    ),
    "a local of a helper in a helper": (
        """
        @pl.inline
        def inner(a):
            t = pl.mul(a, 2.0)  # <- t
            return t


        @pl.inline
        def outer(b):
            t = pl.add(b, 1.0)
            c = inner(pl.mul(t, 3.0))
            return pl.add(c, t)  # E1202 t
        """,
        "done = outer(tile)",
    ),
    "what a helper's loop counts with": (
        """
        @pl.inline
        def total(t):
            acc = pl.mul(t, 0.0)
            for start in pl.range(2):  # <- start
                acc = pl.add(acc, t)
            return acc
        """,
        """
        start = 48 - r
        part = total(x[start : start + 16, :])
        done = pl.add(part, x[start : start + 16, :])  # E1202 start
        """,
    ),
    "a constant of a closure": (
        """
        def make(r):
            @pl.inline
            def scaled(t):
                return pl.mul(t, r)  # E1202 r
            return scaled


        scaled = make(2.0)
        """,
        "done = scaled(tile)",
    ),
    "an op by assignment": ("scale = pl.mul", "done = scale(tile, 2.0)  # E1205"),
    "an op by import": (
        "from tilelet.language import mul as scale",
        "done = scale(tile, 2.0)  # E1205",
    ),
    "an op by its own name": ("from tilelet.language import mul", "done = mul(tile, 2.0)  # E1205"),
    "an op in a namespace": (
        "import types\nops = types.SimpleNamespace(scale=pl.mul)",
        "done = ops.scale(tile, 2.0)  # E1205",
    ),
    "a tuple": (
        "@pl.inline\ndef both(t):\n    return pl.mul(t, 2.0), pl.mul(t, 3.0)",
        "p, q = both(tile)  # E1204\ndone = pl.add(p, q)",
    ),
    "a tuple under one name": (
        "@pl.inline\ndef both(t):\n    return (pl.mul(t, 2.0), pl.mul(t, 3.0))",
        "p = both(tile)  # E1204\ndone = pl.add(p[0], p[1])",
    ),
    "a parameter in a helper's loop": (
        """
        @pl.inline
        def raised(t):
            for i in pl.range(3):
                t = pl.add(t, 1.0)  # E1207
            return t
        """,
        "done = raised(pl.mul(tile, 2.0))",
    ),
    "a column": (
        "ROWS = 16",
        """
        c = pl.full([ROWS, 1], value=2.0, dtype=pl.FP32)  # E1208
        done = pl.row_expand_mul(tile, c)
        """,
    ),
    "a cast in a helper": (
        "@pl.inline\ndef up(t):\n    return pl.cast(t, pl.FP32)  # E1208",
        "done = up(pl.add(tile, 1.0))",
    ),
    "a helper that returns nothing": (
        "@pl.inline\ndef put(target, t, at):\n    target[at : at + 16, :] = t",
        "done = pl.add(tile, 1.0)\nput(out, done, r)  # E1218",
    ),
    "several values at once": ("", "p, q = tile, 2.0  # E1218\ndone = pl.mul(p, q)"),
    "a condition in an argument": (
        "WIDE = True",
        "done = pl.slice(x, [16 if WIDE else 8, 64], [r, 0])  # E1218",
    ),
    "a comprehension": ("", "done = pl.slice(x, [d for d in [16, 64]], [r, 0])  # E1218"),
    "a row": ("", "done = pl.add(tile, row)  # E1208"),
    "a row by an operator": ("", "done = tile + row  # E1208"),
    "a row as first operand": ("", "done = pl.mul(row, tile)  # E1208"),
}


def _indented(text: str, by: int) -> str:
    return ("\n" + " " * by).join(inspect.cleandoc(text).split("\n"))


def expected(text: str) -> set[tuple[str, int, int | None]]:
    """Return codes with their lines, and for a captured name the line that captures it."""
    marks = {
        name: n
        for n, line in enumerate(text.splitlines(), 1)
        for name in re.findall(r"<- (\w+)", line)
    }
    return {
        (code, n, marks.get(name))
        for n, line in enumerate(text.splitlines(), 1)
        for code, name in re.findall(r"([EW]12\d\d) ?(\w*)", line)
    }


def found(text: str) -> list[set[tuple[str, int, int | None]]]:
    """Return the findings before and after the passes, which must agree."""
    program = program_of(text, f"<spelling {hash(text)}>")
    return [
        {
            (d.code, d.loc.line, d.labels[1].loc.line if d.code == "E1202" and marked else None)
            for d in check(stage, AUGUST)
            if d.loc is not None
            for marked in ["<-" in text]
        }
        for stage in (program, run_passes(program))
    ]


@pytest.mark.parametrize("name", IN_SCOPE)
def test_a_construct_is_found_where_it_stands(name: str) -> None:
    before, body = IN_SCOPE[name]
    text = inspect.cleandoc(before) + _HEAD.replace("BODY", _indented(body, 12))
    for places in found(text):
        assert places == expected(text)


# Bodies of a function of a class, with `out` as its output.
IN_PROGRAM = {
    "a scope": """
        for r in pl.parallel(0, 64, 16):
            with pl.incore():  # E1201
                out = pl.assemble(out, pl.slice(x, [16, 64], [r, 0]), [r, 0])
        """,
    "a scope by import": """
        for r in pl.parallel(0, 64, 16):
            with scope():  # E1201
                out = pl.assemble(out, pl.slice(x, [16, 64], [r, 0]), [r, 0])
        """,
    "a chunked loop": """
        with pl.auto_incore():  # E1201
            for r in pl.parallel(0, 64, 16, chunk=2):  # E1201
                out = pl.assemble(out, pl.slice(x, [16, 64], [r, 0]), [r, 0])
        """,
    "a loop by import": """
        for r in parallel(0, 64, 16):  # E1205
            with pl.at(level=pl.Level.CORE_GROUP):
                out = pl.assemble(out, pl.slice(x, [16, 64], [r, 0]), [r, 0])
        """,
    "a computed hint": """
        for r in pl.parallel(0, 64, 16):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint=f"copy{16}"):  # E1206
                out = pl.assemble(out, pl.slice(x, [16, 64], [r, 0]), [r, 0])
        """,
}


@pytest.mark.parametrize("name", IN_PROGRAM)
def test_a_scope_or_loop_is_found_where_it_stands(name: str) -> None:
    before = "from tilelet.language import incore as scope, parallel"
    text = before + _CLASS.replace("BODY", _indented(IN_PROGRAM[name], 8))
    for places in found(text):
        assert places == expected(text)


@pytest.mark.parametrize("call", ["pl.incore()", 'pl.incore(name_hint="copy")'])
def test_a_scope_has_a_text_to_write_instead(call: str) -> None:
    body = IN_PROGRAM["a scope"].replace("pl.incore()", call).replace("  # E1201", "")
    text = _CLASS.replace("BODY", _indented(body, 8))
    (finding,) = check(program_of(text), AUGUST)
    (fix,) = finding.fixes
    mended = text.replace(call, fix.text)
    assert ("copy" in fix.text) == ("copy" in call)
    assert check(program_of(mended, "<mended scope>"), AUGUST) == []


@pytest.mark.parametrize("body", ["tile + row", "pl.mul(row, tile)", "pl.add(tile, row)"])
def test_rows_have_a_text_to_write_instead(body: str) -> None:
    text = _HEAD.replace("BODY", f"done = {body}")
    (finding,) = check(program_of(text), AUGUST)
    (fix,) = finding.fixes
    mended = text.replace(body, fix.text)
    assert check(program_of(mended, "<mended row>"), AUGUST) == []


@pytest.mark.parametrize("mark", ["pl.jit.inline", "pl.jit.inline(auto_scope=False)"])
def test_functions_that_are_compiled_as_such_keep_their_names_apart(mark: str) -> None:
    text = f"""
@{mark}
def twice(t: pl.Tensor[[64, 64], pl.FP32], to: pl.Tensor[[64, 64], pl.FP32]):
    row = pl.slice(t, [16, 64], [0, 0])
    to[0:16, :] = pl.add(row, row)
    return to


@pl.jit
def kernel(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
    row = 16
    with pl.at(level=pl.Level.CORE_GROUP):
        out = twice(x, out)
    with pl.at(level=pl.Level.CORE_GROUP):
        out[row : row + 16, :] = pl.exp(x[row : row + 16, :])
    return out
"""
    assert check(program_of(text, f"<{mark}>"), AUGUST) == []
