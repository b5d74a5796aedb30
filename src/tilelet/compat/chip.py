"""Core counts of chips, for scripts that query `pypto.backend`."""

from __future__ import annotations

import enum

from tilelet.dataclasses import dataclass
from tilelet.ops import tasks


class CoreType(enum.Enum):
    """The two kinds of core."""

    CUBE = "CUBE"
    VECTOR = "VECTOR"


@dataclass(frozen=True)
class Core:
    core_type: CoreType


@dataclass(frozen=True, eq=False)
class Cluster:
    core_counts: dict[Core, int]


@dataclass(frozen=True, eq=False)
class Die:
    cluster_counts: dict[Cluster, int]


@dataclass(frozen=True, eq=False)
class Soc:
    die_counts: dict[Die, int]


class Backend910B:
    """The chip of A2/A3."""

    def __init__(self) -> None:
        lanes = tasks.LANES // tasks.CLUSTERS
        cluster = Cluster({Core(CoreType.CUBE): 1, Core(CoreType.VECTOR): lanes})
        self.soc = Soc({Die({cluster: tasks.CLUSTERS}): 1})

    @classmethod
    def instance(cls) -> Backend910B:
        return cls()
