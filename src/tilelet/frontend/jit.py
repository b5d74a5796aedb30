"""`@pl.jit` and its variants: functions specialized by the arguments of a call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tilelet import dtypes
from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.ops import DuplicateArgument, UnknownKeyword, WrongArity
from tilelet.diag.catalogue.python import BadDecorator
from tilelet.diag.catalogue.unsupported import UnsupportedLevel
from tilelet.diag.core import Loc
from tilelet.frontend import annotations
from tilelet.frontend.annotations import KernelParameter
from tilelet.frontend.captures import CapturedNames
from tilelet.frontend.functions import KernelFunction, Style, frame_names, here, is_plain
from tilelet.frontend.kernels import names_ranks
from tilelet.frontend.module import Constant, ModuleBuilder, SourceOrigin, as_entry
from tilelet.ir.core import FunctionKind, Program, scalar_dtype
from tilelet.ir.spec import External
from tilelet.ir.types import ScalarType, SymDim, TensorType, Type
from tilelet.syntax.enums import Level, SplitMode

_MAX_VARIANTS = 8


@dataclass
class _Variant:
    """A function compiled with certain values of its outside names."""

    captures: CapturedNames
    parameters: list[KernelParameter]
    programs: dict[tuple[object, ...], Program] = field(
        default_factory=dict[tuple[object, ...], Program]
    )


class JitRunner(Protocol):
    """The runner of `@pl.jit` functions; the runtime, a layer above the frontend, implements it."""

    def call(self, jit_fn: object, args: Sequence[object], config: Any = None) -> Any: ...

    def compile(self, jit_fn: object, args: Sequence[object], config: Any = None) -> Any: ...

    def lower(self, jit_fn: object, args: Sequence[object]) -> Program: ...


_find_runner: Callable[[], JitRunner] | None = None


def run_by(find: Callable[[], JitRunner]) -> None:
    """Let `find` return the runner of `@pl.jit` functions when the first one is called."""
    global _find_runner  # noqa: PLW0603 - there is one runtime in a process
    _find_runner = find
    _runner.cache_clear()


@functools.cache
def _runner() -> JitRunner:
    assert _find_runner is not None, "tilelet.language has not been imported"
    return _find_runner()


class JitFunction:
    """A kernel program that compiles itself for the arguments it is called with.

    `f(*tensors, config=...)` compiles (once per signature), runs, and writes the outputs in place.
    `f.compile(*tensors)` gives the compiled program, `f.lower(*tensors)` its IR after all passes;
    both without arguments, if the signature states all shapes and types.
    """

    def __init__(self, kernel_function: KernelFunction) -> None:
        self.kernel_function = kernel_function
        self._variants: list[_Variant] = []
        self.warm_calls: object = None  # of the runtime: checked calls that can be repeated at once
        self.compiled: dict[object, object] = {}  # of the runtime: compiled programs by their key
        self._has_defaults = bool(kernel_function.defaults)
        if kernel_function.python is not None:
            functools.update_wrapper(self, kernel_function.python)

    def __repr__(self) -> str:
        return repr(self.kernel_function)

    @property
    def name(self) -> str:
        return self.kernel_function.name

    @property
    def _func(self) -> object:
        """The plain function, for scripts that pass it to another decorator."""
        return self.kernel_function.python

    @property
    def _cache(self) -> dict[object, object]:
        """The compiled programs, which tests inspect and clear."""
        return self.compiled

    def _param_names(self) -> list[str]:
        """The parameter names, by which scripts order their specs."""
        return [p.name for p in self.parameters]

    @property
    def parameters(self) -> list[KernelParameter]:
        return self.variant().parameters

    def variant(self) -> _Variant:
        """Return the variant for the present values of the function's outside names."""
        for found in self._variants:
            if found.captures.are_current():
                return found
        captures = CapturedNames.of(self.kernel_function)
        made = _Variant(captures, annotations.parameters(self.kernel_function))
        self._variants = [*self._variants[-_MAX_VARIANTS + 1 :], made]
        return made

    def specialize(self, *args: object) -> Program:
        """Return the program for these arguments; without any, for the declared shapes."""
        variant = self.variant()
        parameters = variant.parameters
        if not args and all(p.type is not None or p.default is not None for p in parameters):
            args = tuple([p.default if p.type is None else p.type for p in parameters])
        if len(args) != len(parameters):
            names = ", ".join(p.name for p in parameters)
            where = self.kernel_function.loc()
            raise WrongArity(where, self.name, len(args), len(parameters), f"{self.name}({names})")
        found_types: list[Type] = []
        constants: dict[str, Constant] = {}
        for p, a in zip(parameters, args, strict=True):
            found = p.type if p.type is not None and a is p.type else _argument_type(p, a)
            found_types.append(found)
            # A plain number for a parameter without a declared type is part of the program text.
            if p.type is None and isinstance(found, ScalarType):
                constants[p.name] = a  # type: ignore[assignment]
        return self._build(variant, tuple(found_types), constants)

    def _build(
        self, variant: _Variant, types_: tuple[Type, ...], constants: dict[str, Constant]
    ) -> Program:
        # Keyed by their text, because 0.0 == -0.0.
        key = (types_, tuple([(name, repr(value)) for name, value in constants.items()]))
        if key not in variant.programs:
            builder = ModuleBuilder(self.name)
            function = self.kernel_function
            origin = SourceOrigin(function, {}, constants)
            built = builder.build(lambda: builder.lower(function, types_, constants).name, origin)
            variant.programs[key] = as_entry(built.main, built)
        return variant.programs[key]

    def __call__(self, *args: object, config: object = None, **named: object) -> Any:
        given = self._ordered_arguments(args, named) if named or self._has_defaults else args
        return _runner().call(self, given, config)

    def compile(self, *args: object, config: object = None, **named: object) -> Any:
        return _runner().compile(self, self._sample_arguments(args, named), config)

    def lower(self, *args: object, **named: object) -> Program:
        return _runner().lower(self, self._sample_arguments(args, named))

    compile_for_test = lower
    """The name that `lower` had."""

    def _sample_arguments(self, args: tuple[object, ...], named: dict[str, object]) -> list[object]:
        """Return the arguments that give shapes and types; none if the signature does."""
        return self._ordered_arguments(args, named) if args or named else []

    def _ordered_arguments(
        self, args: tuple[object, ...], named: dict[str, object]
    ) -> list[object]:
        """Return the arguments of a call in the order of the parameters."""
        names = [p.arg for p in self.kernel_function.parameters]
        given = dict(zip(names, args, strict=False))
        for name, value in named.items():
            if name not in names:
                raise UnknownKeyword(self.kernel_function.loc(), self.name, name, names)
            if name in given:
                raise DuplicateArgument(self.kernel_function.loc(), self.name, name)
            given[name] = value
        given = {**self.kernel_function.defaults, **given}
        return [*(given[n] for n in names if n in given), *args[len(names) :]]


