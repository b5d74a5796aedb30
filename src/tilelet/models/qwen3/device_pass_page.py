"""The figures of docs/models.md: passes of whole models on modelled machines.

Run it:   python -m tilelet.models.qwen3.device_pass_page docs/models.md
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tilelet import dtypes
from tilelet.models.qwen3.architecture import Kind
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.device_pass import DevicePass, PassShape, device_pass
from tilelet.models.qwen3.page_figures import write_figures

MACHINES = ("a2a3", "a5")


@dataclass(frozen=True)
class PassFigure:
    size: str
    kind: Kind
    batch: int
    context: int

    def on(self, machine: str) -> DevicePass:
        config = Qwen3Config.preset(self.size)
        shape = PassShape(config, self.kind, self.batch, self.context, dtypes.BF16)
        return device_pass(shape, machine)

    def __str__(self) -> str:
        if self.kind == "prefill":
            return f"{self.size}, a prompt of {self.context}"
        return f"{self.size}, a step of {self.batch} at {self.context}"


FIGURES = (
    PassFigure("0.6B", "decode", 1, 1024),
    PassFigure("0.6B", "prefill", 1, 512),
    PassFigure("14B", "decode", 16, 4096),
    PassFigure("14B", "prefill", 1, 128),
    PassFigure("32B", "decode", 16, 4096),
    PassFigure("32B", "prefill", 1, 128),
    PassFigure("30B-A3B", "decode", 1, 1024),
    PassFigure("30B-A3B", "decode", 16, 4096),
    PassFigure("30B-A3B", "prefill", 1, 128),
)


def figures_markdown() -> str:
    """Return the table: tasks, bytes and time of each pass on each machine, and the time of a
    layer and the head.
    """
    lines = [
        "| pass | machine | tasks | GB | ms | us per token | a layer, us | output head, us |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for figure in FIGURES:
        for machine in MACHINES:
            found = figure.on(machine)
            layer, head = (found.parts[i].profile.total_us for i in (1, 2))
            lines.append(
                f"| {figure} | {machine} | {found.tasks:,} | {found.hbm_bytes / 1e9:.1f} "
                f"| {found.us / 1e3:.1f} | {found.us_per_token:,.0f} "
                f"| {layer:,.0f} | {head:,.0f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    write_figures(Path(sys.argv[1]), figures_markdown())
