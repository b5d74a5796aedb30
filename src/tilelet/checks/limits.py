"""Whether the runtime can hold the tasks: its window of tasks, and its heap of fresh tensors."""

from __future__ import annotations

from tilelet.checks.findings import Status, found
from tilelet.checks.verdict import Part, Subject, part
from tilelet.diag.catalogue.device import HeapDeadlock, NoTasks, WindowDeadlock
from tilelet.diag.text import size_text


def check(subject: Subject) -> Part:
    """The modelled device plays the recorded tasks: one that never gets a slot is found there."""
    runtime = subject.machine.period(subject.period)
    room = f"window of {runtime.task_window}, heap of {size_text(runtime.heap_bytes)}"
    try:
        _ = subject.device_run.timeline
    except NoTasks:
        return Part("limits", Status.NOT_CHECKED, "no task was submitted")
    except (WindowDeadlock, HeapDeadlock) as error:
        return part("limits", [found("limits", error)], Status.FOUND, room)
    return part("limits", [], Status.THIS_RUN, f"{subject.tasks_text}; {room}")
