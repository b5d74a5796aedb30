"""A class with several control programs, from which a script selects one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.names import SeveralEntries
from tilelet.ir.core import Program


@dataclass(frozen=True, slots=True, eq=False)
class Programs:
    """The programs of a class with several entries, by the name of the entry."""

    name: str
    by_entry: Mapping[str, Program]

    def __getitem__(self, entry: str) -> Program:
        return self.by_entry[entry]

    def with_parameters(self, names: Collection[str]) -> Program:
        """Return the only program whose entry has exactly these parameter names."""
        wanted = set(names)
        fitting = [p for p in self.by_entry.values() if {v.name for v in p.main.params} == wanted]
        if len(fitting) != 1:
            raise self.ambiguous()
        return fitting[0]

    def specialize(self) -> Program:
        raise self.ambiguous()

    def ambiguous(self) -> SeveralEntries:
        return SeveralEntries(self.name, [(n, p.main.loc) for n, p in self.by_entry.items()])
