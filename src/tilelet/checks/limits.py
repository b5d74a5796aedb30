"""Check that the runtime's task window and heap can hold the program's tasks and tensors."""

from __future__ import annotations

from tilelet.checks.findings import Status, make_finding
from tilelet.checks.verdict import CheckResult, Subject, part
from tilelet.diag.catalogue.device import HeapDeadlock, NoTasks, WindowDeadlock
from tilelet.diag.text import size_text


def check(subject: Subject) -> CheckResult:
    """Simulate the recorded tasks on the modelled device, which finds deadlocks."""
    runtime = subject.machine.period(subject.period)
    room = f"window of {runtime.task_window}, heap of {size_text(runtime.heap_bytes)}"
    try:
        _ = subject.device_run.timeline
    except NoTasks:
        return CheckResult("limits", Status.NOT_CHECKED, "no task was submitted")
    except (WindowDeadlock, HeapDeadlock) as error:
        return part("limits", [make_finding("limits", error)], Status.FOUND, room)
    return part("limits", [], Status.THIS_RUN, f"{subject.tasks_text}; {room}")
