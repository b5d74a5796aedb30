"""A whole script: sizes, kernels, inputs, golden, and a `main` that runs and compares them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from tilelet import language
from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.portability import CannotExport
from tilelet.diag.core import UNKNOWN, Diagnostic
from tilelet.dialects.data import Dialect
from tilelet.dtypes import DType
from tilelet.export.bundle import Bundle
from tilelet.export.constants import literal
from tilelet.export.kernels import KernelText, kernel_text
from tilelet.export.rewrite import TextRewriter
from tilelet.ir.core import Program, walk
from tilelet.runtime.data.arrays import is_array
from tilelet.runtime.data.specs import ScalarSpec, Spec, TensorSpec
from tilelet.runtime.validation.golden import takes_params

# torch names of dtypes that differ from ours.
_TORCH = {
    "FP32": "float32", "FP16": "float16", "BF16": "bfloat16", "BOOL": "bool", "INDEX": "int64",
    "FP8E4M3FN": "float8_e4m3fn", "FP8E5M2": "float8_e5m2",
}  # fmt: skip

_STANDARD = sys.stdlib_module_names

# Names that every script defines.
_OWN = (
    "tensor", "array", "inputs", "golden", "expected_of", "matches", "main", "run", "pl", "torch",
    "RunConfig", "OUTPUTS", "RTOL", "ATOL",
)  # fmt: skip

_HARNESS = '''
def tensor(shape, dtype, values=None):
    """A tensor with these values: none (zeros), a number, an array, or a function that draws it."""
    if callable(values):
        values = values()
    if values is None or isinstance(values, (bool, int, float)):
        return torch.full(shape, values or 0, dtype=dtype)
    return torch.as_tensor(values).to(dtype).reshape(shape).contiguous()


def array(value):
    """A tensor as NumPy has it: BF16 and FP16 as FP32, with the same numbers."""
    return (value.float() if value.dtype in (torch.bfloat16, torch.float16) else value).numpy()


def expected_of(tensors):
    """What must come out: the golden's results, rounded to the dtypes of the outputs."""
    given = {name: GIVEN for name, value in tensors.items()}
    golden(given)
    return {
        name: torch.as_tensor(given[name]).to(tensors[name].dtype).reshape(tensors[name].shape)
        for name in OUTPUTS
    }


def matches(name, actual, expected, before):
    """Whether every element is within the tolerances; says so."""
    a, e = actual.double(), expected.double()
    bad = ~((a - e).abs() <= ATOL + RTOL * e.abs())
    good = bad.numel() - int(bad.sum())
    found = "PASS" if good == bad.numel() else "FAIL"
    if found == "FAIL" and torch.equal(actual, before):
        found = "NOT WRITTEN"
    print(f"  {name}: {found} ({good}/{bad.numel()} elements matched)")
    return not bad.any()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\\n")[0])
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    tensors = inputs()
    expected = expected_of(tensors)
    before = {name: tensors[name].clone() for name in OUTPUTS}
    config = RunConfig(platform=args.platform, device_id=args.device)
    CALL
    passed = [matches(name, tensors[name], expected[name], before[name]) for name in OUTPUTS]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
