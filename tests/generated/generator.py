"""Random well-typed kernels: `pl` text together with its meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from tests.generated.control import Control
from tests.generated.core import Choices, Param, Run, Step, run_steps
from tests.generated.functions import make_helper, make_kernel

TAPE = 1500  # bytes; longer kernels end with the simplest choices
FOCUSES = ("scopes", "control", "chunks", "calls", "spmd", "accumulators")


@dataclass(frozen=True)
class Kernel:
    """One generated program. `evaluate` is the oracle."""

    text: str
    style: str
    params: tuple[Param, ...]
    steps: tuple[Step, ...]

    def arguments(self) -> dict[str, Any]:
        return {p.name: p.data() for p in self.params}

    def evaluate(self, arguments: dict[str, Any]) -> range:
        """Write the results into the arrays; return the possible numbers of tasks.

        It is one number, unless tensors are assembled in a way that may or may not need a copy.
        """
        run = Run(dict(arguments))
        run_steps(self.steps, run)
        certain, copies = run.tasks
        return range(certain, certain + copies + 1)

    def __repr__(self) -> str:
        return f"\n{self.text}"


def kernels(focus: str) -> st.SearchStrategy[Kernel]:
    return st.binary(min_size=TAPE, max_size=TAPE).map(lambda tape: make(Choices(tape), focus))


def make(choices: Choices, focus: str) -> Kernel:
    """Return a kernel in which the constructs of `focus` are certain to appear."""
    style = choices.pick(("program", "jit"))
    control = Control(choices, style, nasty=choices.chance(50))
    constants = {f"C{i}": choices.number(-9, 9) for i in range(choices.number(0, 2))}
    control.constants = constants
    preamble = ["import tilelet.language as pl", *([""] if constants else [])]
    preamble += [f"{name} = {value}" for name, value in constants.items()]
    if focus == "calls" or choices.chance(30):
        helper, lines = make_helper(choices, style, 0)
        control.helpers.append(helper)
        preamble += lines
    if focus == "calls" or choices.chance(15):
        control.kernels += [make_kernel(choices, style, i) for i in range(choices.number(1, 2))]
    control.inputs()
    _main(control, focus)
    control.observe_tensors()
    return Kernel(_text(control, preamble), style, tuple(control.params), tuple(control.steps))


def _main(control: Control, focus: str) -> None:
    choices = control.choices
    if focus == "scopes":
        for _ in range(choices.number(1, 2)):
            control.scope()
    elif focus == "control":
        control.control_body(choices.number(2, 4), 2)
    elif focus == "accumulators":
        for _ in range(choices.number(1, 3)):
            control.products()
    else:
        for _ in range(choices.number(0, 1)):
            control.control_statement(1)
        special = {
            "chunks": control.auto_scope,
            "calls": control.kernel_call,
            "spmd": control.spmd,
        }[focus]
        for _ in range(choices.number(1, 2)):
            special()
        for _ in range(choices.number(0, 1)):
            control.control_statement(1)


def _text(control: Control, preamble: list[str]) -> str:
    shown = [f"{p.name}: {p.annotation}" for p in control.params]
    results = [p.name for p in control.params if p.name.startswith("r")]
    kernel_lines = [line for k in control.kernels for line in k.lines]
    if control.style == "jit":
        head = [*kernel_lines, "", "", "@pl.jit", f"def main({', '.join(shown)}):"]
        return "\n".join([*preamble, *head, *control.lines, f"    return {results[0]}", ""])
    head = ["", "", "@pl.program", "class Generated:", *kernel_lines, ""]
    head += ["    @pl.function", f"    def main(self, {', '.join(shown)}):"]
    tail = f"        return {', '.join(results[:2])}"
    return "\n".join([*preamble, *head, *control.lines, tail, ""])
