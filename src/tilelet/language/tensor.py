"""`pl.tensor`: the ops by their tensor-level names. They are the same ops as in `pl`."""

# ruff: noqa: F403
from tilelet.ops import creation as _creation
from tilelet.ops.bitwise import *
from tilelet.ops.broadcast import *
from tilelet.ops.cast import *
from tilelet.ops.creation import *
from tilelet.ops.elementwise import *
from tilelet.ops.gather_scatter import *
from tilelet.ops.matmul import *
from tilelet.ops.movement import *
from tilelet.ops.padding import *
from tilelet.ops.reduction import *
from tilelet.ops.selection import *
from tilelet.ops.sorting import *

create = _creation.create_tensor
