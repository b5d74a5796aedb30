"""`tilelet demo`: the Qwen3-32B decode layer, as first written and optimised, side by side."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from tilelet.device.report.profile import Profile
from tilelet.diag.tables import Table, byte_text, number, show, times
from tilelet.models.measure import MeasuredRun, MeasuredVariant, ProgramData
from tilelet.models.qwen3 import decode
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.runtime import session
from tilelet.runtime.session import Session
from tilelet.scripts import exit_codes

VARIANTS = ("baseline", "optimised")
QUICK = {"hidden": 2048, "kv_heads": 2, "intermediate": 2560, "max_seq": 512}


def demo_command(platform: str, is_quick: bool) -> int:
    """Run both variants; return 0 if both agree with the golden, else 1."""
    # The baseline's retired spellings are intended: omit the notes about them.
    with session.active(Session(quiet_diagnostics=True)):
        return _demo(platform, QUICK if is_quick else {})


def _demo(platform: str, sizes: dict[str, int]) -> int:
    from tilelet.device.machine.description import load_machine
    from tilelet.native.toolchain import find_compiler

    machine = load_machine(platform).name
    find_compiler()  # before anything slow
    shape = DecodeShape(**sizes)
    name = "A small decode layer" if sizes else "Qwen3-32B decode layer"
    print(
        f"{name}: batch {shape.batch}, hidden {shape.hidden}, {shape.heads} query and "
        f"{shape.kv_heads} K/V heads, MLP {shape.intermediate}, context up to {shape.max_seq}"
    )
    with _stage("weights and caches, random"):
        data = ProgramData(decode.MODEL, sizes)
    with _stage(f"golden of {byte_text(data.nbytes)}, in double"):
        data.solve()
    rows: list[tuple[str, Profile, MeasuredRun]] = []
    for variant in VARIANTS:
        measured = MeasuredVariant(decode.MODEL, variant, sizes)
        with _stage(f"{variant}: modelled on {machine}"):
            profile = measured.profile(platform)
        with _stage(f"{variant}: compiled to C, run and compared"):
            run = measured.run(data)
        for judgement in run.judgements:
            matched = judgement.total - judgement.mismatched
            verdict = "PASS" if judgement.ok else "FAIL"
            print(f"    {judgement.name:<8} {verdict}  {matched}/{judgement.total} match")
        rows.append((variant, profile, run))
    print()
    show([_table(rows, machine)])
    for _, _, run in rows:
        for judgement in run.judgements:
            if not judgement.ok:
                print(f"\n{judgement.report}", file=sys.stderr)
    return exit_codes.of_findings(not all(run.passed for _, _, run in rows))


@contextmanager
def _stage(what: str) -> Generator[None]:
    """Print what is being done, and how long it took."""
    print(f"  {what} ... ", end="", flush=True)
    begin = time.perf_counter()
    try:
        yield
    except BaseException:
        print(flush=True)
        raise
    print(f"{time.perf_counter() - begin:.1f} s", flush=True)


def _table(rows: list[tuple[str, Profile, MeasuredRun]], machine: str) -> Table:
    heads = ("variant", "golden", "tasks", "GM bytes", f"modelled us on {machine}", "CPU ms")
    table = Table("", heads, left=2)
    for variant, profile, run in rows:
        table.rows.append(
            (
                variant,
                "PASS" if run.passed else "FAIL",
                f"{profile.tasks:,}",
                byte_text(profile.moved),
                number(profile.total_us, 1),
                number(run.milliseconds, 1),
            )
        )
    (_, before, slow), (_, after, fast) = rows
    table.rows.append(
        (
            "less by",
            "",
            times(before.tasks, after.tasks),
            times(before.moved, after.moved),
            times(before.total_us, after.total_us),
            times(slow.milliseconds, fast.milliseconds),
        )
    )
    return table
