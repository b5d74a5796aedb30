"""Propagation of valid regions through ops: the rules for `OpSpec.valid`.

A rule has the type `ir.spec.ValidRule`. Regions are boxes at the origin, given by their extents.
Tiles are zero outside their region, and every op preserves that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilelet.ir.faults import RegionFault, ValidTooLargeFault
from tilelet.ir.spec import Shape, Valid, ValidRule

Operands = Mapping[str, tuple[Shape, Valid]]
Args = Mapping[str, Any]


def full(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    """The whole result is valid."""
    return result_shape


def kept(param: str) -> ValidRule:
    """The result has the region of an operand of the same shape."""

    def rule(operands: Operands, result_shape: Shape, args: Args) -> Valid:
        return operands[param][1]

    return rule


def broadcast_region(shape: Shape, valid: Valid, result_shape: Shape) -> Valid:
    """Return the region of an operand after broadcasting to `result_shape`."""
    return tuple(
        v if extent == wanted else (wanted if v else 0)
        for extent, v, wanted in zip(shape, valid, result_shape)
    )


def meet(*params: str) -> ValidRule:
    """The result has the intersection of the (broadcast) regions of the tiles in `params`."""

    def rule(operands: Operands, result_shape: Shape, args: Args) -> Valid:
        regions = [broadcast_region(*operands[p], result_shape) for p in params if p in operands]
        return tuple(map(min, zip(result_shape, *regions)))

    return rule


def join(op: str, first: str, second: str) -> ValidRule:
    """The result has the union of two regions, one of which must contain the other."""

    def rule(operands: Operands, result_shape: Shape, args: Args) -> Valid:
        a, b = operands[first][1], operands[second][1]
        larger = tuple(map(max, a, b))
        if larger not in (a, b):
            raise RegionFault(op, a, result_shape)
        return larger

    return rule


def reduced(op: str, axis: int) -> ValidRule:
    """The result has `x`'s region with `axis` (negative) reduced to 1."""

    def rule(operands: Operands, result_shape: Shape, args: Args) -> Valid:
        return reduce_axis(op, *operands["x"], axis)

    return rule


def reduce_axis(op: str, shape: Shape, valid: Valid, axis: int) -> Valid:
    """Reduce one axis of `valid` to 1; an empty axis has no sum or maximum."""
    result = tuple(1 if i == axis % len(valid) else v for i, v in enumerate(valid))
    if valid[axis] == 0 and 0 not in result:
        raise RegionFault(op, valid, shape)
    return result


def product(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    """Matrix product: rows of `lhs`, columns of `rhs`. Batch axes must be fully valid."""
    for param in ("lhs", "rhs"):
        shape, region = operands[param]
        if region[:-2] != shape[:-2]:
            raise RegionFault("matmul", region, shape)
    lhs, rhs = operands["lhs"][1], operands["rhs"][1]
    rows = lhs[-1] if args.get("a_trans") else lhs[-2]
    columns = rhs[-2] if args.get("b_trans") else rhs[-1]
    return (*result_shape[:-2], rows, columns)


def accumulated(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    """Product added to `acc`: the intersection, or the product's region if `init_cond` holds."""
    region = product(operands, result_shape, args)
    return region if args.get("init_cond") else tuple(map(min, region, operands["acc"][1]))


def transposed(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    """The result has `x`'s region with two axes swapped."""
    valid = list(operands["x"][1])
    a, b = args["axis1"], args["axis2"]
    valid[a], valid[b] = valid[b], valid[a]
    return tuple(valid)


def reshaped(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    """Return the box of the new shape with the same elements in the same order, if there is one."""
    shape, valid = operands["x"]
    if valid == shape:
        return result_shape
    if 0 in valid:
        return (0,) * len(result_shape)
    # The last valid element in row-major order is the far corner of the box in both shapes.
    inside = np.reshape(np.indices(valid), (len(valid), -1))
    positions = np.ravel_multi_index(tuple(inside), shape)
    corners = np.unravel_index(positions, result_shape)
    region = tuple(int(axis.max()) + 1 for axis in corners)
    if math.prod(region) != math.prod(valid):
        raise RegionFault("reshape", valid, shape)
    return region


def side_by_side(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    """Two tiles joined along columns: there must be no gap between their regions."""
    (a_shape, a), (_, b) = operands["src0"], operands["src1"]
    if 0 in b:
        return a
    if a != (*b[:-1], a_shape[-1]):
        raise RegionFault("concat", a, a_shape)
    return (*a[:-1], a_shape[-1] + b[-1])


def check_region(wanted: Sequence[int], shape: Shape) -> Valid:
    """Check a region given at run time against its shape.

    A negative extent makes an axis empty, as past the end of a context.
    """
    for axis, (v, extent) in enumerate(zip(wanted, shape)):
        if v > extent:
            raise ValidTooLargeFault(axis, v, extent)
    return tuple([max(0, v) for v in wanted])


def window(valid: Valid, offset: Shape, shape: Shape) -> Valid:
    """Return the part of a value's region inside a window."""
    return tuple(max(0, min(v - o, s)) for v, o, s in zip(valid, offset, shape))


def insert_region(shape: Shape, target: Valid, source: Valid, offset: Shape) -> Valid:
    """Return the region of a tile after writing a box into it."""
    if 0 in source:
        return target
    end = tuple(o + v for o, v in zip(offset, source))
    grown = tuple(map(max, target, end))
    # The union is a box if the new part covers the old region's whole cross-section.
    for axis, (old, new) in enumerate(zip(target, grown)):
        if new == old:
            continue
        others = [i for i in range(len(grown)) if i != axis]
        covers = all(offset[i] == 0 and end[i] == grown[i] for i in others)
        if not covers or offset[axis] > old:
            raise RegionFault("assemble", target, shape)
    return grown
