"""Commands for programs that write kernels, and for editors: lsp, mcp, gym."""

from __future__ import annotations

from pathlib import Path

from tilelet.cli.declaration import Command, argument, option
from tilelet.cli.options import (
    JSON,
    TEXT,
    executor_option,
    format_option,
    html_option,
    jobs_option,
    platform_option,
)
from tilelet.cli.values import new_file
from tilelet.dataclasses import dataclass
from tilelet.scripts import interrupt

AGENTS = "editors and agents"
GYM_ACTIONS = ("list", "show", "score", "optimise")


@dataclass(frozen=True, kw_only=True)
class LspCommand(Command, group=AGENTS):
    """Serve an editor: diagnostics, hover, lenses and actions for kernels.

    Examples:
      tilelet lsp                 speaks the Language Server Protocol on stdin and stdout
      pip install "tilelet[lsp]"  what it needs

    Files are read, never executed. docs/editors.md has the settings of VS Code, Neovim and Emacs.
    """

    platform: str | None = platform_option()

    def run(self) -> int:
        with interrupt.defer():
            from tilelet.cli.lsp import lsp_command

        return lsp_command(self)


@dataclass(frozen=True, kw_only=True)
class McpCommand(Command, group=AGENTS):
    """Serve a coding assistant: the commands as tools of the Model Context Protocol.

    Examples:
      tilelet mcp                 speaks the protocol on stdin and stdout
      pip install "tilelet[mcp]"  what it needs

    docs/agents.md says how to write, judge and improve a kernel with these tools.
    """

    def run(self) -> int:
        with interrupt.defer():
            from tilelet.cli.mcp import mcp_command

        return mcp_command()


@dataclass(frozen=True, kw_only=True)
class GymCommand(Command, group=AGENTS):
    """List, show, score and optimise the tasks of the gym: kernels to write, without an NPU.

    Examples:
      tilelet gym list                        60 tasks in three levels
      tilelet gym show softmax                specification, golden and naive kernel: a reference
      tilelet gym score my/ --json            files named by their tasks: my/softmax.py
      tilelet gym score my/ other/ --html board.html
      tilelet gym score my/ --executor dask://host:8786
      tilelet gym score naive my/             the naive kernels of the tasks beside them
      tilelet gym optimise DIR                `tilelet optimise` on the naive kernels
      tilelet gym optimise DIR softmax topk

    A score is the share of the floor that is reached, the mean of a2a3 and a5; 0 unless the
    candidate is right on all inputs and no check has a finding. Candidates are never executed.
    """

    action: str = argument("list, show, score or optimise", "ACTION", words=lambda: GYM_ACTIONS)
    names: list[str] = argument("tasks to show, or folders of kernels", "NAME", nargs="*")
    format: str = format_option(TEXT, JSON)
    jobs: int | None = jobs_option()
    executor: str | None = executor_option()
    html: Path | None = html_option()
    markdown: Path | None = option(
        "write the leaderboard as Markdown", default=None, parse=new_file, metavar="FILE"
    )

    def run(self) -> int:
        with interrupt.defer():
            from tilelet.cli.gym import gym_command

        return gym_command(self)
