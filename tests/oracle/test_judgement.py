"""Rejected candidates, answers about wrong kernels, and no execution of either."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from tests.oracle.families import FAMILIES, HALF_ZERO, candidate, kernel, reference

from tilelet.device.machine.description import load_machine
from tilelet.diag.catalogue.oracle import NotAReference
from tilelet.oracle.judgement import CandidateVerdict, judge_candidate
from tilelet.oracle.reference import Reference, load_reference
from tilelet.scripts.answers import SCHEMA

MACHINES = [load_machine("a2a3")]
ADD = FAMILIES["add"]
HONEST = kernel(ADD, ADD.body)


@pytest.fixture(scope="module")
def add(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    path = tmp_path_factory.mktemp("reference") / "add.py"
    path.write_text(reference(ADD))
    return load_reference(path)


@pytest.fixture
def judged(add: Reference, tmp_path: Path):
    def judged(text: str) -> CandidateVerdict:
        path = tmp_path / "candidate.py"
        path.write_text(text)
        return judge_candidate(path, add, MACHINES)

    return judged


BODY = HONEST.replace("@pl.jit\n", "")
TOUCH = "__import__('pathlib').Path('{}').touch()"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"import os\nos.system('{{touch}}')\n{HONEST}", None),
        (f"{{python}}\n{HONEST}", None),
        (f"@(lambda f: {{python}})\n@pl.jit\n{BODY}", None),
        (f"def deco(f):\n    {{python}}\n    return f\n\n@deco\n@pl.jit\n{BODY}", None),
        (f"class Meta(type):\n    {{python}}\n{HONEST}", None),
        (HONEST.replace("for r in", "{python}\n    for r in"), "E0201"),
        (HONEST.replace("(0, 64, 16)", "(0, 64, 16 + 0 * len(str({python})))"), "E0201"),
        (HONEST.replace("pl.add(x, y)", "pl.add(x, pl.text.sys.exit())"), None),
        (HONEST.replace("pl.FP32], b", "pl.__class__.__mro__[1].__subclasses__()], b"), "E0209"),
        (HONEST.replace("[64, 64], pl.FP32], b", "[64, 64 * len([{python}])], pl.FP32], b"), None),
        (HONEST.replace("for r in", "breakpoint()\n    for r in"), "E0201"),
        (HONEST.replace("for r in", "pl.loads('/etc/passwd')\n    for r in"), "E0115"),
    ],
)
def test_nothing_of_a_candidate_is_executed(
    text: str, code: str | None, judged, tmp_path: Path
) -> None:
    mark = tmp_path / "executed"
    text = text.replace("{python}", TOUCH.format(mark)).replace("{touch}", f"touch {mark}")
    found = judged(candidate(text))
    assert not mark.exists()
    if code is not None:
        assert code in [d.code for d in found.diagnostics]


HUGE = {
    "power": HONEST.replace("(0, 64, 16)", "(0, 9 ** 9 ** 9 ** 9, 16)"),
    "shift": HONEST.replace("(0, 64, 16)", "(0, 1 << (1 << 60), 16)"),
    "module constant": "N = 10 ** 10 ** 10\n" + HONEST.replace("(0, 64, 16)", "(0, N, 16)"),
    "endless loop": "def f():\n    while True:\n        n = 0\n    return n\n\nN = f()\n"
    + HONEST.replace("(0, 64, 16)", "(0, N, 16)"),
    "endless recursion": "def f(n):\n    return f(n)\n\nN = f(1)\n"
    + HONEST.replace("(0, 64, 16)", "(0, N, 16)"),
    "doubled tuples": HONEST.replace(
        "for r in", "t = (1, 2)\n" + "    t = (t, t)\n" * 40 + "    for r in"
    ),
    "doubled text": "s = 'x'\n" + "s = s + s\n" * 60 + HONEST,
    "formatted": HONEST.replace("for r in", "w = '%999999999d' % 1\n    for r in"),
    "long range": HONEST.replace("(0, 64, 16)", "(0, 10 ** 12, 16)"),
    "long empty loop": HONEST.replace(
        "for r in", "n = 0\n    for i in pl.range(10 ** 12):\n        n = n + 1\n    for r in"
    ).replace("(0, 64, 16)", "(0, 64 + n, 16)"),
    "unrolled": HONEST.replace("pl.parallel(0, 64, 16)", "pl.unroll(0, 10 ** 9, 16)"),
    "doubled inlining": "".join(
        f"@pl.jit.inline\ndef f{i}(x):\n    y = f{i + 1}(x)\n    return f{i + 1}(y)\n\n"
        for i in range(40)
    )
    + "@pl.jit.inline\ndef f40(x):\n    return pl.add(x, 1.0)\n\n"
    + HONEST.replace("pl.add(x, y)", "f0(x)"),
    "large memory": HONEST.replace(
        "for r in", "big = pl.create_tensor([1 << 20, 1 << 16], dtype=pl.FP32)\n    for r in"
    ).replace("return out", "return out, big"),
    "deep nesting": "N = " + "(" * 3000 + "1" + ")" * 3000 + "\n" + HONEST,
    "deep sums": HONEST.replace("pl.add(x, y)", "x" + " + x" * 5000),
    "recursive kernel": HONEST.replace("for r in", "kernel(a, b, out)\n    for r in"),
}


@pytest.mark.parametrize("name", HUGE)
def test_hostile_candidates_stay_within_limits(name: str, judged) -> None:
    """They are rejected or judged; none takes long, and none ends the process."""
    found = judged(candidate(HUGE[name]))
    assert found.status in ("refused", "wrong") or name in ("deep nesting", "doubled text")


def test_names_of_the_machinery_mean_nothing_special(judged) -> None:
    """A candidate may have any name: its names live in a scope of their own."""
    text = candidate(HONEST.replace("def kernel", "def __init__").replace("x =", "__class__ ="))
    assert judged(text.replace("pl.add(x,", "pl.add(__class__,")).status == "right"


def test_another_signature_says_what_differs(judged) -> None:
    text = HONEST.replace("b: pl.Tensor[[64, 64]", "c: pl.Tensor[[64, 32]").replace(
        "y = b", "y = c"
    )
    text = text.replace(
        "out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]", "out: pl.Tensor[[64, 64], pl.BF16]"
    )
    (found,) = judged(candidate(text)).messages
    said = " ".join([found.labels[0].text, *found.notes])
    assert found.code == "E1803"
    for part in ("`b` is missing", "`c` is not in the reference", "BF16", "`out` is In here"):
        assert part in said


@pytest.mark.parametrize("declared", ["pl.InOut[pl.Tensor[[64, 64], pl.FP32]]", ""])
def test_a_candidate_leaves_the_inputs_alone(declared: str, judged) -> None:
    text = HONEST.replace("    return out", "            a[r : r + 16, :] = x\n    return out")
    text = text.replace("a: pl.Tensor[[64, 64], pl.FP32]", f"a: {declared}") if declared else text
    found = judged(candidate(text))
    assert found.status == "refused"
    assert "`a` is written here and only read in the reference" in str(found.messages[0])


def test_two_kernels_of_one_name_are_refused_with_their_places(judged) -> None:
    first = HONEST.replace("pl.add", "pl.sub")
    found = judged(candidate(f"{first}\n\n{HONEST}"))
    assert found.status == "refused"
    assert "it has 2 programs `kernel`" in found.why
    (message,) = found.messages
    lines = [label.loc.line for label in message.labels]
    assert len(lines) == 2
    assert lines[0] < lines[1]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def kernel(:", "E0116"),
        ("", "E1805"),
        ("import tilelet.language as pl\n", "E1805"),
        (candidate(HONEST + HONEST.replace("def kernel", "def other")).replace(
            "def kernel", "def one"), "E1805"),
        (candidate("import numpy as np\nN = np.prod([4, 4])\n"
                   + HONEST.replace("(0, 64, 16)", "(0, 64, N)")), "E1801"),
    ],
)  # fmt: skip
def test_unusable_candidates_are_refused(text: str, code: str, judged) -> None:
    found = judged(text)
    assert found.status == "refused"
    assert [d.code for d in found.messages][:1] == [code]


def test_a_wrong_kernel_is_followed_to_its_statement(judged) -> None:
    found = judged(candidate(HONEST.replace("pl.add(x, y)", "pl.sub(x, y)")))
    assert found.status == "wrong"
    assert found.first_wrong is not None
    assert found.first_wrong.loc is not None
    assert found.first_wrong.loc.file.endswith("candidate.py")
    assert found.first_wrong.grade == "repaired"
    data = json.loads(found.to_json())["judgement"]["first_wrong"]
    assert (data["grade"], data["lines"]) == ("repaired", [found.first_wrong.loc.line])
    assert data["repair"]


def test_a_mistake_that_no_single_change_repairs_has_a_lower_grade(judged) -> None:
    """The grade says how far the answer may be trusted: no statement is blamed with certainty."""
    other = "[(r + 16) % 64 : (r + 16) % 64 + 16, :]\n"
    found = judged(candidate(HONEST.replace("[r : r + 16, :]\n", other)))  # both loads
    assert found.status == "wrong"
    assert found.first_wrong is not None
    assert found.first_wrong.grade in ("bounded", "not found")
    assert found.first_wrong.repair is None
    shown = str(found.parts()[0])
    assert f"first wrong statement: line {found.first_wrong.loc}" not in shown


def test_the_answer_keeps_to_its_schema_and_never_varies(judged) -> None:
    schema = json.loads(SCHEMA.read_text())
    for text in (HONEST, HONEST.replace("pl.add", "pl.sub"), "@pl.jit\ndef f(): pass"):
        answers = {judged(candidate(text)).to_json() for _ in range(3)}
        assert len(answers) == 1
        jsonschema.validate(json.loads(answers.pop()), schema)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("golden_fn=golden, ", ""), "no golden"),
        (("print(run(", "run(kernel, SPECS, golden_fn=golden)\n    print(run("), "2 times"),
        (("a + b", "a - b"), "does not pass"),
        (("SPECS = [", "raise ValueError('no data')\nSPECS = ["), "no data"),
    ],
)
def test_scripts_that_are_no_reference(change: tuple[str, str], why: str, tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_text(reference(ADD).replace(*change))
    with pytest.raises(NotAReference, match=why):
        _ = load_reference(path).first


def test_other_lengths_are_tried_where_a_dimension_is_symbolic(tmp_path: Path) -> None:
    """A kernel for 64 rows only passes if the reference accepts any number of them."""
    symbolic = reference(ADD).replace("{", "{").replace("@pl.jit", 'M = pl.dynamic("M")\n\n@pl.jit')
    head, tail = symbolic.split("for r in", 1)
    symbolic = head.replace("pl.Tensor[[64, 64]", "pl.Tensor[[M, 64]") + "for r in" + tail
    symbolic = symbolic.replace("pl.parallel(0, 64, 16)", "pl.parallel(0, M, 1)").replace(
        "r + 16", "r + 1"
    )
    path = tmp_path / "reference.py"
    path.write_text(symbolic)
    against = load_reference(path)
    assert any("`M` =" in e.trial.about for e in against.others)
    program = symbolic[symbolic.index("M = pl.dynamic") : symbolic.index("def golden")]
    fixed = tmp_path / "candidate.py"
    fixed.write_text(candidate(program.replace("pl.parallel(0, M, 1)", "pl.parallel(0, 32, 1)")))
    assert judge_candidate(fixed, against, MACHINES).status == "wrong"
    fixed.write_text(candidate(program))
    assert judge_candidate(fixed, against, MACHINES).status == "right"


def test_skipped_rows_are_counted(tmp_path: Path) -> None:
    family = FAMILIES["mul"]
    path = tmp_path / "reference.py"
    path.write_text(reference(family, b=HALF_ZERO))
    lines = family.body.splitlines()
    body = "\n".join([*lines[:2], "if r < 32:", f"    {lines[2]}"])
    cheat = tmp_path / "candidate.py"
    cheat.write_text(candidate(kernel(family, body)))
    found = judge_candidate(cheat, load_reference(path), MACHINES)
    assert found.status == "without the work"
    assert "2,048 of 4,096 elements of `out` are not written" in found.why


def test_not_a_number_is_wrong(tmp_path: Path) -> None:
    """Without the maximum, a softmax divides infinity by infinity for large inputs only."""
    path = tmp_path / "reference.py"
    path.write_text(reference(FAMILIES["softmax"]))
    against = load_reference(path)
    body = "e = pl.exp(a[R : R + T, :])\nout[R : R + T, :] = "
    body += "pl.mul(pl.row_expand_div(e, pl.row_sum(e)), b[R : R + T, :])"
    unguarded = tmp_path / "candidate.py"
    unguarded.write_text(candidate(kernel(FAMILIES["softmax"], body)))
    found = judge_candidate(unguarded, against, MACHINES)
    assert found.status == "without the work"
    assert [about for about, right in found.inputs if not right] == ["much larger values"]
    nan = dict.fromkeys(against.first.outputs, np.full(1, np.nan))
    assert against.error(nan, dict.fromkeys(nan, np.zeros(1))) == float("inf")


COUNTED = """\
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit


