"""A case being run: its compiled program, inputs, expected outputs and comparison."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilelet.analysis.control_reads import parameters_read
from tilelet.diag.catalogue.cautions import ValidationSkipped
from tilelet.diag.catalogue.command import CannotWrite
from tilelet.diag.catalogue.harness import BadDataFile, GoldenDataMissing
from tilelet.diag.core import UserError
from tilelet.dtypes import Argument, Arguments, Array
from tilelet.frontend.decorators import as_stored, can_lower_again, with_extents
from tilelet.ir.core import Program
from tilelet.ir.types import TensorType
from tilelet.runtime.data.array_files import BadFileError, load_array
from tilelet.runtime.data.inputs import MadeOnDemand, draw_seed, initial_array
from tilelet.runtime.data.lent import MIN_LENT_BYTES, LentInputs
from tilelet.runtime.data.specs import ScalarSpec, Spec, TensorSpec
from tilelet.runtime.harness.call_forms import RunCase
from tilelet.runtime.harness.import_state import ImportState
from tilelet.runtime.harness.result import RunResult
from tilelet.runtime.output.console import StageTrace
from tilelet.runtime.programs import jit_call
from tilelet.runtime.programs.binding import (
    EntryParameter,
    jit_parameters,
    match_specs,
    parameters,
    scalars_of,
)
from tilelet.runtime.programs.compiler import CompiledProgram, compile_program
from tilelet.runtime.progress import progress
from tilelet.runtime.session import Session
from tilelet.runtime.validation.golden import (
    Bits,
    Golden,
    Scalar,
    compute_golden,
    unchanged_elements,
)
from tilelet.runtime.validation.golden_cache import GoldenCache
from tilelet.runtime.validation.judge import Judge
from tilelet.tasks.extents import Extents

if TYPE_CHECKING:
    from tilelet.checks.comparison import GoldenComparison
    from tilelet.divergence.case import GoldenCase


class CaseRun:
    """The parts of a case that handlers need, each computed on first use.

    findings  text that checks add to the verdict line
    """

    def __init__(self, case: RunCase, console: StageTrace, result: RunResult, now: Session) -> None:
        self.case = case
        self.console = console
        self.result = result
        self.session = now
        self.directory = result.directory = now.run_directory(case.name, case.config)
        self.findings = ""
        self._seed = draw_seed(now)  # captured now: data may be created after the script has ended
        self._lent = LentInputs(self._made_again)

    def with_program(self, program: object) -> CaseRun:
        """Return the same case for another program: the same specs, seed, golden and comparison."""
        case = dataclasses.replace(self.case, program=program)
        other = CaseRun(case, self.console, RunResult(False, case.name), self.session)
        other._seed = self._seed
        return other

    def golden_on(
        self, tensors: Mapping[str, Array], scalars: Mapping[str, Scalar], golden: Golden
    ) -> dict[str, Array]:
        """Return what a golden computes for arguments given by spec name."""
        sure, maybe = self.outputs()
        named = [self.specs[p] for p in sure]
        return compute_golden(
            golden,
            tensors,
            scalars,
            outputs=[spec.name for spec in named],
            maybe_outputs=[self.specs[p].name for p in maybe],
            fresh=[spec.name for spec in named if _is_fresh(spec, self.case.is_seed)],
            use_torch=self.case.use_torch,
            seed=self._seed,
            now=self.session,
            lent=self._lent,
        )

    def fresh_outputs(self) -> list[str]:
        """Return the parameters that start as zeros, because they are only written."""
        return [n for n, spec in self.specs.items() if _is_fresh(spec, self.case.is_seed)]

    @functools.cached_property
    def written(self) -> tuple[Program, dict[str, Spec]]:
        """The program as it was written, for these arguments, and the spec of each of them."""
        program, extents = self.case.program, Extents(keeps_others=True)
        if isinstance(program, Program):
            shapes = {s.name: s.shape for s in self.case.specs if isinstance(s, TensorSpec)}
            program = as_stored(program, shapes)
            specs = match_specs(parameters(program), self.case.specs, extents)
        else:
            specs = match_specs(jit_parameters(program), self.case.specs, extents)
            program = program.specialize(*(_example(spec) for spec in specs.values()))
        if not extents.others:
            return program, specs
        if not can_lower_again(program):
            raise next(iter(extents.others.values()))
        own = {
            name: spec.shape
            for name, spec in specs.items()
            if isinstance(spec, TensorSpec) and spec.name in extents.others
        }
        return with_extents(program, own), specs

    @contextlib.contextmanager
    def compiling(self) -> Generator[None]:
        """The console stage that compiles the program."""
        with self.console.stage("compile"), progress(f"compiling {self.case.name}"):
            yield

    @functools.cached_property
    def compiled(self) -> CompiledProgram:
        config, now = self.case.config, self.session
        folder = now.dump_folder(self.directory, config)
        return compile_program(self.written[0], folder, config, now=now)

    @functools.cached_property
    def specs(self) -> dict[str, Spec]:
        """The spec of each parameter of the compiled program.

        An undeclared number of a `@pl.jit` function is part of its text, not a parameter.
        """
        return {p.name: self.written[1][p.name] for p in self.compiled.parameters}

    # ---- inputs

    def inputs(self) -> dict[str, Argument]:
        """Return fresh initial data by parameter."""
        return {p.name: self._initial(p) for p in self.compiled.parameters}

    def lent_inputs(self) -> dict[str, Argument]:
        """Return initial data by parameter that nobody may change; large arrays exist once."""
        found: dict[str, Argument] = {}
        owners: dict[str, EntryParameter] = {}
        for param in self.compiled.parameters:
            spec = self.specs[param.name]
            is_lent = (
                isinstance(spec, TensorSpec)
                and spec.nbytes >= MIN_LENT_BYTES
                and not spec.is_output
            )
            if not is_lent or param.is_written:
                found[param.name] = self._initial(param)
                continue
            owners[spec.name] = param
            found[param.name] = array = self._tensor(param, is_lent=True)
            shared = self._lent.sharing(array)
            for name in (*shared, spec.name):
                if shared:  # the script fills one array again and again
                    found[owners[name].name] = array = self._tensor(owners[name])
                self._lent.add(name, array)
        self._lent.restore()
        return found

    def _made_again(self, name: str) -> Array:
        """Return fresh initial data of a spec."""
        (param,) = (p for p in self.compiled.parameters if self.specs[p.name].name == name)
        return self._tensor(param)

    def _tensor(self, param: EntryParameter, is_lent: bool = False) -> Array:
        array = self._initial(param, is_lent)
        assert isinstance(array, np.ndarray)
        return array

    def control_arguments(self) -> tuple[dict[str, Argument], dict[str, Argument]]:
        """Return arrays that the control program reads, and empty ones for other shapes."""
        compiled = self.compiled
        read = parameters_read(compiled.program)
        needed = {
            param.name: self._initial(param)
            for param in compiled.parameters
            if param.name in read or not isinstance(param.type, TensorType)
        }
        shapes: dict[str, Argument] = {
            param.name: _empty_array(param, self.specs[param.name])
            for param in compiled.parameters
            if param.name not in needed and not _has_known_shape(param)
        }
        return needed, shapes

    def inputs_on_demand(self, made: Arguments) -> Arguments:
        """Return all initial data lazily; `made` exists already."""
        makers = {
            param.name: functools.partial(self._initial, param)
            for param in self.compiled.parameters
        }
        return MadeOnDemand(made, makers)

    def _initial(self, param: EntryParameter, is_lent: bool = False) -> Argument:
        """Make the initial value of a parameter, or read it back."""
        spec = self.specs[param.name]
        if isinstance(spec, ScalarSpec):
            return spec.number
        folder, is_seed = self._data_folder("in"), self.case.is_seed
        if folder and not _is_fresh(spec, is_seed):
            array = _load_stored(folder, spec)
        else:
            zero = is_seed and spec.is_output
            with progress(f"making the input {spec.name}"):
                array = initial_array(
                    spec, zero, seed=self._seed, now=self.session, is_lent=is_lent
                )
        assert isinstance(param.type, TensorType)
        return array.view(param.type.dtype.numpy)

    def tensors(self, given: Arguments) -> dict[str, Array]:
        """Return array arguments by parameter, in the element types of their specs."""
        return {
            name: as_spec(self.specs[name], a)
            for name, a in given.items()
            if isinstance(a, np.ndarray)
        }

    def by_spec(self, tensors: Mapping[str, Array]) -> dict[str, Any]:
        """Return the inputs for comparators: tensors and scalars by spec name."""
        named: dict[str, object] = {self.specs[n].name: a for n, a in tensors.items()}
        return named | scalars_of(self.case.specs)

    # ---- expected outputs and the comparison

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return parameters that are always compared, and those compared if the golden writes them.

        A spec marked as output is always compared. Other parameters that the program writes are
        compared if the golden writes them.
        """
        specs = self.specs
        tensors = [p for p in self.compiled.parameters if isinstance(p.type, TensorType)]
        sure = [p.name for p in tensors if getattr(specs[p.name], "is_output", False)]
        maybe = [p.name for p in tensors if p.is_written and p.name not in sure]
        return sure, maybe

    @property
    def judge(self) -> Judge:
        case = self.case
        return Judge(case.rtol, case.atol, case.compare_fn, case.use_torch)

    def expected(
        self, tensors: dict[str, Array], golden: Golden | None, *, cached: bool = True
    ) -> dict[str, Array] | None:
        """Return expected arrays by spec name: stored, cached, or computed by `golden`.

        None if there is nothing to compare with.
        """
        sure, maybe = self.outputs()
        names = tuple(self.specs[p].name for p in (*sure, *maybe))
        folder = self._data_folder("out")
        if folder:
            found = [self.specs[p] for p in (*sure, *maybe)]
            return {
                spec.name: _load_stored(folder, spec)
                for spec in found
                if isinstance(spec, TensorSpec) and (spec.is_output or _is_stored(folder, spec))
            }
        if golden is None:
            return None
        use_torch, scalars = self.case.use_torch, scalars_of(self.case.specs)
        by_spec = {self.specs[name].name: array for name, array in tensors.items()}
        cache, key = GoldenCache(), None
        if self.session.golden_cache and cached:
            key = cache.key(
                golden, by_spec, scalars, names, use_torch, self._seed, self._lent.digests(by_spec)
            )
        stored = cache.load(key) if key else None
        if stored is not None and set(stored) <= set(names):
            self.console.detail("golden unchanged: from the cache")
            return {name: stored[name] for name in names if name in stored}
        with progress("computing the golden"):
            expected = self.golden_on(by_spec, scalars, golden)
        if key:
            cache.store(key, expected)
        return expected

    def comparison(self) -> GoldenComparison:
        """Return how the outputs are compared, for checks of the comparison."""
        from tilelet.checks.comparison import GoldenComparison

        case, judge, inputs = self.case, self.judge, scalars_of(self.case.specs)
        sure, maybe = self.outputs()
        outputs = tuple(self.specs[name].name for name in (*sure, *maybe))
        imports = ImportState()
        return GoldenComparison(
            rtol=case.rtol,
            atol=case.atol,
            golden=case.golden,
            outputs=outputs,
            marked=tuple(sure),
            filled=tuple(n for n, spec in self.specs.items() if not _is_fresh(spec, case.is_seed)),
            own=outputs if callable(case.compare_fn) else tuple(case.compare_fn),
            judge=imports.calling(
                lambda actual, expected: all(
                    j.ok for j in judge.judge_all(actual, expected, inputs)
                )
            ),
            case=imports.calling(lambda: self.examined(self.inputs())),
            ignored=imports.calling(self._ignored_elements),
        )

    def _ignored_elements(self, given: Arguments, unset: Mapping[str, Bits]) -> dict[str, Bits]:
        """Return which elements of some outputs need no value.

        These are the elements that the golden does not write, and those whose value a comparison of
        the script's own does not look at.
        """
        golden, named = self.case.golden, {name: self.specs[name].name for name in unset}
        if golden is None:
            return {}
        tensors = self.tensors({name: given[name] for name in self.specs})
        kept = unchanged_elements(
            golden,
            {self.specs[name].name: array for name, array in tensors.items()},
            scalars_of(self.case.specs),
            [self.specs[name].name for kind in self.outputs() for name in kind],
            list(named.values()),
            self.case.use_torch,
            self._seed,
        )
        ignored = {name: unset[name] & kept[spec] for name, spec in named.items()}
        own = self.case.compare_fn
        compared = [n for n, spec in named.items() if callable(own) or spec in own]
        expected = (self.expected(tensors, golden) if compared else None) or {}
        for name in compared:
            others = unset[name] & ~ignored[name]
            if others.any() and self._passes_without(named[name], others, expected, tensors):
                ignored[name] |= others
        return ignored

    def _passes_without(
        self,
        output: str,
        elements: Bits,
        expected: Mapping[str, Array],
        tensors: Mapping[str, Array],
    ) -> bool:
        """Return whether the comparison passes if some elements of an output are wrong."""
        if output not in expected:
            return False
        wrong = expected[output].copy()
        # Finite, because a comparison that counts large differences misses NaN.
        wrong[elements] = np.where(wrong[elements] == 1, 2, 1).astype(wrong.dtype)
        try:
            found = self.judge.judge_all(
                {**expected, output: wrong}, expected, self.by_spec(tensors)
            )
        except UserError:
            return False
        return all(judgement.ok for judgement in found)

    def examined(self, pristine: Arguments) -> GoldenCase:
        """Return the case with the intermediates of its golden, for `tilelet diverge`."""
        from tilelet.runtime.harness.examined_case import examine_case

        tensors = self.tensors(pristine)
        return examine_case(
            self.compiled,
            self.specs,
            pristine,
            self.case.golden,
            lambda golden, given: self.expected(self.tensors(given), golden, cached=False),
            self.judge,
            self.by_spec(tensors),
        )

    # ---- files and notes

    def save(self, tensors: Mapping[str, Array], expected: Mapping[str, Array] | None) -> None:
        """Save inputs and expected outputs if the script or command requests it."""
        if not (self.case.save_data or self.session.save_data):
            return
        try:
            for name, array in tensors.items():
                self.directory.save_array("in", self.specs[name].name, array)
            for name, array in (expected or {}).items():
                self.directory.save_array("out", name, array)
        except OSError as error:
            raise CannotWrite.of(error) from error
        if self.session.save_data:
            self.session.say_once(f"note: inputs and goldens are in {self.directory.path('data')}")

    def skip_validation(self, why: str) -> None:
        """Pass without a comparison, and print that."""
        self.result.passed = True
        self.console.skipped(why)
        self.session.add_errors([ValidationSkipped(why).diagnostic])

    def _data_folder(self, group: str) -> Path | None:
        data = self.case.golden_data
        if data is None:
            return None
        return data / "data" / group if (data / "data").is_dir() else data / group


