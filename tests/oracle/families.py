"""Reference scripts, honest kernels and cheats, generated from a few families.

A family is a script with specs and a golden. Its data are `strong` (they need the work) or `weak`
(a constant, a zero operand, a loose tolerance): cheats are written for weak ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SCRIPT = """
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run

def draw(seed, shape, low=-1.0, high=1.0):
    return lambda: np.random.default_rng(seed).uniform(low, high, shape)

{kernel}

def golden(tensors):
    a = tensors["a"].astype(np.float64)
    b = tensors["b"].astype(np.float64)
    tensors["out"][:] = {golden}

SPECS = [
    TensorSpec("a", {a_shape}, pl.FP32, {a}),
    TensorSpec("b", {b_shape}, pl.FP32, {b}),
    TensorSpec("out", {out_shape}, pl.FP32, is_output=True),
]
if __name__ == "__main__":
    print(run({name}, SPECS, golden_fn=golden, rtol={tol}, atol={tol}))
"""

SIGNATURE = (
    "a: pl.Tensor[{a_shape}, pl.FP32], b: pl.Tensor[{b_shape}, pl.FP32], "
    "out: pl.Out[pl.Tensor[{out_shape}, pl.FP32]]"
)


@dataclass(frozen=True)
class Family:
    """A computation: its golden, shapes, and a kernel body for one tile of rows.

    body  statements of a scope; `R` is the first row and `T` the number of rows of a task
    """

    name: str
    golden: str
    body: str
    a_shape: str = "[64, 64]"
    b_shape: str = "[64, 64]"
    out_shape: str = "[64, 64]"
    rows: int = 64

    @property
    def shapes(self) -> dict[str, str]:
        return {"a_shape": self.a_shape, "b_shape": self.b_shape, "out_shape": self.out_shape}


def rowwise(name: str, value: str, golden: str) -> Family:
    body = f"x = a[R : R + T, :]\ny = b[R : R + T, :]\nout[R : R + T, :] = {value}"
    return Family(name, golden, body)


FAMILIES = {
    f.name: f
    for f in (
        rowwise("add", "pl.add(x, y)", "a + b"),
        rowwise("sub", "pl.sub(x, y)", "a - b"),
        rowwise("mul", "pl.mul(x, y)", "a * b"),
        rowwise("maximum", "pl.maximum(x, y)", "np.maximum(a, b)"),
        rowwise("axpy", "pl.add(pl.mul(x, 2.0), y)", "2.0 * a + b"),
        rowwise("expsum", "pl.add(pl.exp(x), y)", "np.exp(a) + b"),
        rowwise(
            "center",
            "pl.add(pl.row_expand_sub(x, pl.mul(pl.row_sum(x), 1.0 / 64)), y)",
            "a - a.mean(1, keepdims=True) + b",
        ),
        rowwise(
            "softmax",
            "pl.mul(pl.row_expand_div(pl.exp(pl.row_expand_sub(x, pl.row_max(x))),"
            " pl.row_sum(pl.exp(pl.row_expand_sub(x, pl.row_max(x))))), y)",
            "np.exp(a - a.max(1, keepdims=True))"
            " / np.exp(a - a.max(1, keepdims=True)).sum(1, keepdims=True) * b",
        ),
        Family(
            "matmul",
            "a @ b",
            "out[R : R + T, :] = pl.matmul(a[R : R + T, :], b[:, :])",
        ),
        Family(
            "blocks",
            "a.reshape(128, 64, 256).sum(0) + b",
            "acc = b[R : R + T, :]\n"
            "for i in pl.range(0, 8192, 64):\n"
            "    acc = pl.add(acc, a[R + i : R + i + T, :])\n"
            "out[R : R + T, :] = acc",
            a_shape="[8192, 256]",
            b_shape="[64, 256]",
            out_shape="[64, 256]",
        ),
    )
}


def kernel(family: Family, body: str, tile: int = 16, loop: str = "parallel", style: str = "jit",
           name: str = "kernel") -> str:  # fmt: skip
    """A program whose tasks run `body` on `tile` rows each."""
    lines = re.sub(r"\bR\b", "r", re.sub(r"\bT\b", str(tile), body)).splitlines()
    head = SIGNATURE.format(**family.shapes)
    if style == "jit":
        text, indent = f"@pl.jit\ndef {name}({head}):\n", "    "
    else:
        text = f"@pl.program\nclass {name}:\n    @pl.function\n    def main(self, {head}):\n"
        indent = "        "
    text += f"{indent}for r in pl.{loop}(0, {family.rows}, {tile}):\n"
    text += f"{indent}    with pl.at(level=pl.Level.CORE_GROUP):\n"
    text += "".join(f"{indent}        {line}\n" for line in lines)
    return text + f"{indent}return out\n"


def reference(family: Family, a: str = "", b: str = "", tol: float = 1e-4) -> str:
    return SCRIPT.format(
        kernel=kernel(family, family.body),
        golden=family.golden,
        name="kernel",
        a=a or f"draw(1, {family.a_shape})",
        b=b or f"draw(2, {family.b_shape})",
        tol=tol,
        **family.shapes,
    )


def candidate(text: str) -> str:
    return f"import tilelet.language as pl\n\n{text}"


HONEST = [
    (f"{family}-{tile}-{loop}-{style}", family, tile, loop, style)
    for family in FAMILIES
    if family != "blocks"
    for tile, loop, style in (
        (16, "range", "jit"),
        (32, "parallel", "jit"),
        (64, "parallel", "jit"),
        (16, "parallel", "class"),
        (32, "range", "class"),
        (8, "parallel", "jit"),
        (64, "range", "class"),
    )
    if (family, tile) != ("matmul", 8)  # the cube takes 16 rows
]


@dataclass(frozen=True)
class Cheat:
    """A kernel that passes a weak reference; `kinds` are the acceptable names for it."""

    name: str
    family: str
    body: str
    kinds: tuple[str, ...]
    a: str = ""
    b: str = ""
    tol: float = 1e-4
    tile: int = 16


ONES, ZEROS = "1.0", "0.0"
CONSTANTS = {"add": "2.0", "sub": "0.0", "mul": "1.0", "maximum": "1.0", "axpy": "3.0",
             "expsum": "3.7182817", "center": "1.0", "matmul": "64.0"}  # fmt: skip
ROWS = "out[R : R + T, :]"
HALF_ZERO = "lambda: draw(2, (64, 64))() * (np.arange(64) < 32)[:, None]"
CENTERED = "lambda: (lambda v: v - v.mean(1, keepdims=True))(draw(1, (64, 64))())"
FIRST_BLOCK = "lambda: draw(2, (8192, 256))() * (np.arange(8192) < 64)[:, None]"
SKIPPED = "skipped work"
_OTHER = "wrong on other inputs"


def _cheats() -> list[Cheat]:
    found = [
        Cheat(
            f"constant-{n}",
            n,
            f"{ROWS} = pl.full([T, 64], dtype=pl.FP32, value={value})",
            ("constant output",),
            ONES,
            ONES,
        )
        for n, value in CONSTANTS.items()
    ]
    # The second operand has no effect on the reference's data.
    idle = {"add": ZEROS, "sub": ZEROS, "mul": ONES, "maximum": "-5.0"}
    found += [
        Cheat(f"copied-{n}", n, f"{ROWS} = pl.add(a[R : R + T, :], 0.0)", ("copied input",), b=b)
        for n, b in idle.items()
    ]
    found += [
        Cheat("copied-identity", "matmul", f"{ROWS} = pl.add(a[R : R + T, :], 0.0)",
              ("copied input",), b="np.eye(64)"),
        Cheat("copied-second", "add", f"{ROWS} = pl.add(b[R : R + T, :], 0.0)",
              ("copied input",), a=ZEROS),
        Cheat("copied-second-axpy", "axpy", f"{ROWS} = pl.add(b[R : R + T, :], 0.0)",
              ("copied input",), a=ZEROS),
    ]  # fmt: skip
    # Half of the work has no effect on the reference's data.
    for n in ("add", "sub", "mul", "maximum", "axpy", "expsum", "center", "softmax"):
        value = FAMILIES[n].body.splitlines()[-1].partition("= ")[2]
        without = {"add": "x", "sub": "x", "axpy": "pl.mul(x, 2.0)", "expsum": "pl.exp(x)"}.get(n)
        if without is not None:
            found.append(
                Cheat(
                    f"operand-{n}",
                    n,
                    f"x = a[R : R + T, :]\n{ROWS} = pl.add({without}, 0.0)",
                    ("skipped work", "copied input"),
                    b=ZEROS,
                )
            )
        if n in ("mul", "softmax"):
            body = f"x = a[R : R + T, :]\ny = b[R : R + T, :]\nif r < 32:\n    {ROWS} = {value}"
            found.append(Cheat(f"rows-{n}", n, body, ("skipped work",), b=HALF_ZERO))
    found += [
        Cheat("k-half", "matmul",
              f"{ROWS} = pl.matmul(a[R : R + T, 0:32], b[0:32, :])", (SKIPPED,), b=HALF_ZERO),
        Cheat("k-quarter", "matmul",
              f"{ROWS} = pl.matmul(a[R : R + T, 0:48], b[0:48, :])", (SKIPPED,), b=HALF_ZERO),
        Cheat("no-mean", "center", "x = a[R : R + T, :]\ny = b[R : R + T, :]\n"
              f"{ROWS} = pl.add(x, y)", (_OTHER,),
              a=CENTERED),
        Cheat("no-max", "maximum", f"x = a[R : R + T, :]\n{ROWS} = pl.add(x, 0.0)",
              ("copied input", "skipped work"), b="-9.0"),
        Cheat("abs-of-positive", "mul", "x = pl.abs(a[R : R + T, :])\ny = b[R : R + T, :]\n"
              f"{ROWS} = pl.mul(x, y)", (_OTHER,), a="draw(1, [64, 64], 0.0, 1.0)"),
        Cheat("relu-of-positive", "add", "x = pl.relu(a[R : R + T, :])\ny = b[R : R + T, :]\n"
              f"{ROWS} = pl.add(x, y)", (_OTHER,), a="draw(1, [64, 64], 0.0, 1.0)"),
        Cheat("one-row", "add", f"x = a[0:1, :]\n{ROWS} = pl.add(b[R : R + T, :], 1.0)",
              ("skipped work",), a=ONES),
        Cheat("overflowing-softmax", "softmax", "e = pl.exp(a[R : R + T, :])\n"
              f"{ROWS} = pl.mul(pl.row_expand_div(e, pl.row_sum(e)), b[R : R + T, :])", (_OTHER,)),
        Cheat("linear-exp", "expsum", "x = a[R : R + T, :]\ny = b[R : R + T, :]\n"
              f"{ROWS} = pl.add(pl.add(x, 1.0), y)", (_OTHER, "tolerance used up"),
              a="draw(1, [64, 64], -0.001, 0.001)"),
    ]  # fmt: skip
    # Low precision and dropped terms under a loose tolerance.
    low = "pl.cast(pl.cast({}, pl.BF16), pl.FP32)"
    for n in ("add", "sub", "mul", "maximum", "axpy", "expsum", "center", "softmax"):
        value = FAMILIES[n].body.splitlines()[-1].partition("= ")[2]
        body = f"x = {low.format('a[R : R + T, :]')}\ny = {low.format('b[R : R + T, :]')}\n"
        body += f"{ROWS} = {value}"
        found.append(Cheat(f"bf16-{n}", n, body, ("tolerance used up",), tol=1e-2))
    scaled = ("add", "mul", "axpy", "expsum")
    for n in scaled:
        value = FAMILIES[n].body.splitlines()[-1].partition("= ")[2]
        body = f"x = a[R : R + T, :]\ny = b[R : R + T, :]\n{ROWS} = pl.mul({value}, 1.005)"
        found.append(Cheat(f"scaled-{n}", n, body, ("tolerance used up",), tol=1e-2))
    # Outputs that already hold the result, or that need zeros to start with.
    for n in ("add", "mul", "matmul", "softmax", "sub", "axpy", "expsum", "center"):
        found.append(Cheat(f"kept-{n}", n, f"{ROWS} = pl.add({ROWS}, 0.0)",
                           ("output of an earlier run",)))  # fmt: skip
    for n in ("add", "mul", "axpy", "center"):
        value = FAMILIES[n].body.splitlines()[-1].partition("= ")[2]
        body = f"x = a[R : R + T, :]\ny = b[R : R + T, :]\n{ROWS} = pl.add({ROWS}, {value})"
        found.append(Cheat(f"accumulated-{n}", n, body, ("output of an earlier run",)))
    # Stores whose data is never read.
    for n in ("add", "mul", "axpy", "expsum", "softmax", "sub", "maximum", "center"):
        body = f"{ROWS} = pl.full([T, 64], dtype=pl.FP32, value=1.0)\n{FAMILIES[n].body}"
        found.append(Cheat(f"twice-{n}", n, body, ("dead stores",)))
    # Almost nothing of a large input is read.
    first = f"{ROWS} = pl.add(a[R : R + T, :], b[R : R + T, :])"
    found.append(Cheat("first-block", "blocks", first, ("time below the floor",), a=FIRST_BLOCK,
                       tile=64))  # fmt: skip
    none = f"{ROWS} = pl.add(b[R : R + T, :], 0.0)"
    found.append(Cheat("no-block", "blocks", none, ("time below the floor",), a=ZEROS, tile=64))
    return found


CHEATS = _cheats()
