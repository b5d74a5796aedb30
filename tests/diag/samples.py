"""One instance of every catalogue class, placed in the class's own example.

`at("text")` is the span of that text in the example, `at("text", 2)` that of its second occurrence,
`at("f(«x», y)")` that of the part in guillemets.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tilelet.advice.rules import (
    added_product,
    crossing_tensor,
    discarded_rows,
    empty_buffers,
    explicit_scope,
    few_tasks,
    fill,
    hidden_equality,
    launch_in_loop,
    look_alike,
    missing_root,
    no_pipeline,
    one_scope_tensor,
    orchestrator,
    read_modify_write,
    repeated_read,
    round_trip,
    sequential_loop,
    shared_operand,
    short_rows,
    small_tasks,
    small_transfers,
    softmax_overflow,
    stale_constant,
    stored_and_loaded,
    sum_in_memory,
    tile_size,
    twin_loops,
    uneven_wave,
    zeros_read_back,
)
from tilelet.diag import Loc, UserError
from tilelet.diag.catalogue import (
    advice,
    cautions,
    checkpoint,
    checks,
    command,
    describe,
    device,
    diverge,
    generate,
    harness,
    models,
    names,
    ops,
    oracle,
    page,
    portability,
    python,
    ranks,
    sampling,
    scopes,
    tuner,
    unsupported,
    windows,
)

FILE = "kernel.py"
SCOPE = "with pl.at(level=pl.Level.CORE_GROUP):"
At = Callable[..., Loc]
TRACEBACK = """Traceback (most recent call last):
  File "kernel.py", line 9, in golden
    tensors["out"][:] = torch.exp(tensors["y"])
KeyError: 'y'
"""


def source_of(cls: type[UserError]) -> str:
    """Return the text in which a class's sample is placed."""
    return describe(cls).example


def finder(source: str, file: str = FILE) -> At:
    """Return the function `at` for `source`."""

    def at(text: str, nth: int = 1) -> Loc:
        before, *marked = re.split("[«»]", text)
        context = "".join([before, *marked])
        start = -1
        for _ in range(nth):
            start = source.index(context, start + 1)
        if marked:
            start, text = start + len(before), marked[0]
        first, last = source[:start].split("\n"), source[: start + len(text)].split("\n")
        columns = [len(line.encode()) for line in (first[-1], last[-1])]
        return Loc(file, len(first), columns[0], len(last), columns[1])

    return at


def reader(sources: dict[str, str]) -> Callable[[str, int], str | None]:
    """A source reader over texts in memory."""

    def read(file: str, line: int) -> str | None:
        lines = sources.get(file, "").split("\n") if file in sources else []
        return lines[line - 1] if 0 < line <= len(lines) else None

    return read


def build(cls: type[UserError]) -> UserError:
    """Return the sample of `cls`."""
    return SAMPLES[cls](finder(source_of(cls)))