def _argument_type(p: KernelParameter, a: object) -> Type:
    """Return the IR type of an argument: arrays by shape and dtype, numbers as scalars.

    A declared symbolic dimension stays symbolic, so that one program serves all extents.
    """
    if isinstance(p.type, ScalarType):
        return p.type
    if isinstance(p.type, TensorType) and any(isinstance(d, SymDim) for d in p.type.shape):
        return p.type
    dtype = scalar_dtype(a)
    if dtype is not None:
        return ScalarType(dtype)
    shape = tuple(int(d) for d in getattr(a, "shape", ()))
    return TensorType(shape, _dtype_of(a))


_TORCH_DTYPES = {
    "bfloat16": dtypes.BF16,
    "float8_e4m3fn": dtypes.FP8E4M3FN,
    "float8_e5m2": dtypes.FP8E5M2,
    "float8_e8m0fnu": dtypes.FP8E8M0,
}
"""The dtypes of torch that NumPy lacks."""


def _dtype_of(a: object) -> dtypes.DType:
    found = getattr(a, "dtype", None)
    if isinstance(found, dtypes.DType):
        return found
    if type(found).__module__ == "torch":  # also for tensor subclasses
        name = str(found).removeprefix("torch.")
        return _TORCH_DTYPES.get(name) or dtypes.from_numpy(np.dtype(name))
    return dtypes.from_numpy(found)


class ExternFunction(JitFunction):
    """A kernel written outside the language; `reference` and `us` are as in `External`."""

    @property
    def _external(self) -> External:
        assert self.kernel_function.external is not None
        return self.kernel_function.external

    @property
    def reference(self) -> Callable[..., Any] | None:
        return self._external.reference

    @reference.setter
    def reference(self, function: Callable[..., object]) -> None:
        self._external.reference = function

    @property
    def us(self) -> float | None:
        return self._external.us

    @us.setter
    def us(self, time: float) -> None:
        self._external.us = time


class _Jit:
    """`pl.jit`, with its variants as attributes."""

    def __call__(self, func: Callable[..., object] | None = None, **options: object) -> Any:
        """A module-level control program, specialized on first call from its arguments."""
        return _decorate("pl.jit", func, options)

    def incore(
        self, func: Callable[..., object] | None = None, *, level: object = None, **options: object
    ) -> Any:
        """A kernel body: each call from a `@pl.jit` function is one task."""
        options["level"] = level
        return _decorate("pl.jit.incore", func, options)

    def aic(self, func: Callable[..., object] | None = None, **options: object) -> Any:
        """The cube half of a kernel for both kinds of core, which a `group` calls."""
        return _decorate("pl.jit.aic", func, options)

    def aiv(self, func: Callable[..., object] | None = None, **options: object) -> Any:
        """The vector half of such a kernel."""
        return _decorate("pl.jit.aiv", func, options)

    def group(
        self,
        func: Callable[..., object] | None = None,
        *,
        split: SplitMode | None = None,
        **options: object,
    ) -> Any:
        """A kernel of two halves, which it calls; `split`: two vector cores share theirs."""
        options["split"] = split
        return _decorate("pl.jit.group", func, options)

    def inline(self, func: Callable[..., object] | None = None, **options: object) -> Any:
        """A helper spliced into its callers; parameters are aliases of the arguments."""
        return _decorate("pl.jit.inline", func, options)

    def opaque(self, func: Callable[..., object] | None = None, **options: object) -> Any:
        """A control program that may also hold compute ops outside scopes."""
        return _decorate("pl.jit.opaque", func, options)

    def host(self, func: Callable[..., object] | None = None, **options: object) -> Any:
        """A program of the host, which calls `@pl.jit` functions.

        One that names ranks (`device=`, `pld.*`) dispatches them; any other runs on one chip.
        """
        return _decorate("pl.jit.host", func, options)

    def graph(self, func: Callable[..., object] | None = None, **options: object) -> Any:
        """A part of a control program whose tasks the device takes as one graph: `pl.graph`."""
        return _decorate("pl.jit.graph", func, options)

    def extern(
        self,
        func: Callable[..., object] | None = None,
        *,
        core_type: str = "aiv",
        **options: object,
    ) -> Any:
        """A kernel whose code is elsewhere: the function is its signature.

        Assign `f.reference`, a function of NumPy arrays, to run it, and `f.us` to state its time.
        """
        options["core_type"] = core_type
        return _decorate("pl.jit.extern", func, options)


