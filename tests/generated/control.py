"""Random control programs: loops and branches around scopes, calls and spmd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.generated.chunks import Chunks
from tests.generated.clearing import Clearing
from tests.generated.core import (
    Choices,
    Expr,
    GmT,
    Param,
    Run,
    ScalarT,
    Step,
    TileT,
    Type,
    run_steps,
)
from tests.generated.expressions import DIMS
from tests.generated.functions import KernelFunction
from tests.generated.memory import Memory
from tests.generated.scopes import INCORE, as_task
from tests.generated.statements import looping, negated

_GROUPS = ("with pl.scope():", "with pl.graph():", 'with pl.graph(name_hint="whole"):')
_VIEWS = ("pl.slice", "pl.load", "pl.transpose")  # in the control program they create no task


class Control(Chunks, Memory, Clearing):
    """The entry function."""

    def __init__(self, choices: Choices, style: str, nasty: bool) -> None:
        super().__init__(choices, style, nasty)
        self.kernels: list[KernelFunction] = []

    def control_body(self, count: int, nesting: int) -> None:
        for _ in range(count):
            self.control_statement(nesting)

    def control_statement(self, nesting: int) -> None:
        simple: list[Callable[[], Any]] = [
            self.scope, self.scope, self.scope, self.view, self.bind_scalar, self.rebind_scalar,
            self.create, self.tail_loop, self.write_element, self.window, self.copy,
            self.assemble_any, self.assemble_any, self.gathered_row, self.carry_tensor,
            self.carry_tensor, self.carry_tensor, self.clear_and_assemble, self.unread_window,
            self.overhanging_view,
        ]  # fmt: skip
        if self.kernels:
            simple += [self.kernel_call] * 3
        if self.style == "program":
            simple += [self.implied]
        if nesting > 0 and self.choices.chance(30):
            nested = self.control_loop, self.control_branch, self.control_while, self.control_group
            self.choices.pick(nested)(nesting - 1)
        else:
            self.choices.pick(simple)()

    def control_loop(self, nesting: int) -> None:
        may_skip = self.choices.chance(20)
        text, indices, (low, high) = self.late_bounds() if may_skip else self.bounds()
        index = self.fresh("i")
        before = dict(self.env)
        kind = "range" if may_skip else self.choices.pick(("range", "range", "unroll"))
        kind = "range" if not text[0].isdigit() else kind
        jumps = kind == "range" and self.choices.chance(20)
        with self.block(f"for {index} in pl.{kind}({text}):") as steps:
            self.env[index] = ScalarT("INDEX", low, high, kind == "unroll")
            self.control_body(self.choices.number(1, 2), nesting)
            if jumps:
                self.jump()
                self.control_body(1, nesting)
        self.steps.append(looping(index, indices, steps))
        self._after_loop(before, index, jumps or may_skip)

    def control_while(self, nesting: int) -> None:
        counter, limit = self.fresh("w"), self.choices.number(0, 2)
        self.emit(f"{counter} = 0", lambda r: r.env.update({counter: 0}))
        self.env[counter] = ScalarT("INDEX", 0, limit)
        before = dict(self.env)
        with self.block(f"while {counter} < {limit}:") as steps:
            self.emit(f"{counter} += 1", lambda r: r.env.update({counter: r.env[counter] + 1}))
            self.control_body(self.choices.number(1, 2), nesting)

        def step(r: Run) -> None:
            while r.env[counter] < limit:
                run_steps(steps, r)

        self.steps.append(step)
        self._after_loop(before, counter, drop_new=True)
        self.env[counter] = ScalarT("INDEX", 0, limit)

    def _after_loop(self, before: dict[str, Type], index: str, drop_new: bool) -> None:
        self.env.pop(index, None)
        if drop_new:
            self.env = {n: t for n, t in self.env.items() if n in before}

    def control_group(self, nesting: int) -> None:
        """A scope of the control program that changes no result and hides no name."""
        with self.block(self.choices.pick(_GROUPS)) as steps:
            self.control_body(self.choices.number(1, 2), nesting)
        self.steps.extend(steps)

    def control_branch(self, nesting: int) -> None:
        condition = self.late_condition()
        before = dict(self.env)
        with self.block(f"if {condition.text}:") as then:
            self.control_body(self.choices.number(1, 2), nesting)
        self.env = dict(before)
        other: list[Step] = []
        if self.choices.chance(50):
            with self.block("else:") as other:
                self.control_body(1, nesting)
        self.env = dict(before)
        self.steps.append(lambda r: run_steps(then if condition.value(r) else other, r))

    def clear_and_assemble(self) -> None:
        """Zeros in new memory, which may become a window of memory that holds numbers."""
        cleared = self.clear()
        if self.choices.chance(60):
            self.assemble_whole(cleared)

    def implied(self) -> None:
        """Compute ops outside every scope: one task per maximal sequence."""
        count = self.choices.number(1, 3)
        run_of: list[Step] = []
        saved, self.steps = self.steps, run_of
        before = dict(self.env)
        with self.inside():
            for _ in range(count):
                shape, dtype = (self.choices.pick(DIMS), 8), self.choices.pick(("FP32", "INT32"))
                value = self.fresh_tile(shape, dtype)
                if "pl.reshape(" in value.text:  # of a window with gaps, which cannot be viewed
                    value = self.full(shape, dtype)
                if "pl." not in value.text or value.text.startswith(_VIEWS):
                    value = negated(value)
                self.assign(self.fresh("t"), value, TileT(shape, dtype))
        self.steps = saved
        self.steps.append(as_task(run_of))
        self.leave(before)
        self.bind_scalar()

    def kernel_call(self) -> None:
        kernel = self.choices.pick(self.kernels)
        texts: list[str] = []
        values: list[Callable[[Run], Any]] = []
        result, before = self.fresh("t"), ""
        for name, t in kernel.params:
            if isinstance(t, ScalarT):
                scalar = self.clamped(t.low, t.high)
                texts.append(scalar.text)
                values.append(scalar.value)
                continue
            if name == kernel.returns:
                target = self.sink(t.shape, t.dtype)
                result, before = target, target
                texts.append(target)
                values.append(lambda r, n=target: r.env[n])
                continue
            found = self._window_argument(t)
            if found is None:
                return
            texts.append(found.text)
            values.append(found.value)
        prefix = "self." if self.style == "program" else ""
        call = f"{prefix}{kernel.name}({', '.join(texts)})"

        def step(r: Run) -> None:
            r.env[result] = kernel.call(r, [v(r) for v in values])

        if before and self.choices.chance(30) and self.style == "jit":
            self.emit(call, step)
        else:
            self.emit(f"{result} = {call}", step)
        if not before:
            self.env[result] = kernel.result
            self.spilled.add(result)

    def _window_argument(self, t: GmT) -> Expr | None:
        """A window of a tensor, as the argument of a kernel."""
        names = self.sources(t.shape, t.dtype)
        if not names:
            return None
        name = self.choices.pick(names)
        source = self.env[name]
        assert isinstance(source, GmT)
        if source.shape == t.shape and self.choices.chance(50):
            return Expr(name, lambda r: r.env[name], ScalarT(""))
        offsets = [self.offset(d - s) for d, s in zip(source.shape, t.shape)]
        window = ", ".join(f"{o.text} : {o.text} + {s}" for o, s in zip(offsets, t.shape))

        def value(r: Run) -> Any:
            box = tuple(slice(o.value(r), o.value(r) + s) for o, s in zip(offsets, t.shape))
            return r.env[name][box]

        return Expr(f"{name}[{window}]", value, ScalarT(""))

    def spmd(self) -> None:
        """`for b in pl.spmd(n)`: one task of n blocks."""
        count, height = self.choices.number(1, 4), self.choices.pick((4, 3, 8))
        shape = (height, self.choices.pick((8, 5, 16)))
        dtype = self.choices.pick(("FP32", "BF16", "INT32"))
        sums = dtype != "BF16" and self.choices.chance(40)
        target = GmT((height * count, shape[1]), dtype, writable=True)
        out = self.parameter("r", target.shape, dtype, "InOut" if sums else "Out")
        block, row = self.fresh("i"), self.fresh("s")
        hint = f', name_hint="{self.fresh("blocks_")}"' if self.choices.chance(30) else ""
        before = dict(self.env)
        with self.block(f"for {block} in pl.spmd({count}{hint}):") as steps, self.inside():
            self.env[block] = ScalarT("INDEX", 0, count - 1)
            self.emit(
                f"{row} = {block} * {height}",
                lambda r: r.env.update({row: r.env[block] * height}),
            )
            read_only = {n: t for n, t in self.env.items() if not getattr(t, "writable", False)}
            self.env = read_only
            self.bind()
            self.env[row] = ScalarT("INDEX", 0, height * (count - 1))
            at = [self.at_name(row), self.zero()]
            source = self.sum_of(out, at, shape, dtype) if sums else self.tile(shape, dtype, 2)
            self.env[out] = target
            self.store_window(out, source, at)
        self.steps.append(as_task([looping(block, lambda _: range(count), steps)]))
        self.env = before

    def products(self) -> None:
        """Accumulators in a scope, in blocks, in chunks, or from scope to scope."""
        forms = (self.product_scope, self.product_scope, self.products_across, self.spmd)
        self.choices.pick((*forms, self.auto_scope))()

    def product_scope(self) -> None:
        header = self.choices.pick(INCORE).format(name=self.fresh("scope_"))
        before = dict(self.env)
        with self.block(header) as steps, self.inside():
            for _ in range(self.choices.number(0, 1)):
                self.statement(0)
            for _ in range(self.choices.number(1, 2)):
                self.accumulate(self.choices.number(0, 1))
            self.observe(before)
        self.steps.append(as_task(steps, several="auto_incore" in header))
        self.leave(before)

    def products_across(self) -> None:
        """One scope starts a sum, others in a loop of the control program continue it."""
        shape = (self.choices.pick((4, 8, 3)), self.choices.pick((8, 5)))
        dtype, acc, index = self.choices.pick(("FP32", "INT32")), self.fresh("t"), self.fresh("i")
        before = dict(self.env)
        with self.block("with pl.incore():") as steps, self.inside():
            self.assign(acc, self.fresh_tile(shape, dtype), TileT(shape, dtype))
        self.steps.append(as_task(steps))
        self.leave(before)
        outside, count = dict(self.env), self.choices.number(1, 3)
        with self.block(f"for {index} in pl.range({count}):") as body:
            self.env[index] = ScalarT("INDEX", 0, count - 1)
            with self.block(self.choices.pick(INCORE[:2])) as steps, self.inside():
                self.continued(acc)
            self.steps.append(as_task(steps))
        self.steps.append(looping(index, lambda _: range(count), body))
        self.env = outside

    def observe_tensors(self) -> None:
        """Store the results of scopes, so that they are compared."""
        names = [n for n in self.env if n in self.spilled or n.startswith(("g", "v"))]
        for name in names[-4:]:
            t = self.env[name]
            assert isinstance(t, GmT)
            out = self.sink(t.shape, t.dtype)
            with self.block("with pl.at(level=pl.Level.CORE_GROUP):") as steps:
                self.emit(
                    f"{out} = pl.assemble({out}, {name}, [{', '.join('0' for _ in t.shape)}])",
                    lambda r, o=out, n=name: r.env[o].__setitem__(..., r.env[n]),
                )
            self.steps.append(as_task(steps))
        if not any(p.name.startswith("r") for p in self.params):
            self.tail_loop()
        for param in self.params:
            if param.name.startswith("o"):
                self._write_some(param)

    def _write_some(self, param: Param) -> None:
        """An output must be written."""
        shape = (2, 3)
        target = GmT(param.shape, param.dtype, writable=True)
        with self.block("with pl.incore():") as steps, self.inside():
            source = self.tile(shape, param.dtype, 2)
            self.store_window(param.name, source, self.window_of(target, shape))
        self.steps.append(as_task(steps))
