"""Small kernels through the whole frontend, run by the interpreter against NumPy."""

import textwrap

import ml_dtypes
import numpy as np
import pytest
from tests.kernels import lowered, round_trip, run, task_counts

import tilelet.language as pl
from tilelet.diag import UserError
from tilelet.interp.interpreter import Interpreter

X = np.arange(64 * 128, dtype=np.float32).reshape(64, 128) / 100


def zeros(*shape: int, dtype: object = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


def build_add(rows: int, step: int):
    @pl.program
    class Add:
        @pl.function
        def main(
            self,
            a: pl.Tensor[[rows, 128], pl.FP32],
            b: pl.Tensor[[rows, 128], pl.FP32],
            out: pl.Tensor[[rows, 128], pl.FP32],
        ) -> pl.Tensor[[rows, 128], pl.FP32]:
            for r in pl.range(0, rows, step):
                with pl.incore():
                    ta = pl.slice(a, [step, 128], [r, 0])
                    tb = pl.slice(b, [step, 128], [r, 0])
                    out = pl.assemble(out, pl.add(ta, tb), [r, 0])
            return out

    return Add


def test_program_style_add() -> None:
    program = build_add(64, 16)
    assert program.name == "Add"
    result = run(program, a=X, b=2 * X, out=zeros(64, 128))
    np.testing.assert_array_equal(result["out"], 3 * X)
    assert sum(task_counts(program, result).values()) == 4
    round_trip(program)


@pl.jit
def jit_scale(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    m, n = x.shape
    for r in pl.parallel(0, m, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 16, :] = x[r : r + 16, :] * 2.0
    return out


@pytest.mark.parametrize("rows", [16, 64])
def test_jit_specializes_on_shapes(rows: int) -> None:
    result = run(jit_scale, x=X[:rows].copy(), out=zeros(rows, 128))
    np.testing.assert_array_equal(result["out"], 2 * X[:rows])


@pl.jit
def carried_sum(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.full([16, 128], pl.FP32, 0.0)
        for r in pl.range(0, 64, 16):
            acc = pl.add(acc, x[r : r + 16, :])
        out[:] = acc
    return out


def test_loop_carries_a_tile() -> None:
    result = run(carried_sum, x=X, out=zeros(16, 128))
    expected = ((X[:16] + X[16:32]) + X[32:48]) + X[48:]
    np.testing.assert_allclose(result["out"], expected, rtol=1e-6)


@pl.jit
def first_bound_in_loop(
    x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]
):
    with pl.at(level=pl.Level.CORE_GROUP):
        for r in pl.range(0, 64, 16):
            last = x[r : r + 16, :]
        out[:] = last
    return out


def test_name_first_bound_in_a_loop_is_the_last_value() -> None:
    result = run(first_bound_in_loop, x=X, out=zeros(16, 128))
    np.testing.assert_array_equal(result["out"], X[48:])


@pl.jit
def first_step_or_rest(
    a: pl.Tensor[[16, 64], pl.BF16],
    b: pl.Tensor[[64, 32], pl.BF16],
    out: pl.Out[pl.Tensor[[16, 32], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.create_tensor([16, 32], pl.FP32)
        for k in pl.range(0, 64, 16):
            if k == 0:
                acc = pl.matmul(a[:, 0:16], b[0:16, :], out_dtype=pl.FP32)
            else:
                acc = pl.matmul_acc(acc, a[:, k : k + 16], b[k : k + 16, :])
        out[:] = acc
    return out


def test_if_joins_inside_a_loop() -> None:
    a = (np.arange(16 * 64) % 7 - 3).reshape(16, 64).astype(ml_dtypes.bfloat16)
    b = (np.arange(64 * 32) % 5 - 2).reshape(64, 32).astype(ml_dtypes.bfloat16)
    result = run(first_step_or_rest, a=a, b=b, out=zeros(16, 32))
    np.testing.assert_array_equal(result["out"], a.astype(np.float32) @ b.astype(np.float32))


@pl.jit
def spilled(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="first"):
        y = pl.mul(x, 3.0)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="second"):
        out[:] = pl.add(y, 1.0)
    return out


def test_value_crosses_scopes() -> None:
    result = run(spilled, x=X[:16].copy(), out=zeros(16, 128))
    np.testing.assert_array_equal(result["out"], X[:16] * np.float32(3) + np.float32(1))
    counts = task_counts(spilled.specialize(), result)
    assert counts == {"first": 1, "second": 1}


@pl.jit.inline
def twice(t):
    return pl.add(t, t)


@pl.jit
def with_helper(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:] = twice(twice(x))
    return out


def test_inline_helper() -> None:
    result = run(with_helper, x=X[:16].copy(), out=zeros(16, 128))
    np.testing.assert_array_equal(result["out"], 4 * X[:16])


@pl.jit.incore
def kernel_square(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    out[:] = pl.mul(x, x)
    return out


@pl.jit
def calls_kernel(x: pl.Tensor[[32, 128], pl.FP32], out: pl.Out[pl.Tensor[[32, 128], pl.FP32]]):
    for r in pl.range(0, 32, 16):
        kernel_square(x[r : r + 16, :], out[r : r + 16, :])
    return out


def test_kernel_calls_write_through_views() -> None:
    result = run(calls_kernel, x=X[:32].copy(), out=zeros(32, 128))
    np.testing.assert_array_equal(result["out"], X[:32] * X[:32])


@pl.jit
def while_loop(n: pl.Tensor[[1], pl.INT32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        count = pl.read(n, [0])
        acc = pl.full([16, 128], pl.FP32, 0.0)
        while count > 0:
            acc = pl.add(acc, 1.0)
            count = count - 1
            if count == 2:
                break
        out[:] = acc
    return out


@pytest.mark.parametrize(("n", "steps"), [(0, 0), (2, 2), (3, 1), (9, 7)])
def test_while_with_break(n: int, steps: int) -> None:
    result = run(while_loop, n=np.array([n], np.int32), out=zeros(16, 128))
    np.testing.assert_array_equal(result["out"], np.full((16, 128), steps, np.float32))


@pl.jit
def unrolled(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    weights = (1.0, 10.0, 100.0)
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.mul(x, 0.0)
        for i in pl.unroll(3):
            acc = pl.add(acc, weights[i])
        out[:] = acc
    return out


def test_unroll_indexes_python_tuples() -> None:
    result = run(unrolled, x=X[:16].copy(), out=zeros(16, 128))
    np.testing.assert_array_equal(result["out"], np.full((16, 128), 111, np.float32))


@pl.jit
def explicit_carry(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        zero = pl.full([16, 128], pl.FP32, 0.0)
        for r, (acc, big) in pl.range(0, 64, 16, init_values=(zero, zero)):
            t = x[r : r + 16, :]
            total, biggest = pl.yield_(pl.add(acc, t), pl.maximum(big, t))
        out[:] = pl.add(total, biggest)
    return out


@pytest.mark.parametrize("times", [2, 3])
def test_a_branch_that_is_known_merges_what_it_yields(times: int) -> None:
    """Like a branch decided at run time: the values are not those of the surrounding loop."""

    @pl.jit
    def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            zero = pl.full([16, 128], pl.FP32, 0.0)
            for r, (acc, big) in pl.range(0, 64, 16, init_values=(zero, zero)):
                if times == 2:
                    t = pl.yield_(pl.mul(x[r : r + 16, :], 2.0))
                else:
                    t = pl.yield_(pl.mul(x[r : r + 16, :], 3.0))
                total, biggest = pl.yield_(pl.add(acc, t), pl.maximum(big, t))
            out[:] = pl.add(total, biggest)
        return out

    result = run(kernel, x=X, out=zeros(16, 128))
    total = ((X[:16] + X[16:32]) + X[32:48]) + X[48:]
    np.testing.assert_allclose(result["out"], times * (total + X[48:]), rtol=1e-6)


def test_a_branch_that_is_known_may_yield_for_its_loop() -> None:
    last = True

    @pl.jit
    def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            zero = pl.full([16, 128], pl.FP32, 0.0)
            for r, (acc,) in pl.range(0, 64, 16, init_values=(zero,)):
                if last:
                    pl.yield_(pl.add(acc, x[r : r + 16, :]))
            out[:] = acc
        return out

    result = run(kernel, x=X, out=zeros(16, 128))
    np.testing.assert_allclose(result["out"], ((X[:16] + X[16:32]) + X[32:48]) + X[48:], rtol=1e-6)


def test_explicit_carried_values() -> None:
    result = run(explicit_carry, x=X, out=zeros(16, 128))
    total = ((X[:16] + X[16:32]) + X[32:48]) + X[48:]
    np.testing.assert_allclose(result["out"], total + X[48:], rtol=1e-6)


@pl.jit
def spmd_blocks(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    for i in pl.spmd(4, name_hint="blocks"):
        r = i * 16
        out[r : r + 16, :] = pl.add(x[r : r + 16, :], 1.0)
    return out


def test_spmd_is_one_task() -> None:
    result = run(spmd_blocks, x=X, out=zeros(64, 128))
    np.testing.assert_array_equal(result["out"], X + 1)
    assert task_counts(spmd_blocks.specialize(), result) == {"blocks": 1}


def build_chunked(rows: int, chunk: int, policy: str):
    @pl.program
    class Chunked:
        @pl.function
        def main(self, x: pl.Tensor[[rows, 128], pl.FP32], out: pl.Tensor[[rows, 128], pl.FP32]):
            with pl.auto_incore():
                for r in pl.parallel(0, rows, 1, chunk=chunk, chunk_policy=policy):
                    row = pl.slice(x, [1, 128], [r, 0])
                    out = pl.assemble(out, pl.mul(row, 2.0), [r, 0])
            return out

    return Chunked


@pytest.mark.parametrize(
    ("rows", "chunk", "policy", "tasks"),
    [
        (80, 8, "guarded", 10),
        (10, 4, "guarded", 3),
        (10, 4, "leading_full", 3),
        (3, 4, "guarded", 1),
    ],
)
def test_chunk_loops(rows: int, chunk: int, policy: str, tasks: int) -> None:
    program = build_chunked(rows, chunk, policy)
    x = np.arange(rows * 128, dtype=np.float32).reshape(rows, 128)
    result = run(program, x=x, out=zeros(rows, 128))
    np.testing.assert_array_equal(result["out"], 2 * x)
    assert sum(task_counts(program, result).values()) == tasks


def test_implied_scope_outside_any_scope() -> None:
    @pl.program
    class Implied:
        @pl.function
        def main(self, x: pl.Tensor[[16, 128], pl.FP32], out: pl.Tensor[[16, 128], pl.FP32]):
            y = pl.mul(x, 2.0)
            z = pl.add(y, 1.0)
            with pl.incore():
                out = pl.assemble(out, z, [0, 0])
            return out

    result = run(Implied, x=X[:16].copy(), out=zeros(16, 128))
    np.testing.assert_array_equal(result["out"], X[:16] * 2 + 1)
    assert sum(task_counts(Implied, result).values()) == 2
    assert [d.code for d in Implied.cautions if d.severity == "warning"]


def test_operators_belong_to_the_run_of_compute_ops_around_them() -> None:
    @pl.program
    class Implied:
        @pl.function
        def main(self, x: pl.Tensor[[16, 128], pl.FP32], out: pl.Tensor[[16, 128], pl.FP32]):
            y = pl.mul(x, 2.0)
            half = 1.0 / pl.transpose(x, 0, 1)
            y *= 3.0
            z = pl.add(-y, pl.transpose(half, 0, 1))
            with pl.incore():
                out = pl.assemble(out, z, [0, 0])
            return out

    x = X[:16] + 1000.0
    result = run(Implied, x=x.copy(), out=zeros(16, 128))
    np.testing.assert_array_equal(result["out"], -(x * 2 * 3) + 1 / x)
    assert sum(task_counts(Implied, result).values()) == 2


def test_assemble_in_control_program_is_a_window() -> None:
    @pl.program
    class Window:
        @pl.function
        def main(self, x: pl.Tensor[[64, 128], pl.FP32], out: pl.Tensor[[64, 128], pl.FP32]):
            for r in pl.range(0, 64, 16):
                with pl.incore():
                    y = pl.mul(pl.slice(x, [16, 128], [r, 0]), 2.0)
                out = pl.assemble(out, y, [r, 0])
            return out

    result = run(Window, x=X, out=zeros(64, 128))
    np.testing.assert_array_equal(result["out"], 2 * X)
    assert sum(task_counts(Window, result).values()) == 4
    names = [op.name for op in lowered(Window).main.body.ops[0].blocks[0].ops]
    assert "assemble" not in names
    assert "create_tensor" not in names


def test_valid_shape_tail() -> None:
    @pl.program
    class Tail:
        @pl.function
        def main(
            self,
            x: pl.Tensor[[64, 128], pl.FP32],
            n: pl.Tensor[[1], pl.INT32],
            out: pl.Tensor[[64, 1], pl.FP32],
        ):
            with pl.incore():
                rows = pl.tensor.read(n, [0])
                t = pl.slice(x, [64, 128], [0, 0], valid_shape=[rows, 100])
                padded = pl.fillpad(t, pad_value=pl.PadValue.min)
                out = pl.assemble(out, pl.row_max(padded), [0, 0])
            return out

    result = run(Tail, x=X, n=np.array([10], np.int32), out=zeros(64, 1))
    np.testing.assert_array_equal(result["out"][:10, 0], X[:10, 99])
    assert np.all(np.isneginf(result["out"][10:]))


@pl.jit
def scalar_first(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:] = pl.add(pl.sub(1.0, x), 2.0 - x)
    return out


def test_scalar_may_be_the_left_operand() -> None:
    x = X[:16].copy()
    result = run(scalar_first, x=x, out=zeros(16, 128))
    np.testing.assert_array_equal(result["out"], (np.float32(1) - x) + (np.float32(2) - x))


@pl.jit
def early_reductions(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 1], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        t = x[:, :]
        out[:] = pl.sub(pl.max(t, 1, keepdim=True), pl.min(t, axis=-1, keepdim=True))
    return out


def test_early_spelling_of_reductions() -> None:
    x = X[:16].copy()
    result = run(early_reductions, x=x, out=zeros(16, 1))
    np.testing.assert_array_equal(result["out"][:, 0], x.max(axis=1) - x.min(axis=1))


@pl.jit.incore
def bump(x: pl.Tensor, acc: pl.InOut[pl.Tensor]):
    acc[:] = pl.add(acc, x)
    return acc


@pl.jit
def submitted(
    x: pl.Tensor[[16, 128], pl.FP32],
    flags: pl.Tensor[[4], pl.INT32],
    acc: pl.InOut[pl.Tensor[[16, 128], pl.FP32]],
):
    tids = pl.array.create(4, pl.TASK_ID)
    for i in pl.range(4):
        acc, tid = pl.submit(bump, pl.no_dep(x), acc, deps=[], predicate=(flags[i] > 0))
        tids[i] = tid
    with pl.at(level=pl.Level.CORE_GROUP, deps=[tids]) as last:
        acc[:] = pl.mul(acc, 2.0)
    with pl.manual_scope():
        acc, final = pl.submit(bump, x, acc, deps=[last])
    return acc


def test_submit_with_predicates_and_dependencies() -> None:
    x = X[:16].copy()
    flags = np.array([1, 0, 3, -1], np.int32)
    result = run(submitted, x=x, flags=flags, acc=zeros(16, 128))
    np.testing.assert_array_equal(result["acc"], (x + x) * 2 + x)
    program = lowered(submitted.specialize())
    tasks = list(Interpreter().run(program, {"x": x, "flags": flags, "acc": zeros(16, 128)}).tasks)
    assert [t.ran for t in tasks] == [True, False, True, False, True, True]
    assert tasks[4].deps == (0, 1, 2, 3)
    assert tasks[5].deps == (4,)
    assert tasks[0].no_dep
    round_trip(submitted.specialize())


ROWS = pl.dynamic("ROWS")


@pl.jit
def dynamic_rows(x: pl.Tensor[[ROWS, 128], pl.FP32], out: pl.Out[pl.Tensor[[ROWS, 128], pl.FP32]]):
    for r in pl.range(0, ROWS, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 16, :] = pl.mul(x[r : r + 16, :], 2.0)
    return out


def test_dynamic_dimension() -> None:
    np.testing.assert_array_equal(run(dynamic_rows, x=X, out=zeros(64, 128))["out"], 2 * X)


def test_a_dynamic_dimension_of_zero_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        run(dynamic_rows, x=zeros(0, 128), out=zeros(0, 128))
    assert caught.value.code == "E0311"


@pl.jit
def last_row_of_a_loop(
    x: pl.Tensor[[16, 16], pl.FP32],
    t: pl.Tensor[[8, 8], pl.FP32],
    out: pl.Out[pl.Tensor[[8, 8], pl.FP32]],
):
    row = 0
    with pl.at(level=pl.Level.CORE_GROUP):
        for _ in pl.range(0, 5, 2):
            row = 4
            t = pl.add(x[0:8, 0:8], 1.0)
        out[:] = pl.add(t, pl.read(x, [row, 1]))
    return out


def test_a_constant_of_a_loop_survives_the_second_lowering_of_its_body() -> None:
    """`t` starts as a tensor and ends as a tile, so the body is lowered twice."""
    x = np.arange(256, dtype=np.float32).reshape(16, 16)
    result = run(last_row_of_a_loop, x=x, t=zeros(8, 8), out=zeros(8, 8))
    np.testing.assert_array_equal(result["out"], x[:8, :8] + 1 + x[4, 1])


def test_a_remark_after_the_return_is_not_a_statement() -> None:
    program = pl.parse(
        textwrap.dedent("""
        import tilelet.language as pl

        @pl.program
        class Remarks:
            @pl.function(type=pl.FunctionType.InCore)
            def double(self, x: pl.Tensor[[64, 128], pl.FP32], out: pl.Tensor[[64, 128], pl.FP32]):
                "Twice `x`."
                return pl.store(pl.mul(pl.load(x, [0, 0], [64, 128]), 2.0), [0, 0], out)
                "A remark on the next one, indented as if it belonged here."

            @pl.function(type=pl.FunctionType.Orchestration)
            def main(self, x: pl.Tensor[[64, 128], pl.FP32], out: pl.Tensor[[64, 128], pl.FP32]):
                return self.double(x, out)
        """)
    )
    np.testing.assert_array_equal(run(program, x=X, out=zeros(64, 128))["out"], 2 * X)


@pl.program
class WithoutSelf:
    @pl.function(type=pl.FunctionType.InCore)
    def double(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Tensor[[64, 128], pl.FP32]):  # noqa: N805
        return pl.store(pl.mul(pl.load(x, [0, 0], [64, 128]), 2.0), [0, 0], out)

    @pl.function(type=pl.FunctionType.Inline)
    def bare(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Tensor[[64, 128], pl.FP32]):  # noqa: N805
        return self.double(x, out)  # noqa: F821  # pyright: ignore[reportUndefinedVariable]

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(self, x: pl.Tensor[[64, 128], pl.FP32], out: pl.Tensor[[64, 128], pl.FP32]):
        return self.bare(x, out)


def test_methods_need_no_self() -> None:
    np.testing.assert_array_equal(run(WithoutSelf, x=X, out=zeros(64, 128))["out"], 2 * X)


def test_functions_are_shown_by_name() -> None:
    @pl.function
    def alone(x: pl.Tensor[[16, 16], pl.FP32]):
        return x

    assert str(alone) == "<kernel function alone>"
    assert str(dynamic_rows) == "<kernel function dynamic_rows>"
