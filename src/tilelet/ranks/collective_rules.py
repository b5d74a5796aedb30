"""Rules that a collective keeps to, checked once its operands and the number of ranks are known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tilelet import dtypes
from tilelet.diag.catalogue.ranks import BadCollective
from tilelet.ir.core import Op
from tilelet.ops.tasks import LANES
from tilelet.syntax.ranks import ReduceOp
from tilelet.tasks.window import Window

MAX_RING_RANKS = 16

_BY_ROWS = ("pld.tensor.allgather", "pld.tensor.reduce_scatter", "pld.tensor.all_to_all")
_RING_ADVICE = "the ring of the host has a flag for each of its rounds and ranks"


def check_collective(op: Op, args: Mapping[str, Any], ranks: int, *, in_host: bool) -> None:
    """Raise an error if `ranks` ranks cannot run a collective with these operands."""
    target: Window = args.get("target") or args["signal"]
    signal: Window = args["signal"]
    if op.name in _BY_ROWS and target.shape[0] != ranks:
        raise BadCollective(
            op.loc, op.name, f"`{target.name}` has {target.shape[0]} rows for {ranks} ranks"
        )
    if op.name == "pld.tensor.allreduce" and args["mode"] == "ring":
        _check_ring(op, args, target, ranks, in_host)
    elif math.prod(signal.shape) < ranks:
        problem = f"a signal of {list(signal.shape)} cells for {ranks} ranks"
        raise BadCollective(op.loc, op.name, problem, "one cell per rank")
    elif in_host:
        _check_host(op, args, target, ranks)


def _check_ring(op: Op, args: Mapping[str, Any], target: Window, ranks: int, in_host: bool) -> None:
    shape = args["signal"].shape
    wanted = [2 * (ranks - 1) + in_host, ranks]
    size = math.prod(target.shape)
    problem, advice = "", ""
    if len(shape) != 2 or shape[0] < wanted[0] or shape[1] != ranks:
        problem = f"the signal of a ring of {ranks} ranks is {wanted}, not {list(shape)}"
        advice = _RING_ADVICE if in_host else ""
    elif in_host and (args["op"] is not ReduceOp.Sum or target.dtype is not dtypes.FP32):
        problem = f"a ring adds pl.FP32, not {args['op'].name} of {target.dtype}"
        advice = 'use `mode="mesh"`'
    elif in_host and args["core_num"] != 1:
        problem, advice = "a ring uses one core", 'use `mode="mesh"`'
    elif in_host and size % ranks:
        problem = f"{size} elements of `{target.name}` do not divide among {ranks} ranks"
    elif in_host and ranks > MAX_RING_RANKS:
        problem = f"a ring has at most {MAX_RING_RANKS} ranks, not {ranks}"
    if problem:
        raise BadCollective(op.loc, op.name, problem, advice)


def _check_host(op: Op, args: Mapping[str, Any], target: Window, ranks: int) -> None:
    shape, problem, advice = args["signal"].shape, "", ""
    if op.name == "pld.tensor.allreduce":
        cores = args["core_num"]
        if cores > LANES:
            problem = f"`core_num` is {cores}, and a chip has {LANES} vector cores"
        elif shape[0] < ranks or (shape[1] if len(shape) == 2 else 1) < cores or len(shape) > 2:
            problem = f"the signal is [{ranks}, {cores}] or larger, not {list(shape)}"
            advice = "or leave it out"
    elif op.name == "pld.tensor.all_to_all_v":
        if shape[0] != ranks:
            problem = f"a signal of {list(shape)} cells for {ranks} ranks"
    elif len(shape) != 1:
        problem = f"in the host function the signal is [{ranks}], not {list(shape)}"
        advice = "give the view of the signal one axis"
    data = op.name not in ("pld.tensor.allreduce", "pld.tensor.barrier")
    if data and target.dtype is not dtypes.FP32:
        problem = f"in the host function its data is pl.FP32, not {target.dtype}"
        advice = "call it in a kernel"
    if problem:
        raise BadCollective(op.loc, op.name, problem, advice)
