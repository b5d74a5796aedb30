"""`pl.tile`: the ops of `pl` by their tile-level names."""

# ruff: noqa: F403
from tilelet.ops import creation as _creation
from tilelet.ops import gather_scatter as _gather_scatter
from tilelet.ops import matmul as _matmul
from tilelet.ops import selection as _selection
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
from tilelet.syntax import enums as _enums
from tilelet.syntax import markers as _markers
from tilelet.syntax import pipes as _pipes
from tilelet.syntax import views as _views

MaskPattern = _enums.MaskPattern
MemRefType = _views.MemRefType
batch_matmul_acc = _matmul.matmul_acc
gather_compare = _gather_scatter.gather
tpop_from_aic = _pipes.tpop_from_aic
tpop_from_aiv = _pipes.tpop_from_aiv
tpush_to_aic = _pipes.tpush_to_aic
tpush_to_aiv = _pipes.tpush_to_aiv
aic_gather = _pipes.aic_gather
aiv_shard = _pipes.aiv_shard
cmp = _selection.tile_cmp
cmps = _selection.tile_cmps
create = _creation.create_tile
get_block_idx = _tasks.get_block_idx
get_block_num = _tasks.get_block_num
get_subblock_idx = _tasks.get_subblock_idx
max = _markers.max
min = _markers.min
sel = _selection.tile_sel
select = _selection.tile_select
sels = _selection.tile_sels
sum = _markers.sum
