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
    """The value that `pl.fillpad` writes outside the valid region.

    `min` and `max` are the limits of the dtype: minus and plus infinity for floats.
    """

    null = "null"
    zero = "zero"
    min = "min"
    max = "max"


TilePad = PadValue  # its first name


class AtomicType(enum.Enum):
    """How a store combines with memory: `Add` adds to it, one element at a time."""

    None_ = 0
    Add = 1


class CmpType(enum.IntEnum):
    """The comparison of `pl.cmp`. The numbers are accepted too."""

    EQ = 0
    NE = 1
    LT = 2
    LE = 3
    GT = 4
    GE = 5


class RoundMode(enum.IntEnum):
    """The rounding mode of `pl.cast`. Lower-case names (`"rint"`) and numbers are accepted too."""

    NONE = 0
    RINT = 1
    ROUND = 2
    FLOOR = 3
    CEIL = 4
    TRUNC = 5
    ODD = 6


class MaskPattern(enum.IntEnum):
    """The columns that `pl.gather` picks: the last digit stands for column 0."""

    P0101 = 1
    P1010 = 2
    P0001 = 3
    P0010 = 4
    P0100 = 5
    P1000 = 6
    P1111 = 7


class TensorLayout(enum.Enum):
    """The layout of a tensor in memory. Results do not depend on it; Tilelet stores row-major.

    The MX layouts are those of scales as packed by a host. Data in such a layout is unpacked when
    it is loaded.
    """

    ND = "ND"
    DN = "DN"
    NZ = "NZ"
    MX_A_ZZ = "MX_A_ZZ"
    MX_B_NN = "MX_B_NN"


class PipeType(enum.Enum):
    """The pipelines of a core, for hand-written synchronization."""

    MTE1 = "MTE1"
    MTE2 = "MTE2"
    MTE3 = "MTE3"
    M = "M"
    V = "V"
    S = "S"
    FIX = "FIX"
    ALL = "ALL"


class AccPhase(enum.Enum):
    """The position of a product among those of one accumulator; only for the device's flags."""

    Unspecified = "unspecified"
    Partial = "partial"
    Final = "final"


class STPhase(enum.Enum):
    """The position of a store among those of one accumulator; only for the device's flags."""

    Unspecified = "unspecified"
    Partial = "partial"
    Final = "final"


class KernelType(enum.Enum):
    """The cores of a block, for hand-written synchronization."""

    AIC = "aic"
    AIV = "aiv"
    MIX = "mix"


class SyncAllMode(enum.Enum):
    """How a device synchronizes all blocks; both modes give the same results."""

    HARD = "hard"
    SOFT = "soft"


class CachePolicy(enum.Enum):
    """Whether a device reads a tensor through its cache; results do not depend on it."""

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
    # Aliases.
    L2CACHE = "CHIP_DIE"  # noqa: PIE796
    PROCESSOR = "CHIP"  # noqa: PIE796
    UMA = "CHIP"  # noqa: PIE796
    NODE = "HOST"  # noqa: PIE796
    POD = "CLUSTER_0"  # noqa: PIE796
    CLOS1 = "CLUSTER_1"  # noqa: PIE796
    CLOS2 = "CLUSTER_2"  # noqa: PIE796


class LoopOrigin(enum.Enum):
    """The origin of a loop before chunks were split; accepted in printed programs, no effect."""

    Original = "Original"
    ChunkOuter = "ChunkOuter"
    ChunkInner = "ChunkInner"
    ChunkRemainder = "ChunkRemainder"


class ForKind(enum.Enum):
    """The kind of a `for` loop, for scripts that inspect programs."""

    Sequential = "Sequential"
    Parallel = "Parallel"
    Unroll = "Unroll"
    Pipeline = "Pipeline"


class ArgDirection(enum.Enum):
    """The direction of a task argument, as in printed programs (`pl.adir.input`)."""

    Input = "input"
    Output = "output"
    OutputExisting = "output_existing"
    InOut = "inout"
    NoDep = "no_dep"
    Scalar = "scalar"


class Role(enum.Enum):
    """Who runs a scope or function above a core group."""

    Orchestrator = "Orchestrator"
    Worker = "Worker"
    SubWorker = "Worker"  # noqa: PIE796


class SplitMode(enum.Enum):
    """How the two vector cores share a scope that uses both kinds of core.

    Results do not depend on it.
    """

    NONE = "NONE"
    UP_DOWN = "UP_DOWN"
    LEFT_RIGHT = "LEFT_RIGHT"


class ScopeMode(enum.Enum):
    """How `pl.scope(mode=...)` treats dependencies."""

    AUTO = "AUTO"
    MANUAL = "MANUAL"
