"""`pl.adir`: directions of task arguments, as in calls of printed programs.

Accepted in `attrs=` of a call, without effect: directions follow from the kernel.
"""

from tilelet.syntax.enums import ArgDirection

__all__ = ["ArgDirection", "inout", "input", "no_dep", "output", "output_existing", "scalar"]

input = ArgDirection.Input
output = ArgDirection.Output
output_existing = ArgDirection.OutputExisting
inout = ArgDirection.InOut
no_dep = ArgDirection.NoDep
scalar = ArgDirection.Scalar
