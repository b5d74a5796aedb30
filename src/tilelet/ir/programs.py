"""A class with several control programs, of which a script chooses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tilelet.diag.catalogue.names import SeveralEntries
from tilelet.ir.core import Program


@dataclass(frozen=True, slots=True, eq=False)
class Programs:
    """For each control program of a class the program that starts there, by its name."""

    name: str
    by_entry: Mapping[str, Program]

    def __getitem__(self, entry: str) -> Program:
        return self.by_entry[entry]

    def with_parameters(self, names: Collection[str]) -> Program:
        """The only one whose entry has parameters of just these names."""
        wanted = set(names)
        fitting = [p for p in self.by_entry.values() if {v.name for v in p.main.params} == wanted]
        if len(fitting) != 1:
            raise self.ambiguous()
        return fitting[0]

    def specialize(self) -> Program:
        raise self.ambiguous()

    def ambiguous(self) -> SeveralEntries:
        return SeveralEntries(self.name, [(n, p.main.loc) for n, p in self.by_entry.items()])
