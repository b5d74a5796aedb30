"""`pl.tensor`: the ops of `pl` by their tensor-level names."""

# ruff: noqa: F403
from tilelet.ops import creation as _creation
from tilelet.ops import tasks as _tasks
from tilelet.ops.bitwise import *
from tilelet.ops.block_scaled import *
from tilelet.ops.broadcast import *
from tilelet.ops.cast import *
from tilelet.ops.creation import *
from tilelet.ops.elementwise import *
from tilelet.ops.gather_scatter import *
from tilelet.ops.matmul import *
from tilelet.ops.padding import *
from tilelet.ops.reduction import *
from tilelet.ops.selection import *
from tilelet.ops.sorting import *
from tilelet.ops.transfers import *
from tilelet.ops.views import *
from tilelet.syntax import markers as _markers

create = _creation.create_tensor
dump_tag = _markers.dump_tag
get_block_idx = _tasks.get_block_idx
get_block_num = _tasks.get_block_num
get_subblock_idx = _tasks.get_subblock_idx
no_dep = _markers.no_dep
view = _markers.tensor_view
