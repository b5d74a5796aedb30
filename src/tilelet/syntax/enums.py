"""The enums of the language: choices that ops and markers take as arguments."""

from __future__ import annotations

import enum

from tilelet.ir.core import Direction as ParamDirection
from tilelet.ir.core import FunctionKind as FunctionType
from tilelet.ir.types import Mem

MemorySpace = Mem

__all__ = [
    "AccPhase",
    "AtomicType",
    "CachePolicy",
    "CmpType",
    "ForKind",
    "FunctionType",
    "KernelType",
    "Level",
    "LoopOrigin",
    "MaskPattern",
    "Mem",
    "MemorySpace",
    "PadValue",
    "ParamDirection",
    "PipeType",
    "Role",
    "RoundMode",
    "STPhase",
    "ScopeMode",
    "SplitMode",
    "SyncAllMode",
    "TensorLayout",
    "TilePad",
]


class PadValue(enum.Enum):
    """What `pl.fillpad` writes outside the valid region.

    `min` and `max` are the type's limits: minus and plus infinity for floats.
    """

    null = "null"
    zero = "zero"
    min = "min"
    max = "max"


TilePad = PadValue  # its first name


class AtomicType(enum.Enum):
    """How a store meets what is already in memory: `Add` adds to it, one element at a time."""

    None_ = "None_"
    Add = "Add"


class CmpType(enum.IntEnum):
    """What `pl.cmp` asks. The numbers are accepted too."""

    EQ = 0
    NE = 1
    LT = 2
    LE = 3
    GT = 4
    GE = 5


class RoundMode(enum.IntEnum):
    """How `pl.cast` rounds. The lower-case names (`"rint"`) and the numbers are accepted too."""

    NONE = 0
    RINT = 1
    ROUND = 2
    FLOOR = 3
    CEIL = 4
    TRUNC = 5
    ODD = 6


class MaskPattern(enum.IntEnum):
    """Which columns `pl.gather` picks: the last digit stands for column 0."""

    P0101 = 1
    P1010 = 2
    P0001 = 3
    P0010 = 4
    P0100 = 5
    P1000 = 6
    P1111 = 7


class TensorLayout(enum.Enum):
    """How a tensor lies in memory. Results do not depend on it; Tilelet stores row-major.

    The MX layouts are those of scales as a host packs them: data that a program is given in such a
    layout is unpacked where it is loaded.
    """

    ND = "ND"
    DN = "DN"
    NZ = "NZ"
    MX_A_ZZ = "MX_A_ZZ"
    MX_B_NN = "MX_B_NN"


class PipeType(enum.Enum):
    """The pipelines of a core, for the hand-written synchronisation ops."""

    MTE1 = "MTE1"
    MTE2 = "MTE2"
    MTE3 = "MTE3"
    M = "M"
    V = "V"
    S = "S"
    FIX = "FIX"
    ALL = "ALL"


class AccPhase(enum.Enum):
    """Where a product stands among those of one accumulator, for the device's flags only."""

    Unspecified = "unspecified"
    Partial = "partial"
    Final = "final"


class STPhase(enum.Enum):
    """Where a store stands among those of one accumulator, for the device's flags only."""

    Unspecified = "unspecified"
    Partial = "partial"
    Final = "final"


class KernelType(enum.Enum):
    """The cores of a block, for the hand-written synchronisation ops."""

    AIC = "aic"
    AIV = "aiv"
    MIX = "mix"


class SyncAllMode(enum.Enum):
    """How a device lets all blocks wait for each other; both give the same results."""

    HARD = "hard"
    SOFT = "soft"


class CachePolicy(enum.Enum):
    """Whether a device reads a tensor by way of its cache; results do not depend on it."""

    DEFAULT = "default"
    BYPASS = "bypass"


class Level(enum.Enum):
    """Where a scope runs (`pl.at(level=...)`). Tilelet runs one chip: `CORE_GROUP` only."""

    AIV = "AIV"
    AIC = "AIC"
    CORE_GROUP = "CORE_GROUP"
    CHIP_DIE = "CHIP_DIE"
    CHIP = "CHIP"
    HOST = "HOST"
    CLUSTER_0 = "CLUSTER_0"
    CLUSTER_1 = "CLUSTER_1"
    CLUSTER_2 = "CLUSTER_2"
    GLOBAL = "GLOBAL"
    # Other names of the same.
    L2CACHE = "CHIP_DIE"  # noqa: PIE796
    PROCESSOR = "CHIP"  # noqa: PIE796
    UMA = "CHIP"  # noqa: PIE796
    NODE = "HOST"  # noqa: PIE796
    POD = "CLUSTER_0"  # noqa: PIE796
    CLOS1 = "CLUSTER_1"  # noqa: PIE796
    CLOS2 = "CLUSTER_2"  # noqa: PIE796


class LoopOrigin(enum.Enum):
    """What a loop was before chunks were split: found in printed programs, without effect here."""

    Original = "Original"
    ChunkOuter = "ChunkOuter"
    ChunkInner = "ChunkInner"
    ChunkRemainder = "ChunkRemainder"


class ForKind(enum.Enum):
    """What kind of loop a `for` is, as scripts that look at programs name it."""

    Sequential = "Sequential"
    Parallel = "Parallel"
    Unroll = "Unroll"
    Pipeline = "Pipeline"


class ArgDirection(enum.Enum):
    """What a task does with an argument, as printed programs say it (`pl.adir.input`)."""

    Input = "input"
    Output = "output"
    OutputExisting = "output_existing"
    InOut = "inout"
    NoDep = "no_dep"
    Scalar = "scalar"


class Role(enum.Enum):
    """Who runs a scope above a core group. Known, not supported."""

    Orchestrator = "Orchestrator"
    Worker = "Worker"
    SubWorker = "Worker"  # noqa: PIE796


class SplitMode(enum.Enum):
    """How a scope that uses both kinds of core is shared by the two vector cores.

    Results do not depend on it.
    """

    NONE = "NONE"
    UP_DOWN = "UP_DOWN"
    LEFT_RIGHT = "LEFT_RIGHT"


class ScopeMode(enum.Enum):
    """What `pl.scope(mode=...)` does with dependencies."""

    AUTO = "AUTO"
    MANUAL = "MANUAL"
