"""The two kernels in every rule's section of docs/advice.md.

The fault is found in the first, not in the second, which has the same results and takes less.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tilelet.advice.advisor import gains
from tilelet.advice.core import Rule
from tilelet.advice.manual import advice_markdown
from tilelet.advice.programs import ScriptPrograms, Setting
from tilelet.advice.proof import Attempt, examine
from tilelet.advice.rules import RULES
from tilelet.device.machine.description import load_machine
from tilelet.diag.catalogue import split_code, text_beside
from tilelet.equivalence.trials import difference
from tilelet.runtime.programs import engines
from tilelet.scripts.recording import RecordingOptions
from tilelet.scripts.target import Target

SETTING = Setting(load_machine("a2a3"), None, RecordingOptions(platform="a2a3", quiet=True))
NUMPY = {"FP32": "np.float32", "BF16": "ml_dtypes.bfloat16", "INT32": "np.int32"}

OTHER_RESULTS = {"missing-root", "discarded-rows"}
"""A right result instead of a wrong one; another sixteen rows of queries."""

NOT_FASTER = {"missing-root", "softmax-overflow", "repeated-read", "hidden-equality"}
"""Faults that do not, or not always, cost time."""

each_rule = pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])


def script(kernel: str) -> str:
    """Return a script that calls a kernel once with random arguments."""
    text = inspect.cleandoc(kernel)
    (function,) = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    lines = ["import ml_dtypes", "import numpy as np", "import tilelet.language as pl", "", text]
    lines += ["", 'if __name__ == "__main__":', "    draw = np.random.default_rng(3)"]
    names: list[str] = []
    for argument in function.args.args:
        assert argument.annotation is not None
        found = re.search(
            r"pl\.Tensor\[(\[[^\]]*\]), pl\.(\w+)\]", ast.unparse(argument.annotation)
        )
        assert found is not None
        shape, dtype = found.groups()
        drawn = f"draw.standard_normal({shape})"
        if dtype == "INT32":
            drawn = f"draw.integers(1, 500, {shape})"
        lines.append(f"    {argument.arg} = {drawn}.astype({NUMPY[dtype]})")
        names.append(argument.arg)
    return "\n".join([*lines, f"    kernel({', '.join(names)})", ""])


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.chdir(tmp_path)


def kernel(rule: Rule, name: str) -> str:
    return split_code(text_beside(rule.problem)[name])[1]


def tried(body: str) -> Attempt:
    text = script(body)
    Path("kernel.py").write_text(text, encoding="utf-8")
    attempt = examine(ScriptPrograms(Target("kernel.py", text=text), SETTING), text, SETTING)
    assert attempt.subject is not None, attempt.why
    return attempt


def outputs(attempt: Attempt) -> dict[str, NDArray[Any]]:
    """Return the arguments after the kernel has run on the interpreter."""
    (checked,) = attempt.checked
    arrays: dict[str, NDArray[Any]] = {name: np.array(a) for name, a in checked.arguments.items()}
    engines.get("interp").run(checked.program, arrays)
    return arrays


@each_rule
def test_pair(rule: Rule) -> None:
    before, after = (tried(kernel(rule, name)) for name in ("Before", "After"))
    assert before.subject is not None
    assert after.subject is not None
    assert [a.problem.code for a in rule.find(before.subject)]
    assert [a.diagnostic.message for a in rule.find(after.subject)] == []
    if rule.name not in OTHER_RESULTS:
        results = [outputs(attempt) for attempt in (before, after)]
        assert difference([[results[0]]], [[results[1]]], rounding=True) == ""
    if rule.name not in NOT_FASTER and not rule.is_about_text:
        found = next(iter(rule.find(before.subject)))
        is_faster = after.subject.costs.us < before.subject.costs.us
        assert is_faster or gains([(rule, found)], before, after)


@each_rule
def test_rewritings_state_when_they_are_legal(rule: Rule) -> None:
    text = text_beside(rule.problem)
    assert rule.rewrites == ("Legal if" in text)
    assert text["Evidence"]


@each_rule
def test_rewriting_of_the_first_kernel(rule: Rule) -> None:
    """Every rewriting is correct and removes the finding."""
    before = tried(kernel(rule, "Before"))
    assert before.subject is not None
    found = [a for a in rule.find(before.subject) if a.text is not None]
    assert bool(found) == rule.rewrites
    if not found:
        return
    text = found[0].text or ""
    programs = ScriptPrograms(Target("kernel.py", text=before.subject.source.text), SETTING)
    after = examine(programs, text, SETTING)
    assert after.subject is not None, after.why
    if not rule.ends_chain:  # a changed size can be changed again
        assert len([a for a in rule.find(after.subject) if a.text is not None]) < len(found)
    results = [outputs(attempt) for attempt in (before, after)]
    assert difference([[results[0]]], [[results[1]]], rounding=found[0].rounding) == ""


def test_every_rule_has_its_section() -> None:
    page = advice_markdown()
    for rule in RULES:
        section = page.partition(f"\n## {rule.name}\n")[2].partition("\n## ")[0]
        assert "Evidence: " in section, rule.name
        assert section.count("```python") == 2, rule.name
        module = inspect.getmodule(rule.find)
        assert module is not None
        assert module.__name__.endswith(rule.name.replace("-", "_")), "one file for each rule"