SAMPLES: dict[type[UserError], Callable[[At], UserError]] = {
    # E18xx
    oracle.NotEvaluated: lambda at: oracle.NotEvaluated(
        Loc(FILE, 9, 4, 9, 5), "N", "`np` is not imported", Loc(FILE, 3, 0, 3, 1)
    ),
    oracle.WorkLimit: lambda at: oracle.WorkLimit("executing it", "200,000 steps"),
    oracle.OtherSignature: lambda at: oracle.OtherSignature(
        Loc(FILE, 4, 0, 4, 10), ["parameter `b` is missing", "`out` is In here and Out there"]
    ),
    oracle.NotAReference: lambda at: oracle.NotAReference("kernel.py", "there is no golden"),
    oracle.NotOneCandidate: lambda at: oracle.NotOneCandidate(
        "kernel.py", [("add", Loc(FILE, 4, 0, 4, 8)), ("mul", Loc(FILE, 9, 0, 9, 8))]
    ),
    oracle.WrongOnOtherInputs: lambda at: oracle.WrongOnOtherInputs(
        Loc(FILE, 4, 0, 4, 10), "`M` = 33", "errors take 12 times the tolerance"
    ),
    oracle.WithoutTheWork: lambda at: oracle.WithoutTheWork(
        Loc(FILE, 4, 0, 4, 10), "constant output", "`out` is the same for 4 different inputs"
    ),
    # E01xx
    python.PythonRange: lambda at: python.PythonRange(at("range(0, 64, 16)")),
    python.UnsupportedStatement: lambda at: python.UnsupportedStatement(
        at("try"), "`try`", "check options before the kernel, in plain Python"
    ),
    python.UnsupportedExpression: lambda at: python.UnsupportedExpression(
        at("[pl.exp(x) for i in range(4)]"), "a list comprehension", "write a `pl.range` loop"
    ),
    python.ChainedComparison: lambda at: python.ChainedComparison(at("0 < r < 48")),
    python.KeywordToUserFunction: lambda at: python.KeywordToUserFunction(
        at("out=out"), "twice", "out"
    ),
    python.NonBoolCondition: lambda at: python.NonBoolCondition(
        at("if «pl.read(x, [r, 0])»:"), "pl.Scalar[pl.FP32]"
    ),
    python.SourceUnavailable: lambda at: python.SourceUnavailable(
        "kernel", "it was not defined in a file"
    ),
    python.BadLoopIterator: lambda at: python.BadLoopIterator(
        at("in «SIZES»"), "the Python list `SIZES`"
    ),
    python.BadLoopTarget: lambda at: python.BadLoopTarget(at("r, c"), "one name"),
    python.BadAssignTarget: lambda at: python.BadAssignTarget(at("x.scale"), "an attribute"),
    python.NotCallable: lambda at: python.NotCallable(at("double", 2), "double", "function"),
    python.MisplacedJump: lambda at: python.MisplacedJump(
        at("break"), "break", "parallel", at("pl.parallel(0, 64, 16)")
    ),
    python.YieldMismatch: lambda at: python.YieldMismatch(
        at("pl.yield_(pl.add(a, b))"), 1, 2, at("(a, b)")
    ),
    python.StaticAssertFailed: lambda at: python.StaticAssertFailed(
        at("M % 16 == 0"), "rows come in blocks of 16"
    ),
    python.CompileTimeFailed: lambda at: python.CompileTimeFailed(
        at("64 // BLOCKS"), ZeroDivisionError("integer division or modulo by zero")
    ),
    python.InvalidSyntax: lambda at: python.InvalidSyntax(at("("), "'(' was never closed"),
    python.NotOneProgram: lambda at: python.NotOneProgram(at("limit = 2 * 8"), "2 functions"),
    python.BadDecorator: lambda at: python.BadDecorator(
        at("@pl.program"), "pl.program", "it decorates a class", "use `@pl.jit` on a function"
    ),
    python.UnpackCount: lambda at: python.UnpackCount(at("rows, cols, depth"), 3, at("x.shape"), 2),
    python.MisplacedReturn: lambda at: python.MisplacedReturn(
        at("return out"), "scope", at("pl.at(level=pl.Level.CORE_GROUP)")
    ),
    python.OpOutsideKernel: lambda at: python.OpOutsideKernel("pl.full", at("pl.full")),
    python.CondNotFirst: lambda at: python.CondNotFirst(
        at("n1 = pl.yield_(n + 1)"), at("pl.while_(init_values=(0,))")
    ),
    python.NestedTooDeeply: lambda at: python.NestedTooDeeply(Loc(FILE, 1, 0, 1, 4)),
    python.UnknownAttribute: lambda at: python.UnknownAttribute(
        at("CORE_GRUOP"), "pl.Level", "CORE_GRUOP", ["HOST", "CHIP", "CORE_GROUP"]
    ),
    # E02xx
    names.UndefinedName: lambda at: names.UndefinedName(at("scald"), "scald", ["scaled"]),
    names.MaybeUndefined: lambda at: names.MaybeUndefined(
        at("scaled", 2), "scaled", at("scaled"), "if the condition on line 6 is false"
    ),
    names.TypeChangedInLoop: lambda at: names.TypeChangedInLoop(
        at("pl.cast(pl.add(acc, x), pl.BF16)"),
        "acc",
        "Tensor[[16, 128], FP32]",
        at("acc"),
        "Tensor[[16, 128], BF16]",
    ),
    names.BranchTypesDiffer: lambda at: names.BranchTypesDiffer(
        at("tile", 3),
        "tile",
        "Tensor[[16, 128], FP32]",
        at("tile"),
        "Tensor[[16, 64], FP32]",
        at("tile", 2),
    ),
    names.DeclaredTypeDiffers: lambda at: names.DeclaredTypeDiffers(
        at("pl.exp(x)"),
        "y",
        "pl.Tensor[[16, 128], pl.BF16]",
        at("y: «pl.Tensor[[16, 128], pl.BF16]»"),
        "pl.Tile[[16, 128], pl.FP32]",
    ),
    names.UsedAfterAssemble: lambda at: names.UsedAfterAssemble(
        at("neg(«buf»)"), "buf", at("pl.assemble(buf, pl.exp(x), [0, 0])"), "filled"
    ),
    names.OutputRebound: lambda at: names.OutputRebound(at("out = pl.add(a, a)"), "out", at("out")),
    names.MissingAnnotation: lambda at: names.MissingAnnotation(at("self, «x»"), "x"),
    names.BadAnnotation: lambda at: names.BadAnnotation(
        at("list[float]"), "x", "a Python type; data comes in tensors"
    ),
    names.UnsupportedCapture: lambda at: names.UnsupportedCapture(
        at("OPTIONS", 2), "OPTIONS", "dict"
    ),
    names.InlineRecursion: lambda at: names.InlineRecursion(
        at("power(x, n)", 2), ["power", "power"]
    ),
    names.InlineReturnsNothing: lambda at: names.InlineReturnsNothing(
        at("double(x)", 2), "double", at("def double(x)")
    ),
    names.StrictRebinding: lambda at: names.StrictRebinding(
        at("«y» = pl.neg"), "y", at("«y» = pl.exp")
    ),
    names.OutputShadowed: lambda at: names.OutputShadowed(
        at("out = pl.create_tensor([16, 128], dtype=pl.FP32)"), "out", at("out")
    ),
    names.DuplicateFunction: lambda at: names.DuplicateFunction(at("main", 2), "main", at("main")),
    names.ScalarOutput: lambda at: names.ScalarOutput(at("pl.InOut[pl.Scalar[pl.INT32]]"), "n"),
    names.NoEntry: lambda at: names.NoEntry(at("class Program"), "Program"),
    names.SeveralEntries: lambda at: names.SeveralEntries(
        "Program", [("first", at("first")), ("second", at("second"))]
    ),
    names.ReturnMismatch: lambda at: names.ReturnMismatch(
        at("return x"),
        "main",
        "Tensor[[16, 128], FP32]",
        "Tensor[[16, 64], FP32]",
        at("pl.Tensor[[16, 64], pl.FP32]"),
    ),
    names.DynamicDimMisuse: lambda at: names.DynamicDimMisuse(
        at("(0, «M», 16)"),
        "M",
        "no parameter has this dimension",
        "read it with `pl.tensor.dim(x, axis)`",
    ),
    names.UnsupportedParameter: lambda at: names.UnsupportedParameter(
        at("2.0"), "scale", "use a name from outside the function instead"
    ),
    names.ArgumentTypeMismatch: lambda at: names.ArgumentTypeMismatch(
        at("body(«x»)"),
        "body",
        "x",
        "Tensor[[16, 128], FP32]",
        "Tensor[[16, 64], FP32]",
        at("x: pl.Tensor[[16, 64], pl.FP32]"),
    ),
    # E03xx
    ops.UnknownOp: lambda at: ops.UnknownOp(
        at("pl.row_summ"), "pl.row_summ", ["pl.row_sum", "pl.col_sum"]
    ),
    ops.UnknownKeyword: lambda at: ops.UnknownKeyword(
        at("b_transpose=True"), "pl.matmul", "b_transpose", ["out_dtype", "a_trans", "b_trans"]
    ),
    ops.WrongArity: lambda at: ops.WrongArity(at("pl.exp(x, x)"), "pl.exp", 2, 1, "pl.exp(x)"),
    ops.MissingArgument: lambda at: ops.MissingArgument(
        at("pl.slice(x, [16, 128])"),
        "pl.slice",
        "offset",
        "pl.slice(t, shape, offset, valid_shape=None)",
    ),
    ops.DuplicateArgument: lambda at: ops.DuplicateArgument(
        at("target_type=pl.BF16"), "pl.cast", "target_type"
    ),
    ops.ShapeMismatch: lambda at: ops.ShapeMismatch(
        "pl.add",
        at("(«a», b)"),
        (16, 128),
        at("(a, «b»)"),
        (16, 64),
        "binary ops broadcast only `[M, 1]`, `[1, N]` and scalars",
    ),
    ops.DTypeMismatch: lambda at: ops.DTypeMismatch(
        "pl.matmul", at("(«a», b)"), "pl.BF16", at("(a, «b»)"), "pl.FP32"
    ),
    ops.RankMismatch: lambda at: ops.RankMismatch(at("[0]"), "pl.slice", "offset", 1, 2),
    ops.BadArgument: lambda at: ops.BadArgument(
        at("(x, «16»)"), "pl.cast", "target_type", "the int 16", "a dtype"
    ),
    ops.NonConstantShape: lambda at: ops.NonConstantShape(at("[«n», 128]"), "pl.slice", 0),
    ops.ZeroSizeDim: lambda at: ops.ZeroSizeDim(at("[0, 128]"), "parameter `x`", (0, 128), 0),
    ops.ReshapeCount: lambda at: ops.ReshapeCount(
        at("pl.reshape(x, [8, 128])"), (16, 128), 2048, (8, 128), 1024
    ),
    ops.InnerDimMismatch: lambda at: ops.InnerDimMismatch(
        "pl.matmul",
        at("(«a», b"),
        (16, 128),
        128,
        at("(a, «b»,"),
        (64, 128),
        64,
        "the right operand is stored as `[N, K]`: pass `b_trans=True`",
    ),
    ops.AccumulatorMismatch: lambda at: ops.AccumulatorMismatch(
        at("(«acc»,"), "pl.matmul_acc", "Tensor[[16, 64], BF16]", "Tensor[[16, 64], FP32]"
    ),
    ops.DTypeNotAllowed: lambda at: ops.DTypeNotAllowed(
        at("(«x», x)"), "pl.and_", "pl.FP32", ("pl.INT16", "pl.INT32")
    ),
    ops.BadAxis: lambda at: ops.BadAxis(at("0, «2»)"), "pl.transpose", 2, 2),
    ops.BadChoice: lambda at: ops.BadChoice(
        at('"nearest"'), "pl.cast", "mode", "nearest", ("none", "rint", "round", "floor")
    ),
    ops.NotConstant: lambda at: ops.NotConstant(
        at("value=n"), "pl.full", "value", "add the scalar to a tensor of zeros"
    ),
    ops.CastUnsupported: lambda at: ops.CastUnsupported(
        at('pl.cast(n, pl.INT32, mode="floor")'),
        "pl.FP32",
        "pl.INT32",
        "floor",
        "scalars convert with the default mode only",
    ),
    ops.SortGeometry: lambda at: ops.SortGeometry(
        at("(«x», idx)"), "pl.sort32", (1, 48), "rows of a multiple of 32"
    ),
    ops.ConstantOutOfRange: lambda at: ops.ConstantOutOfRange(at("300"), 300, "pl.INT8", -128, 127),
    ops.OperandKind: lambda at: ops.OperandKind(at("tid + 1"), "+", ["TASK_ID", "INDEX"]),
    ops.NoSuchForm: lambda at: ops.NoSuchForm(
        at("pl.gather(x)"), "pl.gather", ["pl.gather(x, mask_pattern=P)", "pl.gather(x, index=I)"]
    ),
    ops.WrongMemorySpace: lambda at: ops.WrongMemorySpace(
        at("exp(«tile»)"), "pl.exp", "x", "Mat", ["Vec"], "move it there: `pl.move(x, pl.Mem.Vec)`"
    ),
    # E04xx
    scopes.ComputeOutsideScope: lambda at: scopes.ComputeOutsideScope(at("pl.exp(x)"), "pl.exp"),
    scopes.NestedScope: lambda at: scopes.NestedScope(at("pl.at", 2), at("pl.at")),
    scopes.ChunkOutsideAutoScope: lambda at: scopes.ChunkOutsideAutoScope(at("chunk=16")),
    scopes.ScalarLeavesScope: lambda at: scopes.ScalarLeavesScope(
        at("range(«n»)"), "n", at("n = pl.read(counts, [0, 0])")
    ),
    scopes.BadScopeArgument: lambda at: scopes.BadScopeArgument(
        at("name_hint=3"), "pl.at", "name_hint", "the int 3", "a string"
    ),
    scopes.SeveralContextManagers: lambda at: scopes.SeveralContextManagers(
        at("pl.at(level=pl.Level.CORE_GROUP)")
    ),
    scopes.NotAScope: lambda at: scopes.NotAScope(at('open("log.txt")')),
    scopes.BadChunk: lambda at: scopes.BadChunk(at("chunk=0"), "0", 1 << 20),
    scopes.NonConstantUnroll: lambda at: scopes.NonConstantUnroll(at("(«n»)")),
    scopes.TooManyCopies: lambda at: scopes.TooManyCopies(
        at("pl.unroll(1000000)"), 1000000, 2000000, 100000
    ),
    scopes.OnlyInScope: lambda at: scopes.OnlyInScope(
        at("pl.load(x, [0, 0], [16, 128])"), "`pl.load`"
    ),
    scopes.BarrierInKernel: lambda at: scopes.BarrierInKernel(
        at("pl.system.syncall()"), "y", at("y: pl.InOut[pl.Tensor[[32, 16], pl.FP32]]")
    ),
    scopes.OutsideLanes: lambda at: scopes.OutsideLanes(at("pl.aiv_shard(x)"), "pl.aiv_shard"),
    scopes.OnlyAtOrchestration: lambda at: scopes.OnlyAtOrchestration(
        at("pl.submit(self.body, x)"), "pl.submit", at("pl.incore()")
    ),
    scopes.BadDependency: lambda at: scopes.BadDependency(at("[«x»]"), "a tensor"),
    scopes.BadPredicate: lambda at: scopes.BadPredicate(
        at("flags[0, 0] + flags[0, 1]"), "not one element"
    ),
    scopes.ZeroStep: lambda at: scopes.ZeroStep(at("64, «0»)")),
    scopes.TileLeavesSpmd: lambda at: scopes.TileLeavesSpmd(at("pl.exp(x)"), at("pl.spmd(4)")),
    scopes.LevelWithRole: lambda at: scopes.LevelWithRole(at("role=pl.Role.Worker")),
    scopes.LoopKeyword: lambda at: scopes.LoopKeyword(
        at("init_values=(x,)"),
        "pl.unroll",
        "init_values",
        ["start", "stop", "step", "chunk"],
        "its copies carry nothing",
    ),
    # E05xx
    windows.WindowOutOfRange: lambda at: windows.WindowOutOfRange(
        at("[56, 0]"), 0, 56, 16, 64, "x"
    ),
    windows.ValidShapeTooLarge: lambda at: windows.ValidShapeTooLarge(
        at("valid_shape=[«64»"), 0, 64, 16
    ),
    windows.IndexOutOfRange: lambda at: windows.IndexOutOfRange(
        at("[0, «8»]"), 1, 8, 8, "lens", runtime=True
    ),
    windows.BadSubscript: lambda at: windows.BadSubscript(
        at("0:64:2"), "a step", "pick every second row with `pl.gather`"
    ),
    windows.WrongIndexCount: lambda at: windows.WrongIndexCount(at("0:16, :, 0"), "x", 3, 2),
    windows.ChainedWrite: lambda at: windows.ChainedWrite(at("out[0:8, :][:, 0:8]")),
    windows.NonConstantExtent: lambda at: windows.NonConstantExtent(at("0:n"), 0),
    windows.ScalarIntoWindow: lambda at: windows.ScalarIntoWindow(at("0.0"), "the float 0.0"),
    windows.DivisionByZero: lambda at: windows.DivisionByZero(at("64 // n"), "//"),
    windows.ValidRegionLost: lambda at: windows.ValidRegionLost(
        at("tile", 2), "pl.reshape", (16, 100), (16, 128)
    ),
    windows.ReshapeNeedsCopy: lambda at: windows.ReshapeNeedsCopy(
        at("pl.reshape(x[0:16, 0:64], [1, 1024])"), "x", (16, 64), (1, 1024)
    ),
    windows.BlockCount: lambda at: windows.BlockCount(at("n // 16"), 0),
    windows.DependsOnTaskData: lambda at: windows.DependsOnTaskData(
        at("pl.read(out, [0, 0])"), "out"
    ),
    windows.ExtentNotPositive: lambda at: windows.ExtentNotPositive(
        at("[n - 1, 128]"), "create_tensor", (0, 128), 0
    ),
    # E06xx
    harness.GoldenRaised: lambda at: harness.GoldenRaised(TRACEBACK),
    harness.GoldenWrongShape: lambda at: harness.GoldenWrongShape("out", (16,), (16, 128)),
    harness.GoldenWroteNothing: lambda at: harness.GoldenWroteNothing(
        ["out", "state"], at("golden")
    ),
    cautions.GoldenLeftOutputs: lambda at: cautions.GoldenLeftOutputs(["out", "state"]),
    harness.SpecMismatch: lambda at: harness.SpecMismatch(
        "x", "shape", "[16, 64]", "[16, 128]", at("x")
    ),
    harness.MissingSpec: lambda at: harness.MissingSpec("out", at("out")),
    harness.ExtraSpec: lambda at: harness.ExtraSpec("scales", ["x", "scale", "out"]),
    harness.TooBig: lambda at: harness.TooBig("weights", 80 * 2**30, 3 * 2**29),
    harness.GoldenUnknownName: lambda at: harness.GoldenUnknownName("outt", ["out"]),
    harness.ArgumentCount: lambda at: harness.ArgumentCount("kernel", 1, ["x", "out"]),
    harness.ArgumentMismatch: lambda at: harness.ArgumentMismatch(
        "x", "dtype", "pl.INT32", "pl.FP32"
    ),
    harness.InitValueFailed: lambda at: harness.InitValueFailed(
        "x", "its callable returned shape [16], expected [16, 128]"
    ),
    harness.GoldenDataMissing: lambda at: harness.GoldenDataMissing("saved/run1", "out"),
    harness.BadConfig: lambda at: harness.BadConfig("rtol", -1, "a number of at least 0"),
    harness.DynamicDimConflict: lambda at: harness.DynamicDimConflict("M", "x", 64, "y", 32),
    harness.UnknownData: lambda at: harness.UnknownData("x", "complex64", ["float32", "int32"]),
    harness.ArgumentMissing: lambda at: harness.ArgumentMissing("x"),
    harness.ArgumentUnknown: lambda at: harness.ArgumentUnknown("xs", ["x", "out"]),
    harness.BadSpec: lambda at: harness.BadSpec(
        "spec `x` has no dtype", "write `TensorSpec(name, shape, dtype)`"
    ),
    harness.UnknownConfigField: lambda at: harness.UnknownConfigField("rtoll", ["rtol", "atol"]),
    harness.ComparatorFailed: lambda at: harness.ComparatorFailed(
        "out", "raised an exception", TRACEBACK
    ),
    harness.OutputMismatch: lambda at: harness.OutputMismatch(
        "out", "mismatched elements: 3/2048\nworst: [0, 7] actual 1.5, expected 1.0"
    ),
    harness.ReadOnlyOutput: lambda at: harness.ReadOnlyOutput("out"),
    harness.OverlappingOutput: lambda at: harness.OverlappingOutput("out"),
    harness.BadDataFile: lambda at: harness.BadDataFile("x", "out.npz holds objects"),
    harness.BadRunCall: lambda at: harness.BadRunCall("specs and tensors are mixed"),
    # E07xx
    command.FileMissing: lambda at: command.FileMissing("helo.py", ["hello.py"]),
    command.NotAScript: lambda at: command.NotAScript("weights.bin", "it is not UTF-8 text"),
    command.NoProgramFound: lambda at: command.NoProgramFound("script.py"),
    command.BadFlag: lambda at: command.BadFlag(
        "`tilelet run` has no option `--formt`", ["did you mean `--format`?"]
    ),
    command.ScriptRaised: lambda at: command.ScriptRaised("script.py", TRACEBACK),
    command.UnknownCode: lambda at: command.UnknownCode("E0230", ["E0203", "E0220"]),
    command.MissingModule: lambda at: command.MissingModule("torch", "`script.py`", "torch"),
    command.CannotWrite: lambda at: command.CannotWrite("build_output", "no space left"),
    command.UnknownPlatform: lambda at: command.UnknownPlatform(
        "a2a3sin", ["a2a3", "a2a3sim", "a5", "a5sim"]
    ),
    command.UnknownEngine: lambda at: command.UnknownEngine("interpr", ["interp"]),
    command.NoCompiler: lambda at: command.NoCompiler(),
    command.CompilerFailed: lambda at: command.CompilerFailed(
        "/usr/bin/cc", "it ended with code 1", "cc1: fatal error: no space left on device\n"
    ),
    command.SanitizerNotLoaded: lambda at: command.SanitizerNotLoaded(
        {"LD_PRELOAD": "/usr/lib/libasan.so", "ASAN_OPTIONS": "detect_leaks=0"}
    ),
    command.UnknownExample: lambda at: command.UnknownExample("softmx", ["01_hello", "03_softmax"]),
    command.UnknownSection: lambda at: command.UnknownSection("matmull", ["matmul", "decode"]),
    command.NotProvided: lambda at: command.NotProvided(
        "pypto.runtime.RunConfg", known=["RunConfig", "run"]
    ),
    command.AnotherPypto: lambda at: command.AnotherPypto(
        "golden", "scripts/golden", "Tilelet's `golden`", "--golden script"
    ),
    command.NoBoard: lambda at: command.NoBoard("a2a3"),
    # E08xx
    unsupported.UnsupportedConstruct: lambda at: unsupported.UnsupportedConstruct(
        at("now, then = then, now"),
        "`now`, which is one of several tensors when its scope ends,",
        "bind each tensor to a separate name after the scope",
    ),
    unsupported.ExternalKernel: lambda at: unsupported.ExternalKernel(
        at("fast_exp(x"),
        "fast_exp",
        "has no reference to run",
        "assign a function of NumPy arrays: `fast_exp.reference = function`",
    ),
    unsupported.MxFormat: lambda at: unsupported.MxFormat(at("pl.MX_A_ND"), "pl.MX_A_ND"),
    unsupported.PipeOutsideGroup: lambda at: unsupported.PipeOutsideGroup(
        at("pl.tpush_to_aic(tile, split=0)"), "pl.tpush_to_aic"
    ),
    unsupported.PipeMismatch: lambda at: unsupported.PipeMismatch(
        at("pl.tpop_from_aiv(split=0)"), "it waits for a tile that no core pushes"
    ),
    unsupported.UnsupportedDType: lambda at: unsupported.UnsupportedDType(at("pl.HF4"), "pl.HF4"),
    unsupported.UnsupportedLevel: lambda at: unsupported.UnsupportedLevel(
        at("level=pl.Level.HOST"), "pl.Level.HOST"
    ),
    unsupported.UnsupportedFunctionType: lambda at: unsupported.UnsupportedFunctionType(
        at("type=pl.FunctionType.Spmd"), "Spmd"
    ),
    unsupported.UnsupportedOp: lambda at: unsupported.UnsupportedOp(
        at("pl.tile.view"), "pl.tile.view", "use `pl.slice`, `pl.reshape` or `pl.reinterpret_view`"
    ),
    unsupported.UnsupportedKeyword: lambda at: unsupported.UnsupportedKeyword(
        at("c_matrix_nz=True"), "pl.matmul", "c_matrix_nz", "results are always row-major here"
    ),
    # E09xx
    device.UnknownMachine: lambda at: device.UnknownMachine("a3", ["a2a3", "a5"]),
    device.MachineSyntax: lambda at: device.MachineSyntax(
        "mine.toml", "Expected '=' after a key in a key/value pair (at line 3, column 7)"
    ),
    device.MachineFieldMissing: lambda at: device.MachineFieldMissing(
        "mine.toml", "gm.hbm_gbs", "a number above 0"
    ),
    device.MachineFieldUnknown: lambda at: device.MachineFieldUnknown(
        "mine.toml", "cores.clok_ghz", ["clock_ghz", "clusters", "vectors_per_cluster"]
    ),
    device.MachineFieldValue: lambda at: device.MachineFieldValue(
        "mine.toml", "cores.clusters", -24, "a whole number of at least 1"
    ),
    device.MachineContradiction: lambda at: device.MachineContradiction(
        "mine.toml", "buffers.Vec.usable", 262144, "buffers.Vec.bytes", 196608
    ),
    device.UnknownPeriod: lambda at: device.UnknownPeriod(
        "2025-12", "a2a3", ["2026-04", "2026-06", "2026-07"]
    ),
    checks.Race: lambda at: checks.Race(
        "acc",
        (at("«acc[:, :]», x"), "reads it: task 0 of `sum` (i = 0)"),
        (at("«acc[:, :]» ="), "writes it: task 1 of `sum` (i = 1)"),
        "`acc[0:16, 0:128]`",
        "`no_dep_args` of `sum` excludes `acc` from the dependencies",
        "remove `acc` from `no_dep_args`",
        4,
        "seed 1 runs tasks 0 and 1 concurrently: `acc[0, 0]` is 3, in program order 4",
    ),
    checks.ParallelDependence: lambda at: checks.ParallelDependence(
        "acc",
        (at("«acc[:, :]», x"), "reads it: task 0 of `sum` (i = 0)"),
        (at("«acc[:, :]» ="), "writes it: task 1 of `sum` (i = 1)"),
        at("pl.parallel(4)"),
        "`acc[0:16, 0:128]`",
    ),
    checks.NeverWritten: lambda at: checks.NeverWritten(
        "out",
        2048,
        8192,
        ["out[48:64, 0:128]"],
        at("out", 2),
        (at("out[r : r + 16, :]"), "writes next to them (task 2)"),
    ),
    checks.UndefinedOutput: lambda at: checks.UndefinedOutput(
        "out", 1024, ["out[0:16, 0:64]"], at("out[0:16, :]"), "`acc`", at("pl.create_tensor")
    ),
    checks.UndefinedDecides: lambda at: checks.UndefinedDecides(
        "a branch", at(""), "`lengths`", at("")
    ),
    page.NoRunDirectory: lambda at: page.NoRunDirectory(
        "build_output", "it has no report/page.data"
    ),
    page.DamagedRun: lambda at: page.DamagedRun("run/report/page.data", "its header is cut off"),
    page.CannotServe: lambda at: page.CannotServe("Operation not permitted"),
    checks.ToleranceTooTight: lambda at: checks.ToleranceTooTight("out", 1e-5, 1e-5, 4e-3, at("")),
    checks.ToleranceTooLoose: lambda at: checks.ToleranceTooLoose("out", 1.0, 1e-6, at("")),
    checks.OutOfBounds: lambda at: checks.OutOfBounds(
        "window of `x` ends at 80, its axis 0 has 64 elements", at(""), 3
    ),
    checks.UnknownCheck: lambda at: checks.UnknownCheck("races", ["capacity", "race", "init"]),
    diverge.FirstWrongStatement: lambda at: diverge.FirstWrongStatement(
        "wrong operand: the outputs go wrong at `pl.sub`",
        Loc(FILE, 20, 11, 20, 30),
        "wrong operand",
        [],
        ["task 3 of `rope` (h = 1), tile `lo`"],
        ["swap `lhs` and `rhs` of `pl.sub`: then the outputs match the golden"],
    ),
    diverge.NeverWritten: lambda at: diverge.NeverWritten(
        "out[48:64, :]", Loc(FILE, 20, 11, 20, 30)
    ),
    diverge.ReadBeforeWritten: lambda at: diverge.ReadBeforeWritten(
        "scratch[48:64, 0:32]",
        Loc(FILE, 20, 11, 20, 30),
        None,
        ["task 7 of `copy` (r = 48), tile `square`"],
    ),
    diverge.BeyondRounding: lambda at: diverge.BeyondRounding(
        "`pl.cast` does not round to nearest",
        Loc(FILE, 20, 11, 20, 30),
        "rounding mode",
        ["relative L2 error 1.2e-08 before, 0.0031 after"],
        ['`mode="rint"` rounds to nearest'],
    ),
    diverge.CouldBeWrong: lambda at: diverge.CouldBeWrong(
        "mul", Loc(FILE, 20, 11, 20, 30), ["zeroed"], ["compare `k_cache`, too"]
    ),
    diverge.RoundingOnly: lambda at: diverge.RoundingOnly("out", Loc(FILE, 20, 11, 20, 30)),
    diverge.StaleRead: lambda at: diverge.StaleRead(
        diverge.NeverWritten("acc[0:16, :]", Loc(FILE, 21, 11, 21, 30)).diagnostic,
        Loc(FILE, 20, 11, 20, 30),
    ),
    device.NoTasks: lambda at: device.NoTasks("Empty", at("def main")),
    device.WindowDeadlock: lambda at: device.WindowDeadlock(20000, 16384, at("with pl.scope():")),
    device.HeapDeadlock: lambda at: device.HeapDeadlock("partials", 1 << 31, 1 << 30),
    device.OnChipOverflow: lambda at: device.OnChipOverflow(
        "scale_incore_0",
        "Vec",
        "a2a3",
        2 << 20,
        184 << 10,
        at("pl.exp(a)"),
        [
            device.Resident("a", at("x[0:64, 0:4096]"), "[64, 4096] FP32", 1 << 20),
            device.Resident("exp", at("pl.exp(a)"), "[64, 4096] FP32", 1 << 20),
        ],
        ["`a` [4, 4096], `exp` [4, 4096], `mul` [4, 4096]: 128 KiB, 37.23 us for the same work"],
    ),
    device.SerializedStages: lambda at: device.SerializedStages(
        "scale_incore_0",
        "Vec",
        "a2a3",
        256 << 10,
        184 << 10,
        at("for r in"),
        12.25,
        8.5,
        ["`a` [16, 1024], `exp` [16, 1024]: 128 KiB, 9.10 us for the same work"],
    ),
    device.ShortTransferRows: lambda at: device.ShortTransferRows(
        at("x[:, c : c + 64]"),
        "load of `x` in 256 rows of 256 bytes",
        512,
        "a2a3",
        {("scale_incore_0", "kernel.py"): [5], ("other", "shared.py"): [9, 2]},
    ),
    device.UnalignedTile: lambda at: device.UnalignedTile(
        "x", "[16, 12] FP32", 48, "a2a3", (16, 16), at("x[0:16, 0:12]")
    ),
    device.NonFractalTile: lambda at: device.NonFractalTile(
        "q",
        "[8, 128] BF16",
        "rows",
        8,
        16,
        (16, 128),
        at("pl.matmul(q[0:8, 0:128], k[0:128, 0:64], out_dtype=pl.FP32)"),
        at("q[0:8, 0:128]"),
    ),
    device.MatmulExtent: lambda at: device.MatmulExtent("K", 8192, 4095, at("pl.matmul")),
    device.ShortRing: lambda at: device.ShortRing("attend", 2, 32768, 14.2, at("exp"), 4, 11.91),
    device.MissingDType: lambda at: device.MissingDType("HF8", "a2a3", ["a5"], at("pl.HF8")),
    device.VectorDType: lambda at: device.VectorDType("add", "BF16", "a2a3", at("pl.add")),
    device.BadProfile: lambda at: device.BadProfile("profile.json", "it lacks `kernels`"),
    device.BadResults: lambda at: device.BadResults("results/rows.json", "it holds no object"),
    device.NoResults: lambda at: device.NoResults("results", "dispatch"),
    device.NothingToCompare: lambda at: device.NothingToCompare("kernel.py"),
    # E10xx
    models.NoModelConfig: lambda at: models.NoModelConfig("Qwen3-0.6B"),
    models.BadModelConfig: lambda at: models.BadModelConfig("config.json", "byte 7 is not UTF-8"),
    models.WrongArchitecture: lambda at: models.WrongArchitecture("config.json", "qwen3_moe"),
    models.BadModelField: lambda at: models.BadModelField("head_dim", 127, "even"),
    models.UnsupportedModelSetting: lambda at: models.UnsupportedModelSetting(
        "rope_scaling", "yarn", "`default`: rope tables without scaling"
    ),
    models.UnknownPreset: lambda at: models.UnknownPreset("1.8B", ["0.6B", "1.7B", "4B"]),
    models.NoWeights: lambda at: models.NoWeights("Qwen3-0.6B", ["pytorch_model.bin"]),
    models.BadWeightFile: lambda at: models.BadWeightFile(
        "model.safetensors", "its header claims 4294967296 bytes, the file holds 1200"
    ),
    models.BadWeightIndex: lambda at: models.BadWeightIndex(
        "model.safetensors.index.json", "it has no `weight_map`"
    ),
    models.OutsideModelDirectory: lambda at: models.OutsideModelDirectory(
        "model.safetensors.index.json", "../other\n/model.safetensors"
    ),
    models.MissingTensors: lambda at: models.MissingTensors(
        [f"model.layers.3.mlp.{part}_proj.weight" for part in ("down", "gate", "up")]
    ),
    models.ExtraTensors: lambda at: models.ExtraTensors(
        [f"model.layers.{i}.self_attn.q_proj.bias" for i in range(28)]
    ),
    models.WrongTensorShape: lambda at: models.WrongTensorShape(
        "model.layers.0.self_attn.q_proj.weight", [1024, 1024], [2048, 1024]
    ),
    models.WrongTensorDType: lambda at: models.WrongTensorDType(
        "model.layers.0.self_attn.q_proj.weight", "I8", ["BF16", "F16", "F32"]
    ),
    models.NoSuchLayer: lambda at: models.NoSuchLayer(28, 28),
    models.WeightsMismatch: lambda at: models.WeightsMismatch(
        1, "wq", "float32 [64, 128]", "bfloat16 [64, 128]"
    ),
    models.BadTile: lambda at: models.BadTile("k_chunk", 100, "a divisor of `hidden_size`, 1024"),
    models.BadSequenceLength: lambda at: models.BadSequenceLength(2, 0),
    models.SequenceTooLong: lambda at: models.SequenceTooLong(3, 257, 256, "the cache holds"),
    models.WrongStep: lambda at: models.WrongStep(0, 9, 7),
    models.NoFreePages: lambda at: models.NoFreePages(3, 1, 65536),
    models.WrongStackInput: lambda at: models.WrongStackInput(
        "hidden", "float32 [4, 1024]", "bfloat16 [4, 1024]"
    ),
    # E155x
    sampling.BadSampling: lambda at: sampling.BadSampling(
        "top_p", 1.5, "above 0 and at most 1, which keeps all tokens"
    ),
    sampling.WrongSamplerInput: lambda at: sampling.WrongSamplerInput(
        "float32 [2, 1000]", "float32 [2, 151936]"
    ),
    sampling.BadLogits: lambda at: sampling.BadLogits(1),
    # E156x
    checkpoint.NoCheckpoint: lambda at: checkpoint.NoCheckpoint("wq", "TILELET_CHECKPOINT"),
    checkpoint.NoSuchTensor: lambda at: checkpoint.NoSuchTensor(
        "model.layers.2.self_attn.q_proj.wieght",
        "Qwen3-0.6B",
        ["model.layers.2.self_attn.q_proj.weight", "model.norm.weight"],
    ),
    checkpoint.WrongStoredShape: lambda at: checkpoint.WrongStoredShape(
        "model.layers.0.mlp.up_proj.weight",
        (3072, 1024),
        (1024, 3072),
        "model.layers.0.mlp.up_proj.weight.T",
    ),
    checkpoint.WrongStoredDType: lambda at: checkpoint.WrongStoredDType(
        "model.layers.0.mlp.up_proj.weight", "int8", "bfloat16"
    ),
    checkpoint.BadLayerRequest: lambda at: checkpoint.BadLayerRequest(
        "the number of positions", 0, "at least 1"
    ),
    # E13xx, W13xx
    advice.CannotAdvise: lambda at: advice.CannotAdvise("kernel.py", "it runs nothing"),
    round_trip.RoundTrip: lambda at: round_trip.RoundTrip(at(SCOPE), at(SCOPE, 2), ["middle"]),
    shared_operand.SharedOperand: lambda at: shared_operand.SharedOperand(
        at(SCOPE), at(SCOPE, 2), ["pl.slice(x, [16, 512], [0, 0])"]
    ),
    twin_loops.TwinLoops: lambda at: twin_loops.TwinLoops(
        at("for r in pl.range(0, 256, 16):"),
        at("for r in pl.range(0, 256, 16):", 2),
        "pl.range(0, 256, 16)",
        ["middle"],
        [],
    ),
    read_modify_write.ReadModifyWrite: lambda at: read_modify_write.ReadModifyWrite(
        at("out[:, :] = pl.maximum(out[:, :], most)"),
        at("for c in pl.range(0, 4096, 128):"),
        "out",
        "c",
    ),
    softmax_overflow.SoftmaxOverflow: lambda at: softmax_overflow.SoftmaxOverflow(
        at("pl.exp(x[r : r + 16, :])")
    ),
    small_transfers.SmallTransfers: lambda at: small_transfers.SmallTransfers(
        at("out[r + i : r + i + 1, :]"), "out", 256, 256, stores=True
    ),
    stored_and_loaded.StoredAndLoaded: lambda at: stored_and_loaded.StoredAndLoaded(
        at("pl.slice(middle, [16, 64], [0, k])"),
        at("pl.assemble(middle, pl.exp(x[:, k : k + 64]), [0, k])"),
        "middle",
    ),
    zeros_read_back.ZerosReadBack: lambda at: zeros_read_back.ZerosReadBack(
        at("pl.slice(out, [16, 128], [0, d])"), at("for d in pl.range(0, 512, 128):"), "out"
    ),
    one_scope_tensor.OneScopeTensor: lambda at: one_scope_tensor.OneScopeTensor(
        at("pl.create_tensor([32, 64], pl.FP32)"), at(SCOPE), "both"
    ),
    launch_in_loop.LaunchInLoop: lambda at: launch_in_loop.LaunchInLoop(
        at("for k in pl.range(0, 512, 64):"), at(SCOPE, 2), "k", ["so_far"]
    ),
    no_pipeline.NoPipeline: lambda at: no_pipeline.NoPipeline(
        at("for k in pl.range(64, 512, 64):"), "k", 2
    ),
    discarded_rows.DiscardedRows: lambda at: discarded_rows.DiscardedRows(
        at("pl.matmul(q[:, :], keys[:, d : d + 128], out_dtype=pl.FP32)"),
        at("pl.slice(padded, [8, 128], [0, 0])"),
        "padded",
        8,
        16,
        "rows",
    ),
    explicit_scope.ExplicitScope: lambda at: explicit_scope.ExplicitScope(at("pl.incore()"), 3, 0),
    crossing_tensor.CrossingTensor: lambda at: crossing_tensor.CrossingTensor(
        at("for k in pl.range(0, 512, 64):"),
        at("pl.slice(middle, [16, 128], [0, d])"),
        "middle",
        65536,
    ),
    added_product.AddedProduct: lambda at: added_product.AddedProduct(
        at("pl.add(acc, part)"), "acc"
    ),
    fill.DeadFill: lambda at: fill.DeadFill(at("for d in pl.range(0, 512, 128):"), ["out"]),
    sum_in_memory.SumInMemory: lambda at: sum_in_memory.SumInMemory(
        at("pl.add(so_far, part)"),
        at("for k in pl.range(8):"),
        "pl.slice(out, [16, 128], [0, d * 128])",
        "chunk",
    ),
    sequential_loop.SequentialLoop: lambda at: sequential_loop.SequentialLoop(
        at("pl.range(0, 256, 16)"), "r"
    ),
    tile_size.TileSize: lambda at: tile_size.TileSize(at("TILE = 16"), "TILE", 16, 32),
    small_tasks.SmallTasks: lambda at: small_tasks.SmallTasks(at(SCOPE), 640, 640, 0.81, 1.99),
    few_tasks.FewTasks: lambda at: few_tasks.FewTasks(at(SCOPE), "kernel_incore_0", 6, 24),
    uneven_wave.UnevenWave: lambda at: uneven_wave.UnevenWave(
        at(SCOPE), "kernel_incore_0", 32, 24, 8
    ),
    orchestrator.OrchestratorBound: lambda at: orchestrator.OrchestratorBound(
        at(SCOPE), 33411, 0.81, "kernel_incore_0", 16000
    ),
    short_rows.ShortRows: lambda at: short_rows.ShortRows(
        at("x[:, c : c + 32]"), "x", 512, 128, 512, "a2a3"
    ),
    empty_buffers.EmptyBuffers: lambda at: empty_buffers.EmptyBuffers(
        at(SCOPE), "kernel_incore_0", "GM", "Mat", 0.06
    ),
    repeated_read.RepeatedRead: lambda at: repeated_read.RepeatedRead(
        at("pl.read(lengths, [b])"), at("pl.range(0, 512, 64)"), "pl.read(lengths, [b])"
    ),
    missing_root.MissingRoot: lambda at: missing_root.MissingRoot(at("pl.add(mean, 1e-6)")),
    hidden_equality.HiddenEquality: lambda at: hidden_equality.HiddenEquality(
        at("kv0 // HEAD_DIM"), "kv0 // HEAD_DIM", "KV_CHUNK", "HEAD_DIM"
    ),
    stale_constant.StaleConstant: lambda at: stale_constant.StaleConstant(
        at("CHUNK=64"), "CHUNK", 64, 128
    ),
    look_alike.LookAlike: lambda at: look_alike.LookAlike(at("\u00d7"), "\u00d7", "x"),
    ranks.NoMpi: lambda at: ranks.NoMpi(),
    ranks.WrongWorld: lambda at: ranks.WrongWorld(Loc(FILE, 9, 8, 9, 30), 4, 2),
    ranks.RanksDiffer: lambda at: ranks.RanksDiffer(Loc(FILE, 9, 8, 9, 30), "kernel", [1, 3]),
    ranks.NoLinks: lambda at: ranks.NoLinks("a5"),
    ranks.BadDeferredWait: lambda at: ranks.BadDeferredWait(
        Loc(FILE, 9, 8, 9, 30), "`exp` is in its scope"
    ),
    ranks.BadWorld: lambda at: ranks.BadWorld("device_ids repeat: [1, 1]"),
    ranks.BadWorker: lambda at: ranks.BadWorker("no function for the callback report"),
    ranks.BadWorkerCall: lambda at: ranks.BadWorkerCall("`host` takes 2 arguments, and gets 1"),
    ranks.WorkerClosed: lambda at: ranks.WorkerClosed("run"),
    ranks.WrongShard: lambda at: ranks.WrongShard(Loc(FILE, 9, 8, 9, 30), "x", 0, 1, 0),
    ranks.HostTooEarly: lambda at: ranks.HostTooEarly(
        Loc(FILE, 9, 8, 9, 30), "y", False, Loc(FILE, 8, 8, 8, 20)
    ),
    diverge.DivergenceBounded: lambda at: diverge.DivergenceBounded(
        "`out` differs from the golden; the mistake is in one of 2 statements", [], ["a note"]
    ),
    diverge.DivergenceNotFound: lambda at: diverge.DivergenceNotFound("out", ["a note"]),
    # E14xx
    tuner.UnknownKnob: lambda at: tuner.UnknownKnob("K_CHUNCK", ["K_CHUNK", "TILE"], "kernel.py"),
    tuner.NothingToVary: lambda at: tuner.NothingToVary(
        "kernel.py", {"ROWS": "a size of the program's parameters, or its inputs depend on it"}
    ),
    tuner.NothingFits: lambda at: tuner.NothingFits(
        "kernel.py", 12, ["12 x too large: a2a3: E0901: `acc` does not fit"]
    ),
    tuner.ChangesProblem: lambda at: tuner.ChangesProblem("ROWS", 32),
    tuner.OtherResults: lambda at: tuner.OtherResults("tune.jsonl", "line 7 is damaged"),
    tuner.BadExecutor: lambda at: tuner.BadExecutor("http://host:80"),
    tuner.SchedulerUnreachable: lambda at: tuner.SchedulerUnreachable(
        "dask://host:8786", "Connection refused"
    ),
    tuner.WorkersLost: lambda at: tuner.WorkersLost("the work was cancelled"),
    tuner.BetterValue: lambda at: tuner.BetterValue(
        at("TILE = «64»"), "TILE", 64, 128, "1.31x less us"
    ),
    # E15xx
    generate.ModelTooLarge: lambda at: generate.ModelTooLarge(
        {"layers": 64 << 30, "output head": 3 << 29, "keys and values": 1 << 30}, 24 << 30
    ),
    generate.PromptTooLong: lambda at: generate.PromptTooLong(0, 5000, 4096),
    generate.NothingToGenerate: lambda at: generate.NothingToGenerate("prompt 1 has no tokens"),
    generate.UnknownToken: lambda at: generate.UnknownToken(0, 3, 151936, 151936),
    generate.BadTokens: lambda at: generate.BadTokens("of type float64", "integers"),
    generate.NoTokenizer: lambda at: generate.NoTokenizer(
        "Qwen3-0.6B", "there is no `tokenizer.json`"
    ),
    generate.GenerateExtra: lambda at: generate.GenerateExtra("transformers", "`--compare`"),
    generate.BadGenerateSetting: lambda at: generate.BadGenerateSetting(
        "max_new_tokens", 0, "at least 1"
    ),
    generate.WeightsNotCached: lambda at: generate.WeightsNotCached(
        "weights", "No space left on device", 3 << 30
    ),
    generate.LogitsNotFinite: lambda at: generate.LogitsNotFinite(0, 3),
    generate.ReferenceFailed: lambda at: generate.ReferenceFailed(
        "Qwen3-0.6B", "RuntimeError: strides should be multiple of 16 bytes"
    ),
    # W0xxx
    cautions.RetiredSpelling: lambda at: cautions.RetiredSpelling(
        at("pl.incore()"), "pl.incore()", "pl.at(level=pl.Level.CORE_GROUP)"
    ),
    cautions.ClearedByArithmetic: lambda at: cautions.ClearedByArithmetic(
        at("pl.mul(acc, 0.0)"), "mul"
    ),
    cautions.NoEffect: lambda at: cautions.NoEffect(
        at("allow_early_resolve=True"), "`allow_early_resolve=`", "it tunes the device scheduler"
    ),
    cautions.LoopMayNotRun: lambda at: cautions.LoopMayNotRun(at("pl.range(n)"), "last"),
    cautions.OutputNotWritten: lambda at: cautions.OutputNotWritten(at("out"), "out"),
    cautions.DirectionIgnored: lambda at: cautions.DirectionIgnored(at("pl.Out"), "x"),
    cautions.PromotedToTile: lambda at: cautions.PromotedToTile(at("x[3]"), (128,), (1, 128)),
    cautions.ImplicitScope: lambda at: cautions.ImplicitScope(at("pl.mul(x, 0.0)"), "pl.mul"),
    cautions.UndividedScope: lambda at: cautions.UndividedScope(
        at("pl.parallel(0, 2, 1, chunk=1)"), "other chunk loops are in this one"
    ),
    cautions.LanesAtOnce: lambda at: cautions.LanesAtOnce(at("pl.tile.get_subblock_idx()")),
    cautions.OwnExtents: lambda at: cautions.OwnExtents(
        at("out: pl.Out"), "out", "pl.Tensor[[M, 8], pl.FP32]", "pl.Tensor[[4, 8], pl.FP32]"
    ),
    cautions.AssembleCopies: lambda at: cautions.AssembleCopies(
        at("pl.assemble(out, x, [0, 0])"), "its source is a parameter"
    ),
    cautions.HoldsForInputs: lambda at: cautions.HoldsForInputs(
        "moe", "counts", ["x", "expert"], "1c291ca3"
    ),
    cautions.ValidationSkipped: lambda at: cautions.ValidationSkipped("no golden was given"),
    # E12xx
    portability.NotInDialect: lambda at: portability.NotInDialect(
        at("pl.incore"),
        "`pl.incore`",
        "2026-08",
        "it was removed in June 2026",
        "`pl.at(level=pl.Level.CORE_GROUP)`",
    ),
    portability.NameCaptured: lambda at: portability.NameCaptured(
        at("pl.add(«total», twice)"),
        "total",
        "read in `kernel`",
        at("«total» = pl.add"),
        "assigned in `doubled`",
        "a helper's names stay visible, and overwrite the caller's variables of the same name",
    ),
    portability.OutputNotDeclared: lambda at: portability.OutputNotDeclared(
        at("out: «pl.Tensor[[16, 64], pl.FP32]»"), "out", "Out"
    ),
    portability.TupleFromHelper: lambda at: portability.TupleFromHelper(
        at("both(x)", 2), "both", at("pl.exp(x), pl.neg(x)")
    ),
    portability.OpUnderOtherName: lambda at: portability.OpUnderOtherName(
        at("times", 2), "times", "pl.mul"
    ),
    portability.HintNotLiteral: lambda at: portability.HintNotLiteral(at("NAME", 2), "square"),
    portability.ParameterAssigned: lambda at: portability.ParameterAssigned(
        at("total = pl.add(total, x)"), "total", "summed"
    ),
    portability.FormNotTaken: lambda at: portability.FormNotTaken(
        at("pl.full([16, 1], dtype=pl.FP32, value=1.0)"),
        "pl.full",
        "2026-08",
        "rows of a tile must be a multiple of 32 bytes",
        "`pl.reshape(pl.full([1, R], ...), [R, 1])`",
    ),
    portability.HelperNotTyped: lambda at: portability.HelperNotTyped(
        at("doubled(x)", 1), "parameter `x` of `doubled`", at("x: pl.Tensor")
    ),
    portability.RegionRebound: lambda at: portability.RegionRebound(
        at("pl.set_validshape(x, 16, 32)"),
        "in the control program, where there are no tiles",
        "set `valid_shape=` on the slice that the next scope loads",
    ),
    portability.NameChangesType: lambda at: portability.NameChangesType(
        at("y = pl.row_sum(y)"), "y", "pl.Tile[[16, 64], pl.FP32]", "pl.Tile[[16, 1], pl.FP32]"
    ),
    portability.TextNotTaken: lambda at: portability.TextNotTaken(
        at("row += 16"), "`+=`", "write `row = row + (16)`"
    ),
    portability.ExtentLost: lambda at: portability.ExtentLost(
        at("pl.fillpad(scores, pad_value=pl.PadValue.min)"),
        "pl.fillpad",
        at("pl.slice(k, [64, 64], [s0, 0], valid_shape=[keys, 64])"),
    ),
    portability.ExtentNotSaid: lambda at: portability.ExtentNotSaid(
        at("pl.slice(rows, [16, 32], [0, 0])"),
        "rows",
        at("pl.slice(x, [16, 64], [r0, 0], valid_shape=[known, 64])"),
    ),
    portability.LoadedWhole: lambda at: portability.LoadedWhole(
        at("pl.exp(rows)"),
        "rows",
        at("pl.slice(x, [16, 64], [r0, 0], valid_shape=[known, 64])"),
    ),
    portability.RegionTwice: lambda at: portability.RegionTwice(
        at("pl.slice(x, [16, 64], [r0, 0], valid_shape=[known, 64])"), "rows"
    ),
    portability.AxisNotSplit: lambda at: portability.AxisNotSplit(
        at("pl.assemble(out, pl.exp(product), [i, 0, 0])"), "stored into", "out"
    ),
    portability.RegionDropped: lambda at: portability.RegionDropped(
        at("pl.add(all_rows, rows)"), "pl.add", is_second=True
    ),
    portability.RegionLost: lambda at: portability.RegionLost(
        at("pl.row_max(scores)"),
        "pl.row_max",
        at("pl.slice(k, [64, 64], [0, 0], valid_shape=[n, 64])"),
    ),
    portability.CannotExport: lambda at: portability.CannotExport(
        Loc(FILE, 4, 8, 4, 14), "`TABLES`, a Python dict,"
    ),
    portability.NothingToExport: lambda at: portability.NothingToExport("kernel.py"),
    portability.SeveralToExport: lambda at: portability.SeveralToExport(["softmax", "rmsnorm"]),
    portability.UnknownDialect: lambda at: portability.UnknownDialect(
        "2025-12", ["2026-04", "2026-08"]
    ),
    ranks.NotDistributed: lambda at: ranks.NotDistributed(
        Loc(FILE, 9, 20, 9, 23), "pld.tensor.put", "dst", "`pl.Tensor[[1, 64], pl.FP32]`"
    ),
    ranks.BadSignal: lambda at: ranks.BadSignal(
        Loc(FILE, 9, 22, 9, 28), "pld.system.notify", "`target` has elements of FP32"
    ),
    ranks.TransferMismatch: lambda at: ranks.TransferMismatch(
        Loc(FILE, 9, 4, 9, 40),
        "pld.tensor.put",
        "a region needs all of `dst_offsets`, `src_offsets` and `shape`",
    ),
    ranks.WrongPlace: lambda at: ranks.WrongPlace(
        Loc(FILE, 9, 9, 9, 25), "pld.world_size", "a kernel", "the host function"
    ),
    ranks.BadDispatch: lambda at: ranks.BadDispatch(
        Loc(FILE, 9, 8, 9, 30),
        "the host function calls the kernel `step`",
        "call it from a `@pl.jit` function, and dispatch that one",
    ),
    ranks.BadDevice: lambda at: ranks.BadDevice(Loc(FILE, 9, 8, 9, 30), 4, 4),
    ranks.BadWindowBuffer: lambda at: ranks.BadWindowBuffer(
        Loc(FILE, 9, 8, 9, 30),
        "a view of 512 bytes of a window buffer of 128",
        "allocate more; the size counts bytes",
        Loc(FILE, 7, 4, 7, 40),
    ),
    ranks.NoSuchPeer: lambda at: ranks.NoSuchPeer(
        Loc(FILE, 9, 8, 9, 30), "pld.tensor.put", 2, [0, 1], "data_buf"
    ),
    ranks.BadCollective: lambda at: ranks.BadCollective(
        Loc(FILE, 9, 8, 9, 30),
        "pld.tensor.allreduce",
        "`target` and `signal` lie in one window buffer",
        "give each its own buffer",
    ),
    ranks.RanksDeadlock: lambda at: ranks.RanksDeadlock(
        [(Loc(FILE, 9, 4, 9, 30), "rank 0, `step`: sees 0, waits for 1")],
        ["rank 1 would have to notify, and has ended"],
    ),
    ranks.RanksRace: lambda at: ranks.RanksRace(
        "ranks 0 and 1 race on `data_buf` of rank 1",
        [
            (Loc(FILE, 9, 4, 9, 30), "rank 0 writes bytes 0 to 256"),
            (Loc(FILE, 12, 4, 12, 30), "rank 1 reads them"),
        ],
    ),
    ranks.SetBySeveral: lambda at: ranks.SetBySeveral(
        "signal_buf",
        0,
        [
            (Loc(FILE, 9, 4, 9, 30), "rank 1, `step`: sets bytes 0 to 3"),
            (Loc(FILE, 9, 4, 9, 30), "rank 2, `step`: sets bytes 0 to 3"),
        ],
        True,
    ),
    ranks.LineShared: lambda at: ranks.LineShared(
        ("signal_buf", "count_buf"),
        0,
        [
            (Loc(FILE, 9, 4, 9, 30), "rank 1, `step`: sets bytes 0 to 3"),
            (Loc(FILE, 12, 4, 12, 30), "rank 2, `step`: sets bytes 0 to 3"),
        ],
    ),
    ranks.NotifiedTwice: lambda at: ranks.NotifiedTwice(
        Loc(FILE, 9, 4, 9, 30), "product", Loc(FILE, 7, 4, 7, 20)
    ),
    ranks.BadSeed: lambda at: ranks.BadSeed("17"),
    ranks.RanksOnly: lambda at: ranks.RanksOnly(Loc(FILE, 9, 4, 9, 12)),
    ranks.NotInRanks: lambda at: ranks.NotInRanks(Loc(FILE, 9), "pld.tensor.put_async"),
}
