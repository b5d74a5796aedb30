"""Normalize the calls of `run` in scripts of all eras."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.harness import BadConfig, BadRunCall
from tilelet.frontend.decorators import with_outputs
from tilelet.ir.core import Program
from tilelet.ir.programs import Programs
from tilelet.runtime.config import RunConfig, as_config
from tilelet.runtime.data.specs import ScalarSpec, Spec, TensorSpec
from tilelet.runtime.validation.golden import Golden, needs_params

TOLERANCE = 1e-5  # default absolute and relative tolerance


@dataclass
class RunCase:
    """One program with its arguments and expected results."""

    program: Any  # an `ir.Program` or a `@pl.jit` function
    specs: list[Spec]
    golden: Golden | None = None
    golden_data: Path | None = None
    config: RunConfig = field(default_factory=RunConfig)
    rtol: float = TOLERANCE
    atol: float = TOLERANCE
    compare_fn: Mapping[str, Callable[..., Any]] | Callable[..., Any] = field(
        default_factory=dict[str, Callable[..., Any]]
    )
    save_data: bool = False
    # The oldest form: outputs start as zeros regardless of `init_value`, with terse output.
    is_seed: bool = False

    @property
    def name(self) -> str:
        return getattr(self.program, "name", None) or getattr(self.program, "__name__", "program")

    @property
    def use_torch(self) -> bool:
        """Whether goldens and comparators get torch tensors: when the specs use torch dtypes."""
        return any(spec.wants_torch for spec in self.specs)


def is_spec_list(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(v, TensorSpec | ScalarSpec) for v in cast("Sequence[object]", value)
    )


def case_of(program: Any, args: Sequence[Any], named: Mapping[str, Any]) -> RunCase:
    """Return the case that a call `run(program, *args, **named)` describes."""
    options = dict(named)
    _place_positional(args, options)
    specs = _one_of(options, "specs", "tensor_specs")
    if specs is None or not is_spec_list(specs):
        raise BadRunCall("there is no list of specs")
    is_seed = "tensor_specs" in options or "golden" in options
    if "golden_fn" in options and "golden_fn" not in named:
        is_seed = is_seed or needs_params(options["golden_fn"])
    golden = _one_of(options, "golden", "golden_fn")
    if golden is not None and not callable(golden):
        raise BadRunCall(f"the golden is a `{type(golden).__name__}`, not a function")
    if isinstance(program, Programs):
        program = program.with_parameters({spec.name for spec in specs})
    if isinstance(program, Program):
        program = with_outputs(program, _unclaimed_outputs(program, specs))
    config = _config(options)
    data = options.get("golden_data")
    return RunCase(
        program=program,
        specs=list(specs),
        golden=golden,
        golden_data=Path(data) if data else None,
        config=config,
        rtol=_tolerance("rtol", options.get("rtol", config.rtol)),
        atol=_tolerance("atol", options.get("atol", config.atol)),
        compare_fn=options.get("compare_fn") or config.compare_fn or {},
        save_data=bool(options.get("save_data", False)),
        is_seed=is_seed,
    )


def _unclaimed_outputs(program: Program, specs: Sequence[Spec]) -> list[str]:
    """Return specs of outputs that are not parameters, if every parameter has its own spec."""
    names = {p.name for p in program.main.params}
    rest = [spec for spec in specs if spec.name not in names]
    if len(specs) - len(rest) < len(names):
        return []
    return [s.name for s in rest if isinstance(s, TensorSpec) and s.is_output]


def _place_positional(args: Sequence[object], options: dict[str, Any]) -> None:
    """Name positional arguments by type, because their order differs between eras."""
    for arg in args:
        if arg is None:
            continue
        if isinstance(arg, RunConfig):
            name = "config"
        elif is_spec_list(arg):
            name = "specs"
        elif callable(arg):
            name = "golden_fn"
        elif isinstance(arg, str | Path):
            name = "golden_data"
        else:
            raise BadRunCall(f"unexpected argument of type `{type(arg).__name__}`")
        if name in options:
            raise BadRunCall(f"`{name}` is given twice")
        options[name] = arg


def _one_of(options: Mapping[str, object], *names: str) -> Any | None:
    given = [name for name in names if name in options]
    if len(given) > 1:
        raise BadRunCall(f"`{given[0]}` and `{given[1]}` are the same")
    return options[given[0]] if given else None


def _config(options: Mapping[str, Any]) -> RunConfig:
    """Merge all settings into one configuration without changing the caller's object."""
    config = as_config(options.get("config")) or RunConfig()
    config = config.with_settings(options.get("compile_cfg"))
    config = config.with_settings(options.get("runtime_cfg"))
    if options.get("compile_only"):
        config = config.with_settings({"compile_only": True})
    if options.get("runtime_dir"):
        folder = Path(options["runtime_dir"])
        if not folder.is_dir():
            raise BadConfig("runtime_dir", folder, "an existing directory")
        config = config.with_settings({"output_dir": folder})
    return config


def _tolerance(name: str, value: object) -> float:
    if value is None:
        return TOLERANCE
    if not isinstance(value, int | float) or not value >= 0:
        raise BadConfig(name, value, "a number that is not negative")
    return float(value)
