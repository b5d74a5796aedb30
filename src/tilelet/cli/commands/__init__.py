"""The commands of `tilelet`, by name. A command is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from tilelet.cli.declaration import Command

# In the order of `tilelet --help`: the module of each command.
_MODULES = {
    "run": "write",
    "check": "write",
    "export": "write",
    "examples": "write",
    "verdict": "debug",
    "diverge": "debug",
    "explain": "debug",
    "profile": "speed",
    "advise": "speed",
    "tune": "speed",
    "optimise": "speed",
    "compare": "speed",
    "view": "speed",
    "tasks": "speed",
    "generate": "models",
    "layer": "models",
    "demo": "models",
    "doctor": "machine",
    "bench": "machine",
    "calibrate": "machine",
    "completion": "machine",
    "lsp": "agents",
    "mcp": "agents",
    "gym": "agents",
    "report": "unlisted",
    "list": "unlisted",
    "version": "unlisted",
    "docs": "unlisted",
    "walkthrough": "unlisted",
}


class _Commands(Mapping[str, type[Command]]):
    def __getitem__(self, name: str) -> type[Command]:
        module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
        return getattr(module, f"{name.capitalize()}Command")

    def __contains__(self, name: object) -> bool:
        return name in _MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


COMMANDS: Mapping[str, type[Command]] = _Commands()


def listed_commands() -> list[type[Command]]:
    """The commands that help and completion show."""
    return [command for command in COMMANDS.values() if command.group is not None]
