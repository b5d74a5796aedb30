"""The course of one execution of a kernel: its steps with their sizes, and how often each runs.

Control decisions do not depend on costs, so they are made once here; the pipes are simulated
afterwards, on any machine.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tilelet.dataclasses import dataclass
from tilelet.device.kernel.control_path import ControlPath, Signature
from tilelet.device.kernel.view import Bind, DeviceKernel, Loop, Node, Step, Work
from tilelet.diag.core import Loc

MAX_FOLLOWED = 4096
"""Limit on iterations simulated individually if they do not settle."""


@dataclass(frozen=True, slots=True)
class Move:
    """A step with its work reduced to the valid part."""

    step: Step
    work: Work


@dataclass(frozen=True, slots=True)
class IterationRun:
    """Consecutive identical iterations, up to but excluding `end`."""

    end: int
    body: tuple[Move | Rounds, ...]


@dataclass(frozen=True, slots=True)
class Rounds:
    """All iterations of a loop; iterations outside every run cost the average of earlier ones."""

    loop: Loop
    count: int
    runs: tuple[IterationRun, ...]


@dataclass(frozen=True, eq=False)
class Course:
    """The steps and loops of an execution; `guesses` are assumed outcomes with their locations."""

    kernel: DeviceKernel
    signature: Signature
    body: tuple[Move | Rounds, ...]
    guesses: tuple[tuple[Loc, str], ...]


@functools.lru_cache(maxsize=4096)
def course_of(kernel: DeviceKernel, signature: Signature) -> Course:
    """Make all control decisions of an execution, once for all machines that it is replayed on."""
    path = ControlPath(kernel, signature)
    body = _moves(path, kernel.body)
    return Course(kernel, signature, body, tuple(path.guesses.items()))


def _moves(path: ControlPath, nodes: Sequence[Node]) -> tuple[Move | Rounds, ...]:
    found: list[Move | Rounds] = []
    for node in nodes:
        if isinstance(node, Step):
            found.append(Move(node, path.sized(node.work)))
        elif isinstance(node, Bind):
            path.bind(node.op)
        elif isinstance(node, Loop):
            found.append(_rounds(path, node))
        else:
            taken = path.takes(node)
            found += _moves(path, node.then if taken else node.orelse)
            path.join(node, taken)
    return tuple(found)


def _rounds(path: ControlPath, loop: Loop) -> Rounds:
    count, index, stride = path.trips(loop)
    path.enter(loop)
    reached = dict(path.reached)
    runs: list[IterationRun] = []
    done = 0
    for end in path.runs(loop, min(count, MAX_FOLLOWED), count, index, stride):
        if end == done:
            continue
        path.iterate(loop, index + done * stride)
        runs.append(IterationRun(end, _moves(path, loop.body)))
        path.hand_on(loop)
        path.skip(loop, end - done - 1, index + (done + 1) * stride, stride)
        done = end
    if done < count:
        path.skip_rest(reached, count / done)
    path.leave(loop)
    return Rounds(loop, count, tuple(runs))
