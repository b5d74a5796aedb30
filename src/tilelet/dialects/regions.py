"""Valid regions as part of types, as in the parser of August 2026.

A region holds the extents of a value's valid part, one per axis, or None if all of it is valid. Two
regions are equal if they are computed alike from variables of the same names.
"""

from __future__ import annotations

import linecache
import re
from typing import Any

from tilelet.diag.core import Loc
from tilelet.ir import structure
from tilelet.ir.core import Arg, Block, Function, Op, Program, Value
from tilelet.ir.spec import Trait
from tilelet.ir.types import ScalarType, TensorType, TileType
from tilelet.ir.views import CallView, ForView, yielded_values

Region = tuple[object, ...]


class ValueRegions:
    """The known regions of the values of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._makers: dict[Value, Op] = {}
        self._found: dict[Value, Region | None] = {}
        # The arguments for the parameters of kernels created by a pass.
        self._outer: dict[Value, Arg] = {}
        self._function(program.main)
        for function in program.functions.values():
            if function.params and function.params[0] not in self._found:
                self._function(function)

    def of(self, value: Value) -> Region | None:
        return self._found.get(value)

    def variables(self, value: Value) -> frozenset[Value]:
        """Return the variables that a scalar is computed from, or itself if it has a name."""
        op = self._maker(value)
        if op is None:
            return frozenset({value})
        return frozenset(v for operand in op.operands for v in self.variables(operand))

    def _function(self, function: Function, given: tuple[Arg, ...] = ()) -> None:
        for param in function.params:
            self._found[param] = None
        for param, value in zip(function.params, given, strict=False):
            self._found[param] = self._region_of(value)
            self._outer[param] = value
        self._block(function.body)

    def _block(self, block: Block) -> None:
        for op in block.ops:
            self._makers.update(dict.fromkeys(op.results, op))
            carried: tuple[Arg, ...] = ()
            if op.name == structure.FOR.name:
                loop = ForView(op)
                carried = loop.init
                for inner, value in zip(loop.carried, loop.init, strict=True):
                    self._found[inner] = self._region_of(value)
            elif op.name == structure.CALL.name:
                call = CallView(op)
                callee = self._program.functions.get(call.callee)
                if callee is not None:
                    self._function(callee, call.operands)
            for inner_block in op.blocks:
                self._block(inner_block)
                carried = carried or yielded_values(inner_block)
            if op.blocks:
                for result, value in zip(op.results, carried, strict=False):
                    self._found[result] = self._region_of(value)
            else:
                self._found.update(dict.fromkeys(op.results, self._result(op)))

    def _region_of(self, value: Arg) -> Region | None:
        return self._found.get(value) if isinstance(value, Value) else None

    def _result(self, op: Op) -> Region | None:
        spec, shaped = op.spec, (TensorType, TileType)
        operands = [v for v in op.operands if isinstance(v.type, shaped)]
        if not op.results or not isinstance(op.results[0].type, shaped) or spec.writes:
            return None
        shape = tuple(op.results[0].type.shape)
        first = self._found.get(operands[0]) if operands else None
        if "set_validshape" in spec.name:
            stated: Region = tuple(self._key(op.args[name]) for name in ("rows", "cols"))
            return stated if stated != shape[-2:] else None
        valid = op.args.get("valid_shape")
        if isinstance(valid, tuple):
            said = tuple(self._key(extent) for extent in _kept_entries(op, valid))
            return said if said != shape else first and self._window(op, first, shape)
        if spec.name == "slice":
            return first and self._window(op, first, shape)
        if first is not None and spec.reduces is not None:
            axis = len(first) + spec.reduces
            rest = tuple(1 if i == axis else extent for i, extent in enumerate(first))
            return rest if rest != shape else None
        if Trait.KEEPS_VALID not in spec.traits or "expand" in spec.name:
            return None
        found = {self._found.get(v) for v in operands}
        return first if len(found) == 1 else None

    def _window(self, op: Op, region: Region, shape: Region) -> Region | None:
        """Return the region that a window without an explicit extent inherits."""
        source, offset = op.operands[0].type, op.args.get("offset")
        if not isinstance(source, (TensorType, TileType)) or not isinstance(offset, tuple):
            return None
        whole_shape, offset = _kept_entries(op, source.shape), _kept_entries(op, offset)
        if len(region) == len(source.shape):
            region = _kept_entries(op, region)
        if not len(region) == len(offset) == len(shape):
            return None
        extents = [
            size
            if known == whole
            else known
            if start == 0 and size == whole
            else ("window", known, self._key(start), size)
            for known, whole, start, size in zip(region, whole_shape, offset, shape, strict=True)
        ]
        return tuple(extents) if tuple(extents) != shape else None

    def _key(self, arg: Arg) -> object:
        """Return the structure of a scalar expression, down to variables."""
        while isinstance(arg, Value) and arg in self._outer:
            arg = self._outer[arg]
        op = self._maker(arg) if isinstance(arg, Value) else None
        if op is None:
            return arg.name if isinstance(arg, Value) else arg
        return op.name, *(self._key(a) for a in op.args.values())

    def _maker(self, value: Value) -> Op | None:
        """Return the op that defines an unnamed scalar."""
        op = self._makers.get(value)
        if op is None or Trait.SCALAR not in op.spec.traits or _is_named(value, op.loc):
            return None
        return op if isinstance(value.type, ScalarType) else None


def _is_named(value: Value, at: Loc) -> bool:
    before = linecache.getline(at.file, at.line).encode()[: at.col].decode()
    return re.search(rf"\b{re.escape(value.name)}\s*(:[^=]*)?=\s*$", before) is not None


def _kept_entries(op: Op, axes: tuple[object, ...]) -> tuple[Any, ...]:
    """Return the entries of the axes that `drop_dims` of a slice leaves."""
    dropped = op.args.get("drop_dims")
    if not isinstance(dropped, tuple):
        return axes
    gone = {int(axis) % len(axes) for axis in dropped if isinstance(axis, int)}
    return tuple(entry for i, entry in enumerate(axes) if i not in gone)
