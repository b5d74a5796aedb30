"""Stepwise calls of a compiled program, for scripts that drive a board's worker themselves.

A worker registers the program's `chip_callable`, and runs it with arguments and a configuration
that the program made. Here the callable is the program, and the steps are those of a call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tilelet.runtime.config import RunConfig
from tilelet.runtime.programs.binding import Parameter, bind_call

RUNTIME_NAME = "tilelet"


@dataclasses.dataclass(frozen=True)
class CallConfig:
    """The parameters of one worker run: the configuration, and values for a board."""

    config: RunConfig
    aicpu_thread_num: int = 1
    block_dim: int = 1


class StepwiseCalls:
    """The steps of a call, for whoever makes them himself."""

    parameters: Sequence[Parameter]
    config: RunConfig

    @property
    def name(self) -> str:
        raise NotImplementedError

    runtime_name = RUNTIME_NAME

    @property
    def runtime_config(self) -> dict[str, Any]:
        """What a board's runtime would be set up with."""
        return {"runtime": self.runtime_name}

    @property
    def chip_callable(self) -> Any:
        """What a worker registers."""
        return self

    def build_call_config(self, config: RunConfig | None = None, **numbers: int) -> CallConfig:
        """The configuration of a run; `aicpu_thread_num=` and `block_dim=` are kept, and unused."""
        return CallConfig(config or self.config, **numbers)

    def build_orch_args(self, *args: Any, worker: Any = None) -> tuple[list[Any], list[Any], bool]:
        """The arguments of a run: as a worker takes them, as the caller sees them, and whether
        outputs among them were made here, because they were left out.
        """
        del worker  # memory is the same for all of them
        _, written = bind_call(self.name, self.parameters, args)
        is_complete = len(args) == len(self.parameters)
        given = iter(args)
        whole = [
            written[p.name] if p.is_pure_output and not is_complete else next(given)
            for p in self.parameters
        ]
        return whole, list(whole), not is_complete
