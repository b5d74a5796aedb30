"""A debugger that stops in a frame which looks like the kernel: its file, its line, its names."""

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
_PDB = (None, "", "pdb.set_trace")  # what PYTHONBREAKPOINT says if it says nothing


class LeftDebugger(SystemExit, BdbQuit):
    """The user ended the run with the debugger's `quit`: so ends the program, without a word more.

    In a REPL or a notebook the debugger's own exception goes on instead: the session is kept.
    """


def has_debugger() -> bool:
    """Whether somebody can answer: a terminal, or a hook that was installed on purpose."""
    if _hook() is not sys.__breakpointhook__:
        return True
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def stop_in_kernel(values: Mapping[str, Any], loc: Loc, kernel: str) -> None:
    """Open the debugger where a kernel's text says `breakpoint()`, on these variables."""
    hook = _hook(give_way=True)
    if hook is sys.__breakpointhook__ and os.environ.get("PYTHONBREAKPOINT") in _PDB:
        hook = enter_pdb
    names = {**_module_of(loc.file), _HOOK: hook}
    try:
        exec(_code(loc, kernel), names, dict(values))  # noqa: S102 - two lines of our own
    except BdbQuit:
        if hasattr(sys, "ps1") or sys.flags.interactive:
            raise
        print("the run was ended in the debugger", file=sys.stderr, flush=True)
        raise LeftDebugger(130) from None


def enter_pdb() -> None:
    """As `pdb.set_trace()`, in the frame that called; steps never stop in Tilelet's own code."""
    caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    _pdb().set_trace(caller)


def _pdb() -> Any:
    from pdb import Pdb

    class KernelPdb(Pdb):
        def user_return(self, frame: FrameType, return_value: object) -> None:
            """The frame of a kernel has nothing to return to: a step leads to the next stop."""
            if _HOOK in frame.f_code.co_names:
                self.set_continue()
            else:
                super().user_return(frame, return_value)

    return KernelPdb(skip=["tilelet", "tilelet.*"])


def _hook(*, give_way: bool = False) -> Callable[..., Any]:
    """`sys.breakpointhook`; what a progress line has put before it is asked to make room."""
    hook = sys.breakpointhook
    while hasattr(hook, "behind"):
        if give_way:
            hook.give_way()  # type: ignore[attr-defined]
        hook = hook.behind  # type: ignore[attr-defined]
    return hook


def _code(loc: Loc, kernel: str) -> CodeType:
    """Code that calls the hook. Its place is the `breakpoint()` line of the kernel's file.

    Python before 3.13 stops when the next line begins: there the call seems to stand one line
    above, and that next line is the one meant.
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
    """The names of the module that was made of a file: sizes and imports of the kernel."""
    found: ModuleType | None = None
    for module in [*sys.modules.values()]:
        if getattr(module, "__file__", None) == file:
            found = module
    return dict(vars(found)) if found is not None else {"__name__": "kernel"}


def frame_hook(frame: FrameType, hook: Callable[..., Any], *args: object, **named: object) -> Any:
    """Call a hook that was meant to be called in `frame`."""
    if hook is sys.__breakpointhook__ and os.environ.get("PYTHONBREAKPOINT") in _PDB:
        return _pdb().set_trace(frame)
    return hook(*args, **named)