jit = _Jit()

# `auto_scope` only tells the device runtime where to place memory scopes: no result changes.
_OPTIONS = ("strict_ssa", "auto_scope", "level")
# The device's compiler finds the code of an external kernel by its options.
_OWN_OPTIONS = {
    "pl.jit.group": (*_OPTIONS, "split"),
    "pl.jit.extern": (
        "core_type", "source", "aic_source", "aiv_source", "dual_aiv_dispatch", "include_dirs",
    ),
}  # fmt: skip
_CORE_TYPES = ("aic", "aiv", "mixed")
_CORES = {
    "pl.jit.aic": FunctionKind.AIC,
    "pl.jit.aiv": FunctionKind.AIV,
    "pl.jit.group": FunctionKind.Group,
}
KINDS = {
    "pl.jit": FunctionKind.Orchestration,
    "pl.jit.incore": FunctionKind.InCore,
    **dict.fromkeys(_CORES, FunctionKind.InCore),
    "pl.jit.inline": FunctionKind.Inline,
    "pl.jit.opaque": FunctionKind.Opaque,
    "pl.jit.host": FunctionKind.Host,
    "pl.jit.graph": FunctionKind.Orchestration,
}
"""The kind of function that each decorator makes; `pl.jit.extern` has no kernel text."""


def _decorate(name: str, python: Callable[..., object] | None, options: dict[str, object]) -> Any:
    visible, where = frame_names(2), here(2)
    _check_options(name, options, where)

    def make(target: Callable[..., object]) -> Any:
        if not is_plain(target):
            raise BadDecorator(where, name, "it decorates plain functions")
        # A module-level function uses the names of its module, wherever it is decorated.
        names = visible if "<locals>" in target.__qualname__ else {}
        kind = KINDS.get(name, FunctionKind.InCore)
        if kind is FunctionKind.Host and not names_ranks(target):
            kind = FunctionKind.Orchestration  # without ranks, it runs on one chip
        return _make(name, target.__name__, kind, options, python=target, frame_names=names)

    return make if python is None else make(python)


def of_text(
    decorator: str, name: str, options: Mapping[str, object], where: Loc, **more: object
) -> KernelFunction | JitFunction:
    """Return what a decorator makes of a function whose text is given and never executed."""
    _check_options(decorator, options, where)
    return _make(decorator, name, KINDS[decorator], options, **more)


def _check_options(name: str, options: Mapping[str, object], where: Loc) -> None:
    if name == "pl.jit.extern" and options["core_type"] not in _CORE_TYPES:
        raise BadDecorator(where, name, f"`core_type` is one of {', '.join(_CORE_TYPES)}")
    for option in options:
        if option not in _OWN_OPTIONS.get(name, _OPTIONS):
            raise BadDecorator(where, name, f"it has no option `{option}`")
    level = options.get("level")
    if isinstance(level, Level) and level is not Level.CORE_GROUP:
        raise UnsupportedLevel(where, f"pl.Level.{level.name}")


def _make(
    decorator: str, name: str, kind: FunctionKind, options: Mapping[str, object], **more: Any
) -> KernelFunction | JitFunction:
    is_extern = "core_type" in options
    style = Style(
        drops_axis=True,
        guards_outputs=kind is not FunctionKind.Inline and not is_extern,
        implied=kind is FunctionKind.Opaque,
        strict_ssa=bool(options.get("strict_ssa", False)),
    )
    split = options.get("split")
    function = KernelFunction(
        name,
        kind,
        style,
        generic=True,
        is_graph=decorator == "pl.jit.graph",
        core=_CORES.get(decorator),
        split=split.name if isinstance(split, SplitMode) else None,
        external=External(str(options["core_type"])) if is_extern else None,
        **more,
    )
    if is_extern:
        return ExternFunction(function)
    return function if kind is FunctionKind.Inline else JitFunction(function)
