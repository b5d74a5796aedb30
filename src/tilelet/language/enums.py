"""The enums of the language."""

from __future__ import annotations

import enum

from tilelet.ir.core import Direction as ParamDirection
from tilelet.ir.core import FunctionKind as FunctionType
from tilelet.ir.types import Mem
from tilelet.ops.enums import (
    AtomicType,
    CmpType,
    MaskPattern,
    PadValue,
    PipeType,
    RoundMode,
    TensorLayout,
)

MemorySpace = Mem

__all__ = [
    "AtomicType",
    "CmpType",
    "FunctionType",
    "Level",
    "MaskPattern",
    "Mem",
    "MemorySpace",
    "PadValue",
    "ParamDirection",
    "PipeType",
    "Role",
    "RoundMode",
    "ScopeMode",
    "SplitMode",
    "TensorLayout",
]


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


class Role(enum.Enum):
    """Who runs a scope above a core group. Known, not supported."""

    Orchestrator = "Orchestrator"
    Worker = "Worker"


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