def _example(spec: Spec) -> object:
    """Return the example argument that specializes a `@pl.jit` function."""
    if isinstance(spec, ScalarSpec):
        return spec.number
    return jit_call.example(TensorType(spec.shape, spec.element))


def as_spec(spec: Spec, array: Array) -> Array:
    """View an array in the spec's element type; signed arrays may represent unsigned ones."""
    return array.view(spec.element.numpy) if array.dtype != spec.element.numpy else array


def _is_fresh(spec: Spec, is_seed: bool) -> bool:
    """Whether an output starts as zeros instead of data."""
    if not isinstance(spec, TensorSpec) or not spec.is_output:
        return False
    return is_seed or (spec.init_value is None and spec.from_checkpoint is None)


def _has_known_shape(param: EntryParameter) -> bool:
    return isinstance(param.type, TensorType) and all(isinstance(d, int) for d in param.type.shape)


def _empty_array(param: EntryParameter, spec: Spec) -> Array:
    """Return an array for its shape only; its pages are never touched."""
    assert isinstance(param.type, TensorType)
    assert isinstance(spec, TensorSpec)
    return np.zeros(spec.shape, param.type.dtype.numpy)


def _is_stored(folder: Path, spec: TensorSpec) -> bool:
    return any((folder / f"{spec.name}{suffix}").is_file() for suffix in (".npz", ".npy", ".pt"))


def _load_stored(folder: Path, spec: TensorSpec) -> Array:
    """Check that a stored array has the shape and type of its spec."""
    try:
        array = load_array(folder, spec.name)
    except BadFileError as error:
        raise BadDataFile(spec.name, str(error)) from error
    if array is None:
        raise GoldenDataMissing(str(folder), spec.name)
    if array.shape != spec.shape:
        raise BadDataFile(spec.name, f"shape {list(array.shape)}, spec {list(spec.shape)}")
    if array.dtype != spec.element.numpy:
        raise BadDataFile(spec.name, f"dtype {array.dtype}, spec {spec.element}")
    return np.ascontiguousarray(array)
