"""Lower an IR kernel to the device view: pipes, moves between memories, L0 tiling."""

from __future__ import annotations

import dataclasses
import math

from tilelet.analysis.aliases import Aliases
from tilelet.dataclasses import dataclass
from tilelet.device.kernel.cache_lines import LineCache
from tilelet.device.kernel.l2_slices import SliceUse
from tilelet.device.kernel.liveness import with_live_ranges
from tilelet.device.kernel.parts import is_gm, is_tile
from tilelet.device.kernel.storage import CUBE_OPERANDS, Storage, padded_bytes, round_up
from tilelet.device.kernel.view import (
    Bind,
    Branch,
    Carry,
    Core,
    CubeWork,
    DeviceKernel,
    Loop,
    Node,
    Pipe,
    ScalarWork,
    Step,
    TileStorage,
    Transfer,
    VectorWork,
    Work,
)
from tilelet.device.machine.description import Machine
from tilelet.diag.core import Loc
from tilelet.dtypes import INT8, DType
from tilelet.ir.core import Arg, Block, Function, Op, Value
from tilelet.ir.spec import BLOCKS, Cost, Engine, External, Trait
from tilelet.ir.types import Mem, ScalarType, TensorType, TileType
from tilelet.ir.views import yielded_values
from tilelet.tasks.control_points import sites

_CORE_OF = {Mem.Vec: Core.AIV}


def core_of(space: Mem) -> Core:
    return _CORE_OF.get(space, Core.AIC)


@dataclass(frozen=True)
class Ring:
    """Slots of the ring through which the two kinds of core pass tiles, unless a scope states them.

    one_way, both_ways  if tiles pass in one direction, and if they do in both
    """

    one_way: int
    both_ways: int


def lower_kernel(function: Function, machine: Machine, ring: Ring | None = None) -> DeviceKernel:
    """Return the device view of an in-core function.

    The tiles that pass from one kind of core to the other share the slots of `ring`, direction by
    direction; without it each has as many as it can use.
    """
    lowering = _Lowering(function, machine, shares_slots=ring is not None)
    body = lowering.block(function.body)
    if ring is not None:
        both = len(lowering.rings) > 1
        lowering.set_slots(function.slots or (ring.both_ways if both else ring.one_way))
    cores = frozenset(lowering.cores) or frozenset({Core.AIV})
    mixed_and_split = len(cores) > 1 and function.split not in (None, "NONE")
    tiles = with_live_ranges(lowering.tiles, body)
    kernel = DeviceKernel(
        function=function,
        body=body,
        tiles=tiles,
        cores=cores,
        lanes=2 if mixed_and_split else 1,
        split=function.split if mixed_and_split else None,
        steps=lowering.position,
        rings=tuple(lowering.rings.values()),
    )
    return _halve_vector_side(kernel) if mixed_and_split else kernel


