"""What every Qwen3 program file has in common: its description, and running it as a script."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilelet.models.qwen3.reference import Array
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.runtime import RunResult, TensorSpec, run

PLATFORMS = ("a2a3sim", "a2a3", "a5sim", "a5")


@dataclass(frozen=True)
class Model:
    """One program in its variants.

    about says in one line what it is, variants the same of each variant; the first is the default.
    build(variant, **sizes) makes the program, shape_for(variant, **sizes) tells its sizes;
    specs(shape) are its inputs, golden(shape) computes what must come out.
    """

    name: str
    about: str
    variants: Mapping[str, str]
    build: Callable[..., Any]
    shape_for: Callable[..., DecodeShape]
    specs: Callable[[Any], list[TensorSpec]]
    golden: Callable[[Any], Callable[[dict[str, Array]], None]]
    tolerance: float

    @property
    def default(self) -> str:
        return next(iter(self.variants))

    def run(
        self,
        variant: str,
        *,
        runtime_cfg: dict[str, Any] | None = None,
        switches: dict[str, Any] | None = None,
        **sizes: Any,
    ) -> RunResult:
        """Build, run and compare. `switches` go to `build` only: they change no size."""
        shape = self.shape_for(variant, **sizes)
        return run(
            self.build(variant, **(switches or {}), **sizes),
            self.specs(shape),
            golden_fn=self.golden(shape),
            rtol=self.tolerance,
            atol=self.tolerance,
            runtime_cfg=runtime_cfg,
        )


def main(model: Model, argv: Sequence[str] | None = None) -> int:
    """Run `model` as the command line says; every size is an option."""
    parser = argparse.ArgumentParser(description=model.about)
    parser.add_argument("--variant", choices=list(model.variants), default=model.default)
    parser.add_argument("-p", "--platform", choices=PLATFORMS, default=PLATFORMS[0])
    parser.add_argument("-d", "--device", type=int, default=0)
    parser.add_argument("--enable-profiling", action="store_true")
    sizes = [f.name for f in dataclasses.fields(model.shape_for(model.default))]
    for name in sizes:
        kind = float if name == "eps" else int
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind)
    args = parser.parse_args(argv)
    changed = {n: getattr(args, n) for n in sizes if getattr(args, n) is not None}
    config = {
        "platform": args.platform,
        "device_id": args.device,
        "enable_profiling": args.enable_profiling,
    }
    result = model.run(args.variant, runtime_cfg=config, **changed)
    print(result)
    return 0 if result.passed else 1
