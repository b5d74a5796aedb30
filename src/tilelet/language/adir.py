"""`pl.adir`: what a task does with its arguments, as printed programs say it at each call.

Accepted in `attrs=` of a call, and without effect: directions follow from what a kernel does.
"""

from tilelet.syntax.enums import ArgDirection

__all__ = ["ArgDirection", "inout", "input", "no_dep", "output", "output_existing", "scalar"]

input = ArgDirection.Input
output = ArgDirection.Output
output_existing = ArgDirection.OutputExisting
inout = ArgDirection.InOut
no_dep = ArgDirection.NoDep
scalar = ArgDirection.Scalar