'''


@dataclass(frozen=True)
class ExportedScript:
    """A script's text, its remaining findings in the dialect, and its program."""

    text: str
    findings: list[Diagnostic]
    program: Program


@dataclass(frozen=True)
class ExportCase:
    """The source of a script: a frontend program and the case that runs it.

    about   the first line of the script
    """

    program: Program
    specs: Sequence[Spec]
    golden: Callable[..., Any] | None
    rtol: float
    atol: float
    about: str


def script_text(case: ExportCase, dialect: Dialect) -> ExportedScript:
    """Return the script in a dialect."""
    for function in case.program.functions.values():
        for op in walk(function.body):
            if op.spec.external is not None:
                raise CannotExport(op.loc, f"the external kernel `{op.name}`")
    kernels = kernel_text(case.program, _OWN, chunks=dialect.has("auto_incore"))
    rewrite = TextRewriter(dialect, language, lambda module: _program(module, kernels))
    head = rewrite("\n".join([*kernels.constants, "", "", *kernels.kernels]))
    bundle = Bundle()
    bundle.reserve([n for n in (*_OWN, kernels.name) if n != "golden"], kernels.values)
    for line in ("import argparse", "import torch"):
        bundle.imports[line] = None
    inputs = _inputs(case, bundle)
    _write_golden(case, bundle)
    call = f"{kernels.name}(*tensors.values(), config=config)"
    if not kernels.is_jit:
        call = f"run({kernels.name}, *tensors.values(), config=config)"
    given = "value.clone()" if _wants_torch(case) else "array(value).copy()"
    harness = _HARNESS.replace("GIVEN", given).replace("CALL", call)
    outputs = [spec.name for spec in case.specs if isinstance(spec, TensorSpec) and spec.is_output]
    tolerances = f"OUTPUTS = {literal(outputs)}\nRTOL, ATOL = {case.rtol!r}, {case.atol!r}\n"
    parts = [
        f'"""{case.about}"""\n\n' + _imports(bundle, kernels),
        head + "\n",
        *_definitions(bundle),
        inputs,
        tolerances,
    ]
    text = "\n\n".join(part.rstrip("\n") + "\n" for part in parts if part) + "\n" + harness
    assert rewrite.read is not None
    return ExportedScript(text, rewrite.remaining, rewrite.read)


def _program(module: ModuleType, kernels: KernelText) -> Program:
    found = getattr(module, kernels.name)
    return found.specialize() if kernels.is_jit else found


def _definitions(bundle: Bundle) -> list[str]:
    """Join functions and groups of constants."""
    parts: list[str] = []
    for lines in bundle.definitions:
        is_constant = len(lines) == 1
        if parts and is_constant and "\ndef " not in f"\n{parts[-1]}":
            parts[-1] += f"\n{lines[0]}"
        else:
            parts.append("\n".join(lines))
    return parts


def _imports(bundle: Bundle, kernels: KernelText) -> str:
    bundle.imports["import pypto.language as pl"] = None
    names = "RunConfig" if kernels.is_jit else "RunConfig, run"
    bundle.imports[f"from pypto.runtime import {names}"] = None
    own = [line for line in bundle.imports if line.split()[1].partition(".")[0] in _STANDARD]
    others = [line for line in bundle.imports if line not in own]
    return "\n".join([*sorted(own, key=_order), "", *sorted(others, key=_order)])


def _order(line: str) -> tuple[str, str]:
    """Sort imports as isort does."""
    return "a" if line.startswith("import") else "b", line


def _wants_torch(case: ExportCase) -> bool:
    return any(spec.wants_torch for spec in case.specs)


def torch_name(dtype: DType) -> str:
    """Return the torch name of a dtype."""
    return f"torch.{_TORCH.get(dtype.name.upper(), dtype.name.lower())}"


def _inputs(case: ExportCase, bundle: Bundle) -> str:
    lines = ["def inputs():", '    """All arguments, in the order of the parameters."""']
    if any(_is_random(spec) for spec in case.specs):
        lines.append("    torch.manual_seed(0)")
    lines.append("    return {")
    lines += [f'        "{spec.name}": {_argument(spec, bundle)},' for spec in case.specs]
    return "\n".join([*lines, "    }"]) + "\n"


def _argument(spec: Spec, bundle: Bundle) -> str:
    if isinstance(spec, ScalarSpec):
        return f"torch.tensor({spec.number!r}, dtype={torch_name(spec.element)})"
    shape, dtype = literal(list(spec.shape)), torch_name(spec.element)
    if spec.from_checkpoint is not None:
        raise CannotExport(UNKNOWN, f"the values of `{spec.name}`, which are in a checkpoint,")
    value = spec.init_value
    if value is None:
        return f"tensor({shape}, {dtype})"
    if isinstance(value, (bool, int, float)):
        return f"tensor({shape}, {dtype}, {value!r})"
    if _is_random(spec):
        return f"torch.{value.__name__}({shape}).to({dtype})"
    if is_array(value):
        if math.prod(spec.shape) > 4096:
            raise CannotExport(UNKNOWN, f"the values of `{spec.name}`, which are data,")
        return f"tensor({shape}, {dtype}, {value.tolist()!r})"
    name = bundle.function(value, f"{spec.name}_values")
    return f"tensor({shape}, {dtype}, {name})"


def _is_random(spec: Spec) -> bool:
    value = getattr(spec, "init_value", None)
    return getattr(value, "__module__", "") in ("torch", None) and getattr(
        value, "__name__", ""
    ) in ("randn", "rand", "zeros", "ones")


def _write_golden(case: ExportCase, bundle: Bundle) -> None:
    """Write the golden under its fixed name, wrapping one of the older form."""
    if case.golden is None:
        raise CannotExport(UNKNOWN, "a run without a golden, which has nothing to compare with,")
    if not takes_params(case.golden):
        bundle.function(case.golden, "golden")
        return
    name = bundle.function(case.golden, "golden_with_params")
    bundle.definitions.append(["def golden(tensors):", f"    {name}(tensors, {{}})"])