@pl.jit
def kernel(
    x: pl.Tensor[[64, 32], pl.FP32],
    n: pl.Tensor[[1], pl.INT32],
    out: pl.Out[pl.Tensor[[64, 32], pl.FP32]],
):
    for r in pl.parallel(0, 64, 8):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 8, :] = pl.mul(x[r : r + 8, :], 2.0)
    return out


def golden(tensors):
    tensors["out"][:] = tensors["x"] * 2


if __name__ == "__main__":
    x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    specs = [
        TensorSpec("x", [64, 32], pl.FP32, x),
        TensorSpec("n", [1], pl.INT32, np.array([64], np.int32)),
        TensorSpec("out", [64, 32], pl.FP32, is_output=True),
    ]
    run_jit(kernel, specs, golden_fn=golden)
"""


def test_an_integer_of_one_value_is_varied(tmp_path: Path) -> None:
    """The golden does not use `n`, and the candidate does as many rows as it says."""
    path = tmp_path / "reference.py"
    path.write_text(COUNTED)
    program = COUNTED[COUNTED.index("@pl.jit") : COUNTED.index("def golden")]
    fewer = tmp_path / "candidate.py"
    fewer.write_text(candidate(program.replace("(0, 64, 8)", "(0, pl.read(n, [0]), 8)")))
    found = judge_candidate(fewer, load_reference(path), MACHINES)
    assert "1,024 of 2,048 elements of `out` are not written" in found.why
