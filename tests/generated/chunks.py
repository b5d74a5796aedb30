"""Auto scopes: chunk loops with both policies, and the statements around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.generated import oracle
from tests.generated.core import Expr, GmT, Run, ScalarT, Step, TileT, run_steps
from tests.generated.oracle import Tile
from tests.generated.scopes import Scopes, as_task
from tests.generated.statements import applied, looping

AUTO = (
    "with pl.auto_incore():",
    "with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]):",
    "with pl.at(level=pl.Level.CORE_GROUP, optimization=pl.chunked_loop_optimizer):",
)


class Chunks(Scopes):
    """Auto scopes with chunk loops."""

    def auto_scope(self) -> None:
        """An auto scope with chunk loops, and computing statements before and after them."""
        before = dict(self.env)
        with self.block(self.choices.pick(AUTO)) as steps:
            if self.choices.chance(30):
                self._sequential_chunks()
            else:
                if self.choices.chance(40):
                    self._computing_run()
                chunks = (self._parallel_chunks, self._parallel_chunks, self._repeated_chunks)
                self.choices.pick(chunks)()
            if self.choices.chance(40):
                self._computing_run()
        self.steps.append(lambda r: run_steps(steps, r))
        spilled = {n: t for n, t in self.env.items() if n in self.spilled}
        self.env = {**before, **spilled}

    def _computing_run(self) -> None:
        """Compute statements in an auto scope: one task per maximal sequence."""
        run_of: list[Step] = []
        saved, self.steps = self.steps, run_of
        before = dict(self.env)
        with self.inside():
            for _ in range(self.choices.number(1, 2)):
                shape, dtype = (self.choices.pick((8, 3)), 8), self.choices.pick(("FP32", "INT32"))
                value = self.fresh_tile(shape, dtype)
                self.assign(self.fresh("t"), applied("abs", value), TileT(shape, dtype))
        self.steps = saved
        self.steps.append(as_task(run_of))
        self.leave(before)

    def _repeated_chunks(self) -> None:
        """A plain loop around a chunk loop stays in the control program."""
        index, count = self.fresh("i"), self.choices.number(1, 3)
        before = dict(self.env)
        with self.block(f"for {index} in pl.range({count}):") as steps:
            self.env[index] = ScalarT("INDEX", 0, count - 1)
            self._parallel_chunks()
        self.steps.append(looping(index, lambda _: range(count), steps))
        self.env = before

    def _chunk_level(self) -> tuple[str, Callable[[Run], range], tuple[int, int], Any]:
        """Draw the bounds and the chunk; return their text, the iterations, index range, chunk and
        policy.
        """
        chunk = self.choices.pick((2, 1, 3, 4, 8, 5, 7, 13, 100, 1000))
        policy = self.choices.pick(("", "guarded", "leading_full"))
        shown = f", chunk={chunk}" + (f', chunk_policy="{policy}"' if policy else "")
        names = self.names(lambda t: isinstance(t, ScalarT) and t.low >= 0 and t.high <= 8)
        if names and self.choices.chance(30):
            name = self.choices.pick(names)
            high = self.env[name].high  # type: ignore[union-attr]
            text, last = f"0, {name}, 1{shown}", max(high - 1, 0)
            return text, lambda r: range(r.env[name]), (0, last), (chunk, policy)
        start, step = self.choices.pick((0, 0, 1, 2)), self.choices.pick((1, 1, 2))
        span = range(start, start + self.choices.number(1, 9), step)
        if self.choices.chance(15):
            span = range(span.start + 6, span.start, -step)
        text = f"{span.start}, {span.stop}, {span.step}{shown}"
        low, high = (min(span), max(span)) if span else (0, 0)
        return text, lambda _: span, (low, high), (chunk, policy)

    def _parallel_chunks(self) -> None:
        depth = self.choices.number(1, 2)
        levels = [self._chunk_level() for _ in range(depth)]
        indices = [self.fresh("i") for _ in levels]
        height, width = self.choices.pick((1, 2, 4)), self.choices.pick((8, 4, 3))
        extents = [high + 1 for _, _, (_, high), _ in levels]
        rows = extents[0] * height
        columns = (extents[1] if depth == 2 else 1) * width
        dtype = self.choices.pick(("FP32", "INT32", "BF16"))
        sums = dtype != "BF16" and self.choices.chance(40)
        out = self.parameter("r", (rows, columns), dtype, "InOut" if sums else "Out")
        before = dict(self.env)
        nest: list[Step] = []
        self._nest(levels, indices, 0, out, (height, width), dtype, nest, sums)

        def step(r: Run) -> None:
            trips = [len(span(r)) for _, span, _, _ in levels]
            for _ in range(task_count(list(zip(trips, (p for *_, p in levels))))):
                r.task()
            run_steps(nest, r)

        self.steps.append(step)
        self.env = before

    def _nest(
        self, levels: Any, indices: list[str], k: int, out: str, shape: Any, dtype: str, into: Any,
        sums: bool,
    ) -> None:  # fmt: skip
        text, span, (low, high), _ = levels[k]
        with self.block(f"for {indices[k]} in pl.parallel({text}):") as steps:
            self.env[indices[k]] = ScalarT("INDEX", low, high)
            if k + 1 < len(levels):
                self._nest(levels, indices, k + 1, out, shape, dtype, steps, sums)
            else:
                self._chunk_body(indices, out, shape, dtype, levels, sums)
        into.append(looping(indices[k], span, steps))

    def _chunk_body(
        self, indices: list[str], out: str, shape: tuple[int, int], dtype: str, levels: Any,
        sums: bool,
    ) -> None:  # fmt: skip
        with self.inside():
            self.env = {n: t for n, t in self.env.items() if not getattr(t, "writable", False)}
            if self.choices.chance(50):
                self.bind()
            if self.choices.chance(30):
                self.bind_scalar()
            offsets: list[Expr] = []
            for index, size, (_, _, (_, high), _) in zip(indices, shape, levels):
                name = self.fresh("s")
                self.emit(
                    f"{name} = {index} * {size}",
                    lambda r, n=name, i=index, s=size: r.env.update({n: r.env[i] * s}),
                )
                offsets.append(self.at_name(name))
                self.env[name] = ScalarT("INDEX", 0, high * size)
            if len(offsets) == 1:
                offsets.append(self.zero())
            if sums:
                source = self.sum_of(out, offsets, shape, dtype)
            else:
                source = self.tile(shape, dtype, 2)
            extents = [high + 1 for _, _, (_, high), _ in levels] + [1]
            full_shape = (extents[0] * shape[0], extents[1] * shape[1])
            self.env[out] = GmT(full_shape, dtype, writable=True)
            self.store_window(out, source, offsets)

    def _sequential_chunks(self) -> None:
        """A chunked `range` that carries values is one task whatever the chunk."""
        shape = (self.choices.pick((4, 3, 8)), 8)
        acc, index = self.fresh("t"), self.fresh("i")
        start: list[Step] = []
        saved, self.steps = self.steps, start
        with self.inside():
            value = self.fresh_tile(shape, "FP32")
            self.assign(acc, applied("abs", value), TileT(shape, "FP32"))
        self.steps = saved
        self.steps.append(as_task(start))
        self.leave(dict(self.env))
        text, span, (low, high), _ = self._chunk_level()
        t = GmT(shape, "FP32", writable=True)
        with self.block(f"for {index} in pl.range({text}):") as steps, self.inside():
            saved_env = dict(self.env)
            self.env[index] = ScalarT("INDEX", low, high)
            del self.env[acc]
            other = self.tile(shape, "FP32", 1, full=True)
            self.env = saved_env

            def step(r: Run) -> None:
                current = r.env[acc]
                tile = current if isinstance(current, Tile) else oracle.whole(current)
                r.env[acc] = oracle.zipped(
                    lambda p, q: oracle.binary("add", p, q), tile, other.value(r)
                )

            self.emit(f"{acc} = pl.add({acc}, {other.text})", step)
        self.steps.append(as_task([looping(index, span, steps)]))
        self.env[acc] = t
        self.spilled.add(acc)


def task_count(levels: list[tuple[int, tuple[int, str]]]) -> int:
    """Count the tasks of a nest of parallel chunk loops by the rules of the language."""
    if not levels:
        return 1
    (trips, (chunk, policy)), rest = levels[0], levels[1:]
    if policy != "leading_full":
        return -(-trips // chunk) * task_count(rest)
    full, left = divmod(trips, chunk)
    if rest:
        return (full + left) * task_count(rest)
    return full + (left > 0)
