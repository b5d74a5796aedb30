"""Everything `pl` offers: `import tilelet.language as pl`.

Ops are real functions with signatures and docstrings (docs/ops.md is generated from them). They
mean something only in the text of a kernel, which is parsed and never executed.
"""

# The names of this package are its interface: `as` marks them as re-exported.
# ruff: noqa: E402, F401, F403, I001
from tilelet.dtypes import (
    BF16 as BF16,
    BOOL as BOOL,
    FP8E4M3FN as FP8E4M3FN,
    FP8E5M2 as FP8E5M2,
    FP8E8M0 as FP8E8M0,
    FP4 as FP4,
    FP16 as FP16,
    FP32 as FP32,
    HF8 as HF8,
    INDEX as INDEX,
    INT4 as INT4,
    INT8 as INT8,
    INT16 as INT16,
    INT32 as INT32,
    INT64 as INT64,
    TASK_ID as TASK_ID,
    UINT4 as UINT4,
    UINT8 as UINT8,
    UINT16 as UINT16,
    UINT32 as UINT32,
    UINT64 as UINT64,
)
from tilelet.dtypes import DType as DataType
from tilelet.frontend.decorators import (
    function as function,
    inline as inline,
    jit as jit,
    program as program,
)
from tilelet.frontend.functions import KernelFunction
from tilelet.frontend.jit import JitFunction, JitRunner, run_by
from tilelet.ir.types import SymDim
from tilelet.language import (
    adir as adir,
    array as array,
    optimizations as optimizations,
    prefetch as prefetch,
    system as system,
    tensor as tensor,
    tile as tile,
)
from tilelet.language.text import (
    loads as loads,
    loads_program as loads_program,
    parse as parse,
    parse_program as parse_program,
)
from tilelet.language import op as op
from tilelet.language import parser as parser
from tilelet.language import block as block
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
from tilelet.ops.tasks import (
    get_block_idx as get_block_idx,
    get_block_num as get_block_num,
    get_subblock_idx as get_subblock_idx,
    set_cache_policy as set_cache_policy,
)
from tilelet.ops.transfers import *
from tilelet.ops.views import *
from tilelet.syntax import unsupported as unsupported
from tilelet.syntax.enums import *
from tilelet.syntax.enums import TensorLayout as TensorLayout
from tilelet.syntax.markers import *
from tilelet.syntax.pipes import *
from tilelet.syntax.types import (
    Array as Array,
    AsyncEvent as AsyncEvent,
    AsyncSession as AsyncSession,
    InOut as InOut,
    IntLike as IntLike,
    Out as Out,
    PrefetchAsyncContext as PrefetchAsyncContext,
    RUNTIME as RUNTIME,
    Scalar as Scalar,
    Tensor as Tensor,
    Tile as Tile,
    Tuple as Tuple,
)

from tilelet.syntax.views import (
    AUTO as AUTO,
    CompactMode as CompactMode,
    MemRef as MemRef,
    MemRefType as MemRefType,
    Ptr as Ptr,
    TensorView as TensorView,
    TileLayout as TileLayout,
    TileView as TileView,
)

ND = TensorLayout.ND
NZ = TensorLayout.NZ
DN = TensorLayout.DN
MX_A_ZZ = TensorLayout.MX_A_ZZ
MX_B_NN = TensorLayout.MX_B_NN
PtrType = Ptr
TaskId = Scalar[TASK_ID]
DynVar = SymDim
JITFunction = JitFunction
InlineFunction = KernelFunction


from tilelet.diag.uncaught import install as _show_messages_alone

_show_messages_alone()


def _runtime() -> JitRunner:
    from tilelet.runtime.programs import jit_call

    return jit_call


run_by(_runtime)


def __getattr__(name: str) -> object:
    """Raise for a name that is not offered, at the caller's line if Tilelet knows the name."""
    import sys

    from tilelet.diag.core import Loc

    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    unsupported.check(name, Loc(frame.f_code.co_filename, frame.f_lineno, 0, frame.f_lineno, 0))
    raise AttributeError(f"module 'tilelet.language' has no attribute {name!r}")
