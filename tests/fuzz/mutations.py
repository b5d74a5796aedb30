"""Small changes of program texts and arguments, most of which introduce a mistake."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np

import tilelet.ops  # noqa: F401 - the registry is filled by it
from tilelet import dtypes
from tilelet.ir.spec import REGISTRY

_NUMBERS = (
    "0", "1", "-1", "2", "7", "16", "17", "255", "2**31 - 1", "2**31", "-(2**31)", "2**32",
    "2**63 - 1", "2**63", "-(2**63)", "2**64", "10**30", "1 << 70", "0.5", "1e400", "True", "None",
)  # fmt: skip
_OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "^", "@", "<", "==", "and")
_DTYPES = tuple(f"pl.{name}" for name in ("FP32", "BF16", "INT8", "INT32", "BOOL", "FP64", "INT64"))
_LINES = (
    "break", "continue", "return", "pass", "pl.yield_()", "import os", "x = [1, 2]", "del n1",
    "with pl.incore():", "for q in pl.range(3):", "while True:", "if n1 > 2:", "else:", "raise",
    "lambda: 0", "q = n1 // 2**64", "q = n1 % 0", "t = pl.full([0, 4], pl.FP32, 0.0)", "global n1",
    "pl.read(n1, [0, 0])", "assert n1", "q: pl.INT32 = 3", "yield n1", "q = (n1 := 3)",
)  # fmt: skip

Lines = list[str]
Edit = Callable[[Lines, int, np.random.Generator], None]


def _token(pattern: str, choose: Callable[[str, np.random.Generator], str]) -> Edit:
    """An edit that replaces one match of `pattern` in a line."""

    def edit(lines: Lines, at: int, rng: np.random.Generator) -> None:
        found = list(re.finditer(pattern, lines[at]))
        if found:
            match = found[int(rng.integers(len(found)))]
            new = choose(match.group(), rng)
            lines[at] = lines[at][: match.start()] + new + lines[at][match.end() :]

    return edit


def _one_of(options: tuple[str, ...]) -> Callable[[str, np.random.Generator], str]:
    return lambda _, rng: options[int(rng.integers(len(options)))]


def _delete(lines: Lines, at: int, rng: np.random.Generator) -> None:
    del lines[at]


def _repeat(lines: Lines, at: int, rng: np.random.Generator) -> None:
    lines.insert(int(rng.integers(at, len(lines) + 1)), lines[at])


def _swap(lines: Lines, at: int, rng: np.random.Generator) -> None:
    other = int(rng.integers(len(lines)))
    lines[at], lines[other] = lines[other], lines[at]


def _shift(lines: Lines, at: int, rng: np.random.Generator) -> None:
    lines[at] = lines[at][4:] if rng.random() < 0.5 else "    " + lines[at]


def _insert(lines: Lines, at: int, rng: np.random.Generator) -> None:
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    new = _LINES[int(rng.integers(len(_LINES)))]
    lines.insert(at, indent + new)
    if new.endswith(":"):
        lines.insert(at + 1, indent + "    pass")


def _another_name(lines: Lines, at: int, rng: np.random.Generator) -> None:
    names = re.findall(r"\b[a-z]+\d+\b", "\n".join(lines)) or ["n1"]
    _token(r"\b[a-z]+\d+\b", _one_of(tuple(names)))(lines, at, rng)


def _deepen(lines: Lines, at: int, rng: np.random.Generator) -> None:
    """Nest an expression in hundreds of others."""
    count = int(rng.choice([3, 60, 300, 2000]))
    form = ("pl.neg({})", "({} + 1)", "(-{})", "pl.min({}, 3)")[int(rng.integers(4))]
    before, after = form.split("{}")

    def nested(text: str, _: np.random.Generator) -> str:
        return before * count + text + after * count

    _token(r"\b[a-z]+\d+\b", nested)(lines, at, rng)


_EDITS: tuple[Edit, ...] = (
    _token(r"(?<![\w.])\d+(?![\w.])", _one_of(_NUMBERS)),
    _token(r"(?<![\w.])\d+(?![\w.])", _one_of(_NUMBERS)),
    _token(r" (?:[-+*/%]|//|<|>|==) ", lambda _, rng: f" {_one_of(_OPERATORS)('', rng)} "),
    _token(r"pl\.(?:FP32|BF16|FP16|U?INT\d+)", _one_of(_DTYPES)),
    _token(r"pl\.[a-z_]+(?=\()", _one_of(tuple(f"pl.{name}" for name in sorted(REGISTRY)))),
    _token(r"\w+=", _one_of(("stage=", "chunk=", "valid_shape=", "nonsense=", "init_cond="))),
    _token(r", [^,()\[\]]+(?=[,)\]])", lambda old, rng: "" if rng.random() < 0.5 else old + old),
    _delete, _repeat, _swap, _shift, _insert, _insert, _another_name, _another_name, _deepen,
)  # fmt: skip


def mutated(text: str, rng: np.random.Generator) -> str:
    """Return the text with one to three edits in the bodies of its functions."""
    lines = text.split("\n")
    start = 1 + max(i for i, line in enumerate(lines) if line.lstrip().startswith("def main("))
    head, body = lines[:start], "\n".join(lines[start:]).rstrip().split("\n")
    indent = body[0][: len(body[0]) - len(body[0].lstrip())]
    for _ in range(int(rng.integers(1, 4))):
        edit = _EDITS[int(rng.integers(len(_EDITS)))]
        edit(body, int(rng.integers(len(body))), rng)
        body = body or [""]
    # Text outside the function is ordinary Python.
    inside = [line if line.startswith(indent) else indent + line.lstrip() for line in body]
    return "\n".join([*head, *inside, ""])


# --- arguments -----------------------------------------------------------------------------------


def _other_order(a: Any) -> Any:
    return np.asfortranarray(a)


def _strided(a: Any) -> Any:
    wide = np.zeros((*a.shape[:-1], a.shape[-1] * 2), a.dtype)
    wide[..., ::2] = a
    return wide[..., ::2]


def _read_only(a: Any) -> Any:
    a = a.copy()
    a.flags.writeable = False
    return a


def _unaligned(a: Any) -> Any:
    raw = np.zeros(a.nbytes + 1, np.uint8)
    found = raw[1:].view(a.dtype).reshape(a.shape)
    found[...] = a
    return found


_SPOILT: tuple[Callable[[Any], Any], ...] = (
    _other_order, _strided, _read_only, _unaligned,
    lambda a: a[::-1], lambda a: a.T, lambda a: a[:-1], lambda a: a[:0], lambda a: a[None],
    lambda a: a.reshape(-1), lambda a: a.tolist(), lambda a: None, lambda a: "text", lambda a: 7,
    lambda a: np.float64(1), lambda a: a.astype(np.float64), lambda a: a.astype(np.complex64),
    lambda a: a.astype(object), lambda a: np.broadcast_to(a[:1], a.shape),
    lambda a: a.astype(">i4"), lambda a: a.astype(np.float32).astype(">f4"),
    lambda a: np.ma.masked_array(a, mask=True), lambda a: memoryview(a.astype(np.float32)),
    lambda a: np.array(["x"]), lambda a: a.astype(dtypes.INT8.numpy), lambda a: a[..., :1],
)  # fmt: skip


def spoilt(arguments: dict[str, Any], choice: int) -> dict[str, Any]:
    """Return arguments of which one or two are changed, shared, omitted, or superfluous."""
    rng = np.random.default_rng(choice)
    found = dict(arguments)
    for _ in range(int(rng.integers(1, 3))):
        name = str(rng.choice(sorted(found))) if found else "x2"
        kind = int(rng.integers(0, 12))
        if kind == 0:
            found.pop(name, None)
        elif kind == 1:
            found["unknown"] = np.zeros(3, np.float32)
        elif kind == 2 and name in found:
            other = str(rng.choice(sorted(found)))
            found[other] = found[name]  # two parameters with one memory
        elif isinstance(found.get(name), np.ndarray):
            with contextlib.suppress(TypeError, ValueError, OverflowError):  # spoilt before
                found[name] = _SPOILT[int(rng.integers(len(_SPOILT)))](found[name])
    return found
