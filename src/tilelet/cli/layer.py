"""`tilelet layer`: run one layer of a checkpoint at full size, and compare it with its golden."""

from __future__ import annotations

import json

from tilelet.cli.commands.models import LayerCommand
from tilelet.diag.json_types import JsonObject
from tilelet.diag.text import plural
from tilelet.models.qwen3.one_layer import LayerInput, LayerResult, run_layer, saving_place
from tilelet.runtime.data.arrays import dtype_of
from tilelet.scripts import exit_codes


def layer_command(found: LayerCommand) -> int:
    """Run the layer; return 0 if it matches its golden, else 1."""
    if found.save:
        saving_place(found.save)  # before anything slow
    given = LayerInput(found.positions, found.capture, found.tokens, found.seed)
    result = run_layer(
        found.model,
        found.layer,
        given,
        dtype=dtype_of(found.dtype) if found.dtype else None,
        int8=found.int8,
        engine=found.engine,
    )
    if found.save:
        result.save(found.save)
    if found.format == "json":
        print(json.dumps(_data(result), indent=2))
    else:
        print(_text(result, given))
    return exit_codes.of_findings(not result.passed)


def _text(result: LayerResult, given: LayerInput) -> str:
    rows = plural(len(result.states), "position")
    before = f"captured after {plural(result.layer, 'layer')}" if given.capture else "random"
    lines = [f"layer {result.layer} ({result.kind}), {result.dtype.name}, {rows}, {before}"]
    for check in result.checks:
        verdict = "PASS" if check.passed else "FAIL"
        ties = f"; {plural(check.near_ties, 'near-tie')} left out" if check.near_ties else ""
        lines.append(
            f"  {check.name:<8} {verdict}  {check.error:.2e} of what the layer adds, "
            f"rounding explains {check.bound:.2e}{ties}"
        )
    if result.int8_error is not None:
        lines.append(f"  INT8 is {result.int8_error:.2e} away from the weights as they are stored")
    return "\n".join(lines)


def _data(result: LayerResult) -> JsonObject:
    return {
        "layer": result.layer,
        "kind": result.kind,
        "dtype": result.dtype.name,
        "positions": len(result.states),
        "passed": result.passed,
        "checks": [
            {
                "name": check.name,
                "error": check.error,
                "bound": check.bound,
                "near_ties": check.near_ties,
                "passed": check.passed,
            }
            for check in result.checks
        ],
        "int8_error": result.int8_error,
    }
