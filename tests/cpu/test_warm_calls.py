"""Repeated calls of a function: fast, and without state of the first call."""

import gc
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from tests.limits import HUNG

import tilelet.language as pl
from tilelet.cpu.run.engine import Call, NativeProgram
from tilelet.diag.catalogue.harness import ArgumentMismatch, ReadOnlyOutput
from tilelet.diag.catalogue.windows import IndexOutOfRange
from tilelet.runtime import RunConfig, compile_program

F32 = np.float32
ROWS = 4
FACTOR = 2.0
SETTINGS = SimpleNamespace(factor=2.0)
FACTORS = [2.0, 3.0]


@pl.jit
def add(
    a: pl.Tensor[[ROWS, 8], pl.FP32],
    b: pl.Tensor[[ROWS, 8], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, 8], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.add(a[:, :], b[:, :])
    return out


@pl.jit
def double(a: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.add(a[:, :], a[:, :])
    return out


@pl.jit
def scaled(a: pl.Tensor[[4, 8], pl.FP32], out: pl.Out[pl.Tensor[[4, 8], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.mul(a[:, :], FACTOR)
    return out


def ones(*shape, dtype=F32):
    return np.ones(shape or (4, 8), dtype)


def call_often(function, *args, times=4):
    for _ in range(times):
        function(*args)


@pytest.fixture
def no_ordinary_runs(monkeypatch):
    """Make any run that describes its arguments again or starts a thread an error."""

    def deny():
        def ordinary(*_, **__):
            raise AssertionError("this call went the ordinary way")

        monkeypatch.setattr(NativeProgram, "run", ordinary)
        monkeypatch.setattr(threading.Thread, "start", ordinary)

    return deny


def test_a_warm_call_of_a_small_program_starts_no_thread(no_ordinary_runs):
    a, out = ones(), np.zeros((4, 8), F32)
    call_often(add, a, a.copy(), out, times=50)  # noise may make some of them look long
    no_ordinary_runs()
    assert add(a, 2 * a, out) is out
    np.testing.assert_array_equal(out, 3)


def test_outputs_that_are_left_out_are_made_anew_each_time():
    a = ones()
    results = [add(a, i * a) for i in range(5)]
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, 1 + i)


def test_a_number_of_the_text_and_an_output_left_out():
    @pl.jit
    def times(a: pl.Tensor[[4, 8], pl.FP32], by, out: pl.Out[pl.Tensor[[4, 8], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = pl.mul(a[:, :], by)
        return out

    for by in (2.0, 3.0, 2.0, 3.0):
        np.testing.assert_array_equal(times(ones(), by), by)


def test_zero_and_minus_zero_are_two_numbers():
    @pl.jit
    def filled(out: pl.Out[pl.Tensor[[4, 8], pl.FP32]], value):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = pl.full([4, 8], dtype=pl.FP32, value=value)
        return out

    out = ones()
    for value in (0.0, -0.0, 0.0, -0.0):
        filled(out, value)
        assert np.signbit(out).all() == np.signbit(value)


def test_other_shapes_types_and_strides_are_other_calls():
    for array in (
        ones(4, 8),
        ones(6, 8),
        ones(4, 8, dtype=np.float16),
        ones(4, 8, dtype=ml_dtypes.bfloat16),
        ones(8, 16)[::2, ::2],
        ones(8, 4).T,
        ones(4, 8)[::-1, ::-1],
    ):
        for k in range(4):
            array[...] = np.arange(array.size).reshape(array.shape) % 7 + k
            out = np.zeros_like(array)
            double(array, out)
            np.testing.assert_array_equal(out.astype(F32), 2 * array.astype(F32))


def test_arrays_that_share_memory_are_noticed_in_a_warm_call():
    @pl.jit
    def shifted(a: pl.Tensor[[16, 8], pl.FP32], out: pl.Out[pl.Tensor[[16, 8], pl.FP32]]):
        for r in pl.range(16):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[r : r + 1, :] = pl.add(a[r : r + 1, :], 1.0)
        return out

    call_often(shifted, ones(16, 8), ones(16, 8), times=10)
    memory = np.zeros((17, 8), F32)
    shifted(memory[:16], memory[1:])  # each row is the sum of all previous ones
    np.testing.assert_array_equal(memory[:, 0], np.arange(17))
    expected = np.zeros((17, 8), F32)
    shifted(expected[:16], expected[1:], config=RunConfig(engine="interp"))
    np.testing.assert_array_equal(memory, expected)


def test_a_global_of_the_body_that_changes(monkeypatch):
    out = np.zeros((4, 8), F32)
    for factor in (2.0, 3.0, 2.0, 5):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        call_often(scaled, ones(), out)
        np.testing.assert_array_equal(out, factor)


def test_a_global_of_the_signature_that_changes(monkeypatch):
    call_often(add, ones(), ones(), ones())
    monkeypatch.setitem(globals(), "ROWS", 6)
    with pytest.raises(ArgumentMismatch):
        add(ones(), ones(), ones())
    np.testing.assert_array_equal(add(ones(6, 8), ones(6, 8), ones(6, 8)), 2)


def test_a_closure_an_attribute_and_a_list_that_change():
    factor = 2.0

    @pl.jit
    def three(a: pl.Tensor[[4, 8], pl.FP32], out: pl.Out[pl.Tensor[[4, 8], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            x = pl.mul(a[:, :], factor)
            y = pl.mul(x, SETTINGS.factor)
            out[:, :] = pl.mul(y, FACTORS[1])
        return out

    out = np.zeros((4, 8), F32)
    call_often(three, ones(), out)
    np.testing.assert_array_equal(out, 2 * 2 * 3)
    factor = 4.0
    np.testing.assert_array_equal(three(ones(), out), 4 * 2 * 3)
    try:
        SETTINGS.factor = 5.0
        np.testing.assert_array_equal(three(ones(), out), 4 * 5 * 3)
        FACTORS[1] = 7.0
        np.testing.assert_array_equal(three(ones(), out), 4 * 5 * 7)
    finally:
        SETTINGS.factor, FACTORS[1] = 2.0, 3.0
    np.testing.assert_array_equal(three(ones(), out), 4 * 2 * 3)


def test_a_helper_that_is_defined_again():
    def helper_of(amount):
        @pl.jit.inline
        def more(x: pl.Tile):
            return pl.add(x, amount)

        return more

    helper = helper_of(1.0)

    @pl.jit
    def caller(a: pl.Tensor[[4, 8], pl.FP32], out: pl.Out[pl.Tensor[[4, 8], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = helper(a[:, :])
        return out

    out = np.zeros((4, 8), F32)
    call_often(caller, ones(), out)
    np.testing.assert_array_equal(out, 2)
    helper = helper_of(10.0)
    np.testing.assert_array_equal(caller(ones(), out), 11)


def test_a_global_with_the_name_of_a_local_does_not_matter(monkeypatch):
    @pl.jit
    def rows(a: pl.Tensor[[4, 8], pl.FP32], out: pl.Out[pl.Tensor[[4, 8], pl.FP32]]):
        for r in pl.range(4):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[r : r + 1, :] = a[r : r + 1, :]
        return out

    first = rows.variant()
    for r in range(3):
        monkeypatch.setitem(globals(), "r", r)
        rows(ones(), ones())
    assert rows.variant() is first


def test_a_scalar_is_checked_and_passed_in_each_call():
    @pl.jit
    def element(
        a: pl.Tensor[[4, 8], pl.FP32],
        i: pl.Scalar[pl.INT32],
        out: pl.Out[pl.Tensor[[1, 8], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = pl.full([1, 8], dtype=pl.FP32, value=0.0)
            pl.write(out, [0, 0], pl.read(a, [i, 0]))
        return out

    a = np.arange(32, dtype=F32).reshape(4, 8)
    out = ones(1, 8)
    for i in (0, 1, 2, 3, 1):
        assert element(a, i, out)[0, 0] == a[i, 0]
    for _ in range(2):
        with pytest.raises(IndexOutOfRange):
            element(a, 4, out)
        with pytest.raises(ArgumentMismatch):
            element(a, 1 << 40, out)
        assert element(a, 2, out)[0, 0] == a[2, 0]


def test_an_output_that_must_not_be_written():
    a, out = ones(), np.zeros((4, 8), F32)
    call_often(add, a, a.copy(), out)
    out.flags.writeable = False
    with pytest.raises(ReadOnlyOutput):
        add(a, a.copy(), out)
    np.testing.assert_array_equal(out, 2)


def test_nobody_keeps_the_arrays():
    a = ones()
    call_often(add, a, a.copy(), ones())
    gone = weakref.ref(a)
    del a
    gc.collect()
    assert gone() is None


def test_threads_that_call_at_once():
    wrong = []

    def work(number):
        a = np.full((4, 8), number, F32)
        out = np.zeros((4, 8), F32)
        for k in range(200):
            b = np.full((4, 8), k, F32)
            add(a, b, out)
            if not (out == number + k).all():
                wrong.append((number, k))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_short_runs_of_tasks_that_wait_for_each_other():
    """Each run reuses the memory of the previous one, but not its dependencies."""

    @pl.jit
    def chain(x: pl.InOut[pl.Tensor[[4, 8], pl.FP32]], n: pl.Scalar[pl.INDEX]):
        for _ in pl.range(n):
            for r in pl.range(4):
                with pl.at(level=pl.Level.CORE_GROUP):
                    x[r : r + 1, :] = pl.add(pl.mul(x[r : r + 1, :], 2.0), 1.0)
        return x

    for n in (3, 1, 5, 2, 16, 40, 1, 3) * 3:
        x = np.zeros((4, 8), F32)
        chain(x, n)
        np.testing.assert_array_equal(x, F32(2.0) ** n - 1)


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16):
        for k in range(4):
            a = torch.full((4, 8), k, dtype=dtype)
            out = torch.zeros((4, 8), dtype=dtype)
            assert double(a, out) is out
            assert (out == 2 * k).all()
    made = [add(torch.ones(4, 8), torch.full((4, 8), float(k))) for k in range(4)]
    assert [float(m[0, 0]) for m in made] == [1.0, 2.0, 3.0, 4.0]
    view = torch.ones(4, 8, dtype=torch.complex64).conj().imag  # negated when it is read
    assert view.is_neg()
    with pytest.raises(Exception, match=r"resolve_neg|negative"):
        double(view, torch.zeros(4, 8))


def test_the_engine_can_be_changed_between_calls(monkeypatch):
    call_often(add, ones(), ones(), ones())

    def native(*_):
        raise AssertionError("this call was not interpreted")

    monkeypatch.setattr(NativeProgram, "enter", native)
    monkeypatch.setattr(NativeProgram, "enter_here", native)
    monkeypatch.setenv("TILELET_ENGINE", "interp")
    np.testing.assert_array_equal(add(ones(), ones(), ones()), 2)


def test_the_configuration_of_the_first_call_is_not_that_of_all(capsys):
    @pl.jit
    def once(a: pl.Tensor[[4, 8], pl.FP32], out: pl.Out[pl.Tensor[[4, 8], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = a[:, :]
        return out

    once(ones(), ones(), config=RunConfig(enable_profiling=True))
    assert "once" in capsys.readouterr().out
    call_often(once, ones(), ones())
    assert capsys.readouterr().out == ""


def test_compile_program_of_a_function(monkeypatch, no_ordinary_runs):
    compiled = compile_program(scaled)
    out = np.zeros((4, 8), F32)
    call_often(compiled, ones(), out, times=50)
    monkeypatch.setitem(globals(), "FACTOR", 9.0)
    no_ordinary_runs()
    np.testing.assert_array_equal(compiled(ones(), out), 2.0)  # it was compiled before
    assert compiled(2 * ones(), out) is out
    np.testing.assert_array_equal(out, 4.0)


ENDLESS = """
    import os, signal, sys, threading, time
    import numpy as np
    import tilelet.language as pl

    @pl.jit
    def count(x: pl.InOut[pl.Tensor[[1, 8], pl.FP32]], n: pl.Scalar[pl.INDEX]):
        for i in pl.range(n):
            with pl.at(level=pl.Level.CORE_GROUP):
                x[:, :] = pl.add(x[:, :], 1.0)
        return x

    x = np.zeros((1, 8), np.float32)
    often, first = {}
    for _ in range(often):
        count(x, first)
    before = signal.getsignal(signal.SIGINT)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        count(x, 1 << 60)
    except KeyboardInterrupt:
        print("stopped", signal.getsignal(signal.SIGINT) is before)
    count(x, 1)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    except KeyboardInterrupt:
        print("stopped again")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(("often", "first"), [(50, 1), (5, 50_000)])
def test_ctrl_c_ends_a_run_that_was_expected_to_be_short(tmp_path, often, first):
    """Shorter than starting threads, or too short to show progress."""
    script = tmp_path / "endless.py"
    script.write_text(textwrap.dedent(ENDLESS).replace("{}", f"{often}, {first}"))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=HUNG, check=False
    )
    assert done.stdout == "stopped True\nstopped again\n", done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_handler_of_the_users_own_is_run_meanwhile():
    """A handler that does not raise: the run continues."""
    a, out, seen = ones(), ones(), []
    call_often(add, a, a.copy(), out, times=10)
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        signal.raise_signal(signal.SIGINT)
        np.testing.assert_array_equal(add(a, a.copy(), out), 2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [1]


def test_calls_are_described_once_for_a_signature(monkeypatch):
    described = []
    original = Call.__init__

    def counted(self, *args, **named):
        described.append(1)
        original(self, *args, **named)

    monkeypatch.setattr(Call, "__init__", counted)

    @pl.jit
    def copy(a: pl.Tensor[[4, 8], pl.FP32], out: pl.Out[pl.Tensor[[4, 8], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = a[:, :]
        return out

    call_often(copy, ones(), ones(), times=20)
    assert len(described) == 2  # for the ordinary call, and for similar ones


UNDER_A_COMMAND = """
    import numpy as np
    import tilelet.language as pl
    from tilelet.cpu.run.prepared import PreparedCalls

    @pl.jit
    def double(x: pl.InOut[pl.Tensor[[1, 8], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            x[:, :] = pl.add(x[:, :], x[:, :])
        return x

    on_threads = PreparedCalls._run_on_threads
    count = 0

    def counted(*args):
        global count
        count += 1
        return on_threads(*args)

    PreparedCalls._run_on_threads = counted
    x = np.zeros((1, 8), np.float32)
    for _ in range(50):
        double(x)
    print("starts of threads:", count)
"""


def test_calls_of_a_script_under_a_command_start_no_threads(tmp_path):
    script = tmp_path / "calls.py"
    script.write_text(textwrap.dedent(UNDER_A_COMMAND))
    command = [sys.executable, "-m", "tilelet.cli", "run", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HUNG, check=False)
    assert done.returncode == 0, done.stderr
    found = int(done.stdout.split("starts of threads:")[1].split()[0])
    assert found <= 10, done.stdout  # for the first runs, and after noise
