"""A debugger that stops in a frame that looks like the kernel: its file, line and names."""

from __future__ import annotations

import ast
import os
import sys
from bdb import BdbQuit
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, ModuleType
from typing import Any

from tilelet.diag.core import Loc

_HOOK = "__debugger__"
_PDB = (None, "", "pdb.set_trace")  # values of PYTHONBREAKPOINT that select pdb


class LeftDebugger(SystemExit, BdbQuit):
    """The user left the debugger with `quit`, which ends the program without a message.

    In a REPL or a notebook the debugger's own exception propagates instead, to keep the session.
    """


def has_debugger() -> bool:
    """Return whether someone can answer: stdin is a terminal, or a hook was installed."""
    if _hook() is not sys.__breakpointhook__:
        return True
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def stop_in_kernel(values: Mapping[str, object], loc: Loc, kernel: str) -> None:
    """Open the debugger at a `breakpoint()` in a kernel, on these variables."""
    hook = _hook(give_way=True)
    if hook is sys.__breakpointhook__ and os.environ.get("PYTHONBREAKPOINT") in _PDB:
        hook = enter_pdb
    names = {**_module_of(loc.file), _HOOK: hook}
    try:
        exec(_code(loc, kernel), names, dict(values))  # noqa: S102 - two generated lines
    except BdbQuit:
        if hasattr(sys, "ps1") or sys.flags.interactive:
            raise
        print("the run was ended in the debugger", file=sys.stderr, flush=True)
        raise LeftDebugger(130) from None


def enter_pdb() -> None:
    """Act like `pdb.set_trace()` in the caller's frame; steps never stop in Tilelet's own code."""
    caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    _pdb().set_trace(caller)


def _pdb() -> Any:
    from pdb import Pdb

    class KernelPdb(Pdb):
        def user_return(self, frame: FrameType, return_value: object) -> None:
            """The kernel's frame has no caller: a step continues to the next stop."""
            if _HOOK in frame.f_code.co_names:
                self.set_continue()
            else:
                super().user_return(frame, return_value)

    return KernelPdb(skip=["tilelet", "tilelet.*"])


def _hook(*, give_way: bool = False) -> Callable[..., object]:
    """Return `sys.breakpointhook` from behind a progress line, which is told to give way."""
    hook = sys.breakpointhook
    while hasattr(hook, "behind"):
        if give_way:
            hook.give_way()  # type: ignore[attr-defined]
        hook = hook.behind  # type: ignore[attr-defined]
    return hook


def _code(loc: Loc, kernel: str) -> CodeType:
    """Compile a call of the hook located at the `breakpoint()` line of the kernel's file.

    Python before 3.13 stops at the beginning of the next line: there the call is placed one line
    above, so that the next line is the intended one.
    """
    line = max(loc.line, 2)
    call_line = line if sys.version_info >= (3, 13) else line - 1
    call = ast.parse(f"{_HOOK}()").body[0]
    after = ast.parse("pass").body[0]
    for statement, at in ((call, call_line), (after, line)):
        for node in ast.walk(statement):
            if hasattr(node, "lineno"):
                node.lineno = node.end_lineno = at  # type: ignore[attr-defined]
    code = compile(ast.Module([call, after], []), loc.file, "exec")
    return code.replace(co_name=kernel)


def _module_of(file: str) -> dict[str, object]:
    """Return the globals of the module loaded from a file: sizes and imports of the kernel."""
    found: ModuleType | None = None
    for module in [*sys.modules.values()]:
        if getattr(module, "__file__", None) == file:
            found = module
    return dict(vars(found)) if found is not None else {"__name__": "kernel"}


def frame_hook(
    frame: FrameType, hook: Callable[..., object], *args: object, **named: object
) -> Any:
    """Call a hook as if from `frame`."""
    if hook is sys.__breakpointhook__ and os.environ.get("PYTHONBREAKPOINT") in _PDB:
        return _pdb().set_trace(frame)
    return hook(*args, **named)
