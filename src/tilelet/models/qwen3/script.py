"""Common parts of the Qwen3 program files: their description, and running them as scripts."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilelet.dtypes import Array
from tilelet.ir.core import Program
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.runtime import RunResult, TensorSpec, run

PLATFORMS = ("a2a3sim", "a2a3", "a5sim", "a5")


@dataclass(frozen=True)
class Variant:
    """One way to write a program.

    about  one-line description
    make   returns, for given sizes, the inline function that the program consists of
    sizes  sizes that differ from the defaults
    """

    about: str
    make: Callable[..., Any]
    sizes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class ShippedModel:
    """One program in its variants, the first of which is the default.

    about           one-line description
    program         wraps a variant's function in a program with the right parameters
    specs, golden   inputs of these sizes and expected outputs; the same for all variants
    switches        options that change the program but no size, with a description each
    """

    name: str
    about: str
    variants: Mapping[str, Variant]
    program: Callable[[Any, Any], Program]
    specs: Callable[[Any], list[TensorSpec]]
    golden: Callable[[Any], Callable[[dict[str, Array]], None]]
    tolerance: float
    shape: type[DecodeShape] = DecodeShape
    switches: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def default(self) -> str:
        return next(iter(self.variants))

    def shape_for(self, variant: str, **sizes: Any) -> Any:
        """Return the default sizes of a variant, with those in `sizes` changed."""
        return self.shape(**{**self.variants[variant].sizes, **sizes})

    def build(self, variant: str | None = None, **settings: object) -> Program:
        """Build the program, with sizes changed and switches set by name."""
        chosen = variant or self.default
        switches = {name: settings.pop(name) for name in self.switches if name in settings}
        s = self.shape_for(chosen, **settings)
        return self.program(s, self.variants[chosen].make(s, **switches))

    def run(
        self,
        variant: str,
        *,
        runtime_cfg: dict[str, Any] | None = None,
        switches: dict[str, Any] | None = None,
        **sizes: object,
    ) -> RunResult:
        """Build, run and compare."""
        shape = self.shape_for(variant, **sizes)
        return run(
            self.build(variant, **(switches or {}), **sizes),
            self.specs(shape),
            golden_fn=self.golden(shape),
            rtol=self.tolerance,
            atol=self.tolerance,
            runtime_cfg=runtime_cfg,
        )


def main(model: ShippedModel, argv: Sequence[str] | None = None, variant: str | None = None) -> int:
    """Run `model` from the command line; every size and every switch is an option.

    `variant` is the one to run unless `argv` names another.
    """
    parser = argparse.ArgumentParser(description=model.about)
    parser.add_argument("--variant", choices=list(model.variants), default=variant or model.default)
    parser.add_argument("-p", "--platform", choices=PLATFORMS, default=PLATFORMS[0])
    parser.add_argument("-d", "--device", type=int, default=0)
    parser.add_argument("--enable-profiling", action="store_true")
    for name, text in model.switches.items():
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)
    sizes = [f.name for f in dataclasses.fields(model.shape)]
    for name in sizes:
        kind = float if name == "eps" else int
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind)
    args = parser.parse_args(argv)
    changed = {n: getattr(args, n) for n in sizes if getattr(args, n) is not None}
    switches = {n: True for n in model.switches if getattr(args, n)}
    config = {
        "platform": args.platform,
        "device_id": args.device,
        "enable_profiling": args.enable_profiling,
    }
    result = model.run(args.variant, runtime_cfg=config, switches=switches, **changed)
    print(result)
    return 0 if result.passed else 1
