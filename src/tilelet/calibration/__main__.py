"""`python -m tilelet.calibration`: predicted, published, error, leave-one-out error of every row.

With `--step` it also prints the parameter values of one more step of the fit.
"""

from __future__ import annotations

import argparse
import math

from tilelet.calibration.fit import FREE, field_value, fit
from tilelet.calibration.rows import Line, lines, recorded
from tilelet.device import load_machine
from tilelet.models.qwen3.scope3 import build_scope3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tilelet.calibration")
    parser.add_argument("--machine", default="a2a3")
    parser.add_argument("--step", action="store_true", help="print the next step of the fit")
    options = parser.parse_args()
    machine = load_machine(options.machine)
    rows = lines()
    result = fit(machine, rows)
    print(f"machine {machine.name}: modelled against published, {len(FREE)} fitted parameters\n")
    print(f"{'row':24}{'predicted':>12}{'published':>12}{'error':>9}{'left out':>12}{'error':>9}")
    for row, value, left_out in zip(rows, result.predictions, result.left_out):
        print(
            f"{row.name:24}{value:12.2f}{row.published:12.2f}{_error(value, row):>9}"
            f"{left_out:12.2f}{_error(left_out, row):>9}"
        )
    print()
    for what, values in (("error", result.predictions), ("leave-one-out error", result.left_out)):
        errors = [abs(v / row.published - 1) for v, row in zip(values, rows)]
        print(f"mean absolute {what}: {sum(errors) / len(errors):.1%}, worst {max(errors):.1%}")
    by_name = dict(zip((row.name for row in rows), result.predictions))
    ratio = by_name["scope3-before"] / by_name["scope3-after"]
    print(f"scope 3 before / after: {ratio:.2f}x, published {63044.26 / 3284.44:.2f}x")
    for variant, tasks in (("baseline", 33411), ("refactored", 1651)):
        found = recorded(build_scope3, variant)[0].total
        print(f"tasks of scope 3 {variant}: {found}, published {tasks}")
    if options.step:
        print("\nnext step of the fit:")
        for (what, names), change in zip(FREE.items(), result.step):
            for name in names:
                now = field_value(machine, name)
                print(f"  {what:26}{name:36}{now:10.3f} -> {now * math.exp(change):10.3f}")
    return 0


def _error(value: float, row: Line) -> str:
    return f"{value / row.published - 1:+.1%}"


if __name__ == "__main__":
    raise SystemExit(main())