class _Lowering:
    def __init__(self, function: Function, machine: Machine, shares_slots: bool) -> None:
        self.machine = machine
        self.shares_slots = shares_slots
        self.rings: dict[Core, int] = {}
        self.function = function
        self.storage = Storage(function)
        self.aliases = Aliases(function.body, {})
        self.params = {p: i for i, p in enumerate(function.params)}
        self.sites = sites(function)
        self.lines = LineCache(
            self.aliases.definition, machine.body.scalar_line, machine.body.scalar_cache
        )
        self.slices = SliceUse(function, self.aliases.definition, machine.gm)
        self.valid: dict[Value, tuple[Arg, ...]] = {}
        self.tiles: list[TileStorage] = []
        self.cores: set[Core] = set()
        self.position = 0
        self.stages = 1
        self._loops = 0
        self._pipelines: tuple[tuple[int, int], ...] = ()
        self._homes: dict[tuple[Value, Mem], int] = {}
        self._copies: list[dict[tuple[Value, Mem], int]] = [{}]
        self._nodes: list[list[Node]] = []
        self._created: list[set[int]] = [set()]

    # Blocks

    def block(self, block: Block) -> tuple[Node, ...]:
        self._nodes.append([])
        self._copies.append({})
        for op in block.ops:
            self.op(op)
        self._copies.pop()
        return tuple(self._nodes.pop())

    def add(self, node: Node) -> None:
        self._nodes[-1].append(node)

    def step(
        self,
        core: Core,
        pipe: Pipe,
        what: str,
        work: Work,
        reads: tuple[int, ...] = (),
        writes: tuple[int, ...] = (),
        loc: Loc | None = None,
    ) -> None:
        if pipe is not Pipe.SCALAR:
            self.cores.add(core)
        place = loc or self.function.loc
        self.add(Step(self.position, core, pipe, what, work, reads, writes, place))
        self.position += 1

    def op(self, op: Op) -> None:
        if op.name == "for":
            self.loop(op)
        elif op.name == "while":
            self.while_loop(op)
        elif op.name == "if":
            self.branch(op)
        elif op.spec.structural or Trait.TILE_VIEW in op.spec.traits or op in self.storage.moved:
            self.note_valid(op)
            return
        elif op.spec.external is not None:
            self.external(op, op.spec.external)
        elif op.spec.engine is Engine.CUBE:
            self.product(op)
        elif Trait.LOAD in op.spec.traits and is_gm(_source(op)):
            self.load(op)
        elif op.spec.writes and is_gm(op.args[op.spec.writes[0]]):
            self.store(op)
        elif op.name == "move":
            self.move(op)
        elif op.spec.engine is Engine.VEC or op.name in ("slice", "assemble"):
            self.vector(op)
        elif op.spec.engine is Engine.SCALAR:
            self.scalar(op)
        elif Trait.CREATION in op.spec.traits and is_tile(op.results[0]):
            self._created[-1].add(self.home(op.results[0]))

    def loop(self, op: Op) -> None:
        kind, stage = op.args["kind"], op.args.get("stage")
        outer, self.stages = self.stages, 1
        pipelines, number = self._pipelines, self._next_loop()
        if kind == "pipeline":
            self.stages = stage if isinstance(stage, int) else 2
            self._pipelines += ((number, _copies(op, self.stages)),)
        first, stages = self.position, self.stages
        params = op.blocks[0].params
        a = op.args
        self.lines.enter(params[0], (a["start"], a["stop"], a["step"]), op.blocks[0])
        self._created.append(set())
        body = self.block(op.blocks[0])
        created = self._created.pop()
        self._created[-1] |= created
        self.lines.leave()
        self.stages, self._pipelines = outer, pipelines
        carries = _carries(op, params[1:], op.blocks[0])
        span = (first, self.position)
        self.add(
            Loop(
                body,
                params[0],
                a["start"],
                a["stop"],
                a["step"],
                stages,
                carries,
                span,
                op.loc,
                self.sites.get(op),
                frozenset(created),
                number,
            )
        )

    def _next_loop(self) -> int:
        self._loops += 1
        return self._loops

    def while_loop(self, op: Op) -> None:
        first = self.position
        body = (*self.block(op.blocks[0]), *self.block(op.blocks[1]))
        carries = _carries(op, op.blocks[1].params, op.blocks[1])
        span = (first, self.position)
        self.add(Loop(body, None, 0, None, 1, 1, carries, span, op.loc, self.sites.get(op)))

    def branch(self, op: Op) -> None:
        outer = self.stages
        if op in self.sites:
            # Buffers alternate by iteration only where every iteration uses them.
            self.stages = 1
        then, orelse = self.block(op.blocks[0]), self.block(op.blocks[1])
        self.stages = outer
        joins = tuple(
            (result, a, b)
            for result, a, b in zip(
                op.results, yielded_values(op.blocks[0]), yielded_values(op.blocks[1])
            )
            if isinstance(result.type, ScalarType)
        )
        self.add(Branch(op.args["cond"], then, orelse, joins, op.loc, self.sites.get(op)))

    # Tiles

    def new_tile(
        self, name: str, shape: tuple[int, ...], dtype: DType, space: Mem, buffers: int, loc: Loc
    ) -> int:
        nbytes = padded_bytes(shape, dtype, space, self.machine.cube.fractal)
        tile = TileStorage(
            len(self.tiles),
            name,
            shape,
            dtype,
            space,
            core_of(space),
            nbytes,
            buffers,
            loc=loc,
            stages=self._pipelines,
        )
        self.tiles.append(tile)
        return tile.id

    def home(self, value: Value) -> int:
        """Return the tile in which the value's class lives."""
        return self.tile_in(value, self.storage.home(value))

    def tile_in(self, value: Value, space: Mem) -> int:
        """Return the class's storage in one memory."""
        key = (self.storage.find(value), space)
        if key not in self._homes:
            whole = self.storage.whole(value)
            t, loc = whole.type, whole.loc
            assert isinstance(t, TileType)
            self._homes[key] = self.new_tile(whole.name, t.shape, t.dtype, space, self.stages, loc)
        return self._homes[key]

    def available(self, value: Value, space: Mem, loc: Loc) -> int:
        """Return the value's tile in `space`, moving it there if it lives elsewhere."""
        home = self.storage.home(value)
        if home is space:
            return self.home(value)
        for copies in self._copies:
            if (value, space) in copies:
                return copies[value, space]
        target = self.tile_in(value, space)
        assert isinstance(value.type, TileType)
        self.exchange(self.home(value), target, value.type, loc)
        self._copies[-1][value, space] = target
        return target

    def exchange(self, source: int, target: int, t: TileType, loc: Loc) -> None:
        """Move a tile between memories: directly if there is a path, else through GM."""
        src, dst = self.tiles[source].space, self.tiles[target].space
        rows, row_bytes = _rows(t.shape, t.dtype)
        direct = _DIRECT.get((src, dst))
        if direct and self.machine.has_path(direct[0]):
            path, pipe = direct
            work = Transfer(path, rows, row_bytes)
            self.step(core_of(src), pipe, "move", work, (source,), (target,), loc)
            return
        out_path, out_pipe = _TO_GM[src]
        slot = self.slot(t, core_of(dst), loc)
        out = Transfer(out_path, rows, row_bytes, writes_gm=True)
        self.step(core_of(src), out_pipe, "push", out, (source,), (slot,), loc)
        back = Transfer(_FROM_GM[dst], rows, row_bytes)
        self.step(core_of(dst), Pipe.MTE2, "pop", back, (slot,), (target,), loc)

    def slot(self, t: TileType, to: Core, loc: Loc) -> int:
        """Return the tile that stands for the slots of an exchange; those of one way share them."""
        made = self.new_tile("exchange", t.shape, t.dtype, Mem.DDR, EXCHANGE_SLOTS, loc)
        if not self.shares_slots:
            return made
        ring = self.rings.setdefault(to, made)
        if ring != made:
            larger = max(self.tiles[ring], self.tiles.pop(), key=lambda tile: tile.nbytes)
            self.tiles[ring] = dataclasses.replace(larger, id=ring)
        return ring

    def set_slots(self, slots: int) -> None:
        for ring in self.rings.values():
            self.tiles[ring] = dataclasses.replace(self.tiles[ring], buffers=slots)

    # Ops

    def load(self, op: Op) -> None:
        result = op.results[0]
        source = _source(op)
        assert isinstance(source, Value)
        assert isinstance(result.type, TileType)
        spaces = {self.storage.home(result)} | (self.storage.wanted(result) & {Mem.Mat, Mem.Vec})
        if self.storage.home(result) in (Mem.Left, Mem.Right, Mem.Acc, Mem.Bias):
            spaces = {Mem.Mat}
        gathered = Trait.BY_INDEX in op.spec.traits
        for space in sorted(spaces, key=lambda s: s.name):
            target = self.tile_in(result, space)
            offset = op.args.get("offset", op.args.get("offsets", ()))
            shape = _loaded_window(op, result.type.shape)
            work = self.gm_window(_FROM_GM[space], source, offset, shape, gathered)
            work = self.shortened(work, _valid_args(op), bool(op.args.get("clamp")), source)
            core = core_of(space)
            if gathered:
                # For each row the scalar unit reads the index and sets up the transfer.
                self.step(core, Pipe.SCALAR, op.name, ScalarWork(2 * work.rows), loc=op.loc)
            self.step(core, Pipe.MTE2, "load", work, (), (target,), op.loc)
            self._copies[-1][result, space] = target
        self.note_valid(op)

    def gm_window(
        self, path: str, tensor: Value, offset: Arg, shape: tuple[int, ...], scattered: bool = False
    ) -> Transfer:
        """Return the transfer of a window of a tensor."""
        assert isinstance(tensor.type, TensorType)
        rows, row_bytes = _rows(shape, tensor.type.dtype)
        roots = self.aliases.roots(tensor)
        root = next(iter(roots)) if len(roots) == 1 else None
        param = self.params.get(root) if root is not None else None
        exact = param is not None and self.aliases.whole(tensor) is root and not scattered
        full = tensor.type.shape
        box = (1,) * (len(full) - len(shape)) + shape if len(shape) < len(full) else shape
        offsets = offset if isinstance(offset, tuple) and len(offset) == len(full) else ()
        whole_rows = len(box) == len(full) and box[-1:] == full[-1:]
        apart = bool(offsets) and not scattered and not whole_rows
        column = offsets[-1] if offsets else 0
        return Transfer(
            path,
            rows,
            row_bytes,
            param,
            offsets if exact else (),
            box if exact and offsets else (),
            writes_gm=path.endswith("_to_gm"),
            dense_if_whole=whole_rows and not scattered,
            shape=shape,
            slices=self.slices.of_rows(tensor.type, row_bytes, column) if apart else 0,
            same_lines=apart and not any(self.slices.differs(o) for o in offsets),
            own_columns=apart and self.slices.differs(column),
        )

    # Valid parts of tiles: only these are loaded and stored

    def shortened(
        self, work: Transfer, valid: tuple[Arg, ...], clamped: bool, tensor: Value
    ) -> Transfer:
        """Return the transfer of the valid part of a box; constant limits are applied now."""
        assert isinstance(tensor.type, TensorType)
        full = tensor.type.shape
        limits = tuple(n for n in full if isinstance(n, int)) if clamped and work.box else ()
        if len(limits) != len(work.shape):
            limits = ()
        if len(valid) != len(work.shape):
            valid = ()
        if valid and not limits and all(isinstance(v, int) for v in valid):
            exact = tuple(v for v in valid if isinstance(v, int))
            cut = work.cut(tuple(map(min, exact, work.shape)))
            box = work.box[: len(work.box) - len(exact)] + exact if work.box else ()
            return dataclasses.replace(cut, shape=exact, box=box, cut_to=())
        return dataclasses.replace(work, extents=valid, limits=limits)

    def note_valid(self, op: Op) -> None:
        """Record which part of the op's result is valid, if set or inherited."""
        if not op.results or not is_tile(op.results[0]):
            return
        valid = _valid_args(op)
        if op.name == "set_validshape":
            valid = (op.args["rows"], op.args["cols"])
        elif not valid and Trait.KEEPS_VALID in op.spec.traits:
            result = op.results[0].type
            for operand in op.operands:
                same = is_tile(operand) and operand.type.shape == result.shape  # type: ignore[union-attr]
                if same and operand in self.valid:
                    valid = self.valid[operand]
                    break
        if valid:
            self.valid[op.results[0]] = valid

    def store(self, op: Op) -> None:
        target = op.args[op.spec.writes[0]]
        assert isinstance(target, Value)
        source = _stored_value(op)
        if op.name == "write" or not is_tile(source):
            work = self.element(target, op)
            self.step(self.scalar_core(), Pipe.SCALAR, op.name, work, loc=op.loc)
            return
        assert isinstance(source, Value)
        assert isinstance(source.type, TileType)
        tile = self.home(source)
        space = self.tiles[tile].space
        path, pipe = _TO_GM[space]
        offset = op.args.get("offset", op.args.get("offsets", ()))
        scattered = Trait.BY_INDEX in op.spec.traits
        work = self.gm_window(path, target, offset, source.type.shape, scattered)
        work = self.shortened(work, self.valid.get(source, ()), False, target)
        reads = tuple(dict.fromkeys([tile, *self.other_tiles(op, source)]))
        self.step(core_of(space), pipe, "store", work, reads, (), op.loc)

    def other_tiles(self, op: Op, main: Value) -> list[int]:
        return [
            self.available(v, Mem.Vec, op.loc) for v in op.operands if is_tile(v) and v is not main
        ]

    def move(self, op: Op) -> None:
        source, result = op.args["tile"], op.results[0]
        assert isinstance(source, Value)
        assert isinstance(result.type, TileType)
        target, tile = self.home(result), self.home(source)
        src, dst = self.tiles[tile].space, self.tiles[target].space
        if (src, dst) in _L0_MOVES:
            work = Transfer(_L0_MOVES[src, dst], *_rows(result.type.shape, result.type.dtype))
            self.step(Core.AIC, Pipe.MTE1, "move", work, (tile,), (target,), op.loc)
        elif src is dst:
            self.step(core_of(src), Pipe.VEC, "move", self.copying(result), (tile,), (target,))
        else:
            self.exchange(tile, target, result.type, op.loc)

    def copying(self, value: Value) -> VectorWork:
        assert isinstance(value.type, TileType)
        rows, row_bytes = _rows(value.type.shape, value.type.dtype)
        return VectorWork(Cost.COPY, rows * row_bytes, rows)

    def vector(self, op: Op) -> None:
        widest = 0
        rows = 1
        # An insertion moves its source; other ops process their largest operand.
        moved = (op.args["source"],) if op.name == "assemble" else (*op.operands, *op.results)
        shaped = [v.type for v in moved if isinstance(v, Value) and isinstance(v.type, TileType)]
        item = max((t.dtype.itemsize for t in shaped), default=4)
        for t in shaped:
            count = math.prod(t.shape)
            if count * item > widest:
                widest, rows = count * item, count // max(1, t.shape[-1])
        self.note_valid(op)
        reads = [self.available(v, Mem.Vec, op.loc) for v in op.operands if is_tile(v)]
        writes = [self.home(r) for r in op.results if is_tile(r)]
        if any(self.tiles[w].space is not Mem.Vec for w in writes):
            # Zeroing an accumulator is a flag of the first product.
            return
        places = tuple(dict.fromkeys(reads)), tuple(writes)
        if op.spec.cost is Cost.SCATTER and Cost.SCATTER.value not in self.machine.vector:
            # There is no vector instruction for it: the scalar unit moves element by element.
            moved = min((math.prod(v.type.shape) for v in op.operands if is_tile(v)), default=1)  # type: ignore[union-attr]
            elements = ScalarWork(2 * moved)
            self.step(Core.AIV, Pipe.SCALAR, op.name, elements, *places, op.loc)
            return
        by_pattern = op.spec.cost is Cost.GATHER and op.args.get("mask_pattern") is not None
        cost = Cost.COMPACT if by_pattern else op.spec.cost
        work = VectorWork(cost, widest, rows)
        self.step(Core.AIV, Pipe.VEC, op.name, work, *places, op.loc)

    def scalar(self, op: Op) -> None:
        if op.name in ("read", "write"):
            source = op.args["x"]
            if is_tile(source):
                tiles = (self.home(source),)
                core, written = (
                    self.tiles[tiles[0]].core,
                    tiles if op.results and is_tile(op.results[0]) else (),
                )
                self.step(core, Pipe.SCALAR, op.name, ScalarWork(1), tiles, written, op.loc)
            else:
                assert isinstance(source, Value)
                work = self.element(source, op)
                self.step(self.scalar_core(), Pipe.SCALAR, "read", work, loc=op.loc)
        self.add(Bind(op))

    def element(self, tensor: Value, op: Op) -> ScalarWork:
        """Return the access to a single element of GM."""
        index = op.args.get("indices", ())
        each = index if isinstance(index, tuple) else (index,)
        return ScalarWork(1, self.lines.misses(tensor, each))

    def scalar_core(self) -> Core:
        return Core.AIC if self.cores == {Core.AIC} else Core.AIV

    def product(self, op: Op) -> None:
        """Lower a matrix product: operands into L0 in pieces that fit twice, then the cube."""
        result = op.results[0]
        lhs, rhs = op.args["lhs"], op.args["rhs"]
        assert isinstance(lhs, Value)
        assert isinstance(rhs, Value)
        assert isinstance(lhs.type, TileType)
        assert isinstance(result.type, TileType)
        acc = self.home(result)
        dtype = lhs.type.dtype
        m, n = result.type.shape[-2:]
        k = math.prod(lhs.type.shape[-2:]) // m
        batch = math.prod(result.type.shape[:-2])
        cube, item = self.machine.cube, dtype.itemsize
        kt = max(1, cube.k_bytes // item)
        m, n, k = round_up(m, cube.fractal), round_up(n, cube.fractal), round_up(k, kt)
        sources = {p: self.operand(op, p) for p in CUBE_OPERANDS if is_tile(op.args.get(p))}
        if "bias" in sources:
            work = Transfer("l1_to_bt", 1, n * 4)
            self.step(Core.AIC, Pipe.MTE1, "move", work, (sources["bias"],), (), op.loc)
        tm, tk, tn = self.l0_tile(m, k, n, item, kt)
        count = batch * -(-m // tm) * -(-k // tk) * -(-n // tn)
        moves: list[tuple[str, int, int, int]] = []
        reads: list[int] = []
        pipelines, number = self._pipelines, self._next_loop()
        if count > 1:
            self._pipelines += ((number, L0_STAGES),)
        for param, space, shape in (("lhs", Mem.Left, (tm, tk)), ("rhs", Mem.Right, (tk, tn))):
            tile = sources[param]
            if self.tiles[tile].space is not space:
                fits_twice = 2 * shape[0] * shape[1] * item <= self.machine.buffers[space].usable
                name = f"{self.tiles[tile].name}_{space.name.lower()}"
                piece = self.new_tile(name, shape, dtype, space, 1 + fits_twice, op.loc)
                moves.append((_L0_MOVES[Mem.Mat, space], shape[0] * shape[1] * item, tile, piece))
                tile = piece
            reads.append(tile)
        self._pipelines = pipelines
        self._nodes.append([])
        first = self.position
        for path, nbytes, source, piece in moves:
            work = Transfer(path, 1, nbytes)
            self.step(Core.AIC, Pipe.MTE1, "move", work, (source,), (piece,), op.loc)
        self.step(
            Core.AIC,
            Pipe.CUBE,
            op.name,
            CubeWork(tm, tk, tn, dtype),
            (*reads, acc) if _accumulates(op) else tuple(reads),
            (acc,),
            op.loc,
        )
        body = tuple(self._nodes.pop())
        if count == 1:
            self._nodes[-1].extend(body)
        else:
            span = (first, self.position)
            self.add(Loop(body, None, 0, count, 1, 1, (), span, op.loc, number=number))

    def external(self, op: Op, external: External) -> None:
        """Lower a kernel written outside the language: its stated time, or its transfers."""
        core = Core.AIV if external.core_type == "aiv" else Core.AIC
        if external.core_type == "mixed":
            self.cores |= {Core.AIC, Core.AIV}
        if external.us is not None:
            start = self.machine.body.start_cycles
            cycles = max(0.0, external.us / self.machine.us(1.0) - start)
            pipe = Pipe.VEC if core is Core.AIV else Pipe.CUBE
            self.step(core, pipe, op.name, ScalarWork(cycles=cycles), loc=op.loc)
            return
        into, out = (Mem.Vec, Mem.Vec) if core is Core.AIV else (Mem.Mat, Mem.Acc)
        # Blocks of one launch share the tensors; a launch of unknown size fills the machine.
        cores, blocks = self.machine.cores, op.args[BLOCKS]
        if not isinstance(blocks, int):
            blocks = cores.vectors if core is Core.AIV else cores.clusters
        for name, value in op.args.items():
            if not isinstance(value, Value) or not isinstance(value.type, TensorType):
                continue
            shape = tuple(n if isinstance(n, int) else 1 for n in value.type.shape)
            tile = self.new_tile(name, (1,), INT8, Mem.DDR, 1, op.loc)
            paths = [(_FROM_GM[into], Pipe.MTE2)] + [_TO_GM[out]] * (name in op.spec.writes)
            for path, pipe in paths:
                whole = self.gm_window(path, value, (), shape)
                rows = -(-whole.rows // blocks)
                run = -(-whole.nbytes // (rows * blocks))
                work = dataclasses.replace(whole, rows=rows, row_bytes=run)
                reads, writes = ((tile,), ()) if work.writes_gm else ((), (tile,))
                what = "store" if work.writes_gm else "load"
                self.step(core, pipe, what, work, reads, writes, op.loc)

    def operand(self, op: Op, param: str) -> int:
        value = op.args[param]
        assert isinstance(value, Value)
        home = self.storage.home(value)
        if home in (Mem.Left, Mem.Right, Mem.Bias):
            return self.home(value)
        return self.available(value, Mem.Mat, op.loc)

    def l0_tile(self, m: int, k: int, n: int, item: int, kt: int) -> tuple[int, int, int]:
        """Return the largest piece whose operands fit twice into L0 and whose result fits Acc."""
        left, right = (self.machine.buffers[s].usable // 2 for s in (Mem.Left, Mem.Right))
        acc, fractal = self.machine.buffers[Mem.Acc].usable, self.machine.cube.fractal
        tm, tn = m, n
        while tm * kt * item > left and tm > fractal:
            tm = round_up(tm // 2, fractal)
        while tn * kt * item > right and tn > fractal:
            tn = round_up(tn // 2, fractal)
        while tm * tn * 4 > acc and max(tm, tn) > fractal:
            if tm >= tn:
                tm = round_up(tm // 2, fractal)
            else:
                tn = round_up(tn // 2, fractal)
        deepest = min(left // (tm * item), right // (tn * item)) // kt * kt
        pieces = -(-k // max(kt, deepest))
        return tm, round_up(-(-k // pieces), kt), tn


L0_STAGES = 2
"""Stages of the loop over the pieces of a product."""

EXCHANGE_SLOTS = 8
"""Tiles in flight between the two kinds of core that no exchange waits for."""

_DIRECT = {
    (Mem.Acc, Mem.Vec): ("l0c_to_ub", Pipe.FIXPIPE),
    (Mem.Vec, Mem.Mat): ("ub_to_l1", Pipe.MTE3),
    (Mem.Acc, Mem.Mat): ("l0c_to_l1", Pipe.FIXPIPE),
}
_TO_GM = {
    Mem.Acc: ("l0c_to_gm", Pipe.FIXPIPE),
    Mem.Vec: ("ub_to_gm", Pipe.MTE3),
    Mem.Mat: ("l1_to_gm", Pipe.MTE3),
    Mem.Left: ("l1_to_gm", Pipe.MTE3),
    Mem.Right: ("l1_to_gm", Pipe.MTE3),
    Mem.Bias: ("l1_to_gm", Pipe.MTE3),
}
_FROM_GM = {Mem.Vec: "gm_to_ub"} | dict.fromkeys(
    (Mem.Mat, Mem.Left, Mem.Right, Mem.Acc, Mem.Bias), "gm_to_l1"
)
_L0_MOVES = {
    (Mem.Mat, Mem.Left): "l1_to_l0a",
    (Mem.Mat, Mem.Right): "l1_to_l0b",
    (Mem.Mat, Mem.Bias): "l1_to_bt",
}


def _copies(loop: Op, stages: int) -> int:
    """Return how many iterations of a pipelined loop are in flight: all of them if they are few."""
    bounds = [loop.args[name] for name in ("start", "stop", "step")]
    if not all(isinstance(n, int) for n in bounds):
        return stages
    return max(1, min(stages, len(range(*bounds))))  # type: ignore[arg-type]


def _source(op: Op) -> Arg:
    return op.args.get("x", op.args.get("tensor", op.args.get("mem", op.args.get("src"))))


def _stored_value(op: Op) -> Arg:
    return op.args.get("source", op.args.get("tile", op.args.get("src")))


def _valid_args(op: Op) -> tuple[Arg, ...]:
    """Return the valid extent that an op sets for a window, per axis; () if none."""
    for name in ("valid_shape", "valid_shapes"):
        given = op.args.get(name)
        if given is not None:
            return given if isinstance(given, tuple) else (given,)
    return ()


def _loaded_window(op: Op, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the window that a load takes, before axes are dropped or swapped."""
    given = op.args.get("shape", op.args.get("shapes"))
    fixed = isinstance(given, tuple) and all(isinstance(n, int) for n in given)
    if not fixed or math.prod(given) != math.prod(shape):  # type: ignore[arg-type]
        return shape
    return tuple(n for n in given if isinstance(n, int))  # type: ignore[union-attr]


def _accumulates(op: Op) -> bool:
    return "acc" in op.args


def _rows(shape: tuple[int, ...], dtype: DType) -> tuple[int, int]:
    """Return number and bytes of the contiguous rows of a box."""
    return math.prod(shape[:-1]), dtype.packed(shape[-1] if shape else 1)


def _carries(op: Op, params: tuple[Value, ...], body: Block) -> tuple[Carry, ...]:
    init = op.args["init"]
    assert isinstance(init, tuple)
    return tuple(
        Carry(param, first, following, result)
        for param, first, following, result in zip(params, init, yielded_values(body), op.results)
        if isinstance(param.type, ScalarType)
    )


def _halve_vector_side(kernel: DeviceKernel) -> DeviceKernel:
    """Return the vector side of a split mixed kernel: each of two cores does one half."""
    by_rows = kernel.split == "UP_DOWN"

    def half_tile(tile: TileStorage) -> TileStorage:
        if tile.space is not Mem.Vec:
            return tile
        axis = -2 if by_rows else -1
        if len(tile.shape) < -axis or tile.shape[axis] % 2:
            return tile
        shape = list(tile.shape)
        shape[axis] //= 2
        return dataclasses.replace(tile, shape=tuple(shape), nbytes=-(-tile.nbytes // 2))

    def half(node: Node) -> Node:
        if isinstance(node, Loop):
            return dataclasses.replace(node, body=tuple(half(n) for n in node.body))
        if isinstance(node, Branch):
            then, orelse = (tuple(half(n) for n in b) for b in (node.then, node.orelse))
            return dataclasses.replace(node, then=then, orelse=orelse)
        if isinstance(node, Step) and node.core is Core.AIV:
            return dataclasses.replace(node, work=_half_work(node.work, by_rows))
        return node

    return dataclasses.replace(
        kernel,
        body=tuple(half(n) for n in kernel.body),
        tiles=tuple(half_tile(t) for t in kernel.tiles),
    )


def _half_work(work: Work, by_rows: bool) -> Work:
    if isinstance(work, VectorWork):
        rows = max(1, work.rows // 2) if by_rows else work.rows
        return dataclasses.replace(work, nbytes=-(-work.nbytes // 2), rows=rows)
    if isinstance(work, Transfer):
        # Which half gets less of a partially valid tile is not tracked.
        work = dataclasses.replace(work, extents=(), limits=())
        if by_rows and work.rows > 1:
            return dataclasses.replace(work, rows=-(-work.rows // 2))
        if not by_rows and not (work.shape and work.shape[-1] % 2):
            half = -(-work.row_bytes // 2)
            return dataclasses.replace(
                work, row_bytes=half, dense_if_whole=False, shares_lines=True
            )
    return work
