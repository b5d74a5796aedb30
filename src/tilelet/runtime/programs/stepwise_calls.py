"""Stepwise calls of a compiled program, for scripts that drive a board's worker themselves.

A worker registers the program's `chip_callable`, and runs it with arguments and a configuration
that the program made. Here the callable is the program, and the steps are those of a call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tilelet import dataclasses
from tilelet.runtime.config import RunConfig
from tilelet.runtime.programs.binding import EntryParameter, bind_call

RUNTIME_NAME = "tilelet"


@dataclasses.dataclass(frozen=True)
class CallConfig:
    """The parameters of one worker run: the configuration, and values for a board."""

    config: RunConfig
    aicpu_thread_num: int = 1
    block_dim: int = 1


class StepwiseCalls(ABC):
    """The steps of a call as separate methods."""

    parameters: Sequence[EntryParameter]
    config: RunConfig

    @property
    @abstractmethod
    def name(self) -> str:
        """The program's name, for messages."""

    runtime_name = RUNTIME_NAME

    @property
    def runtime_config(self) -> dict[str, Any]:
        """The runtime configuration of a board."""
        return {"runtime": self.runtime_name}

    @property
    def chip_callable(self) -> Any:
        """The callable that a worker registers."""
        return self

    def build_call_config(self, config: RunConfig | None = None, **numbers: int) -> CallConfig:
        """Return the configuration of a run; `numbers` have no effect."""
        return CallConfig(config or self.config, **numbers)

    def build_orch_args(
        self, *args: object, worker: object = None
    ) -> tuple[list[Any], list[Any], bool]:
        """All workers share the memory"""
        del worker  # memory is the same for all of them
        _, written = bind_call(self.name, self.parameters, args)
        is_complete = len(args) == len(self.parameters)
        given = iter(args)
        whole = [
            written[p.name] if p.is_pure_output and not is_complete else next(given)
            for p in self.parameters
        ]
        return whole, list(whole), not is_complete
