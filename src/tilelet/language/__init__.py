"""Everything `pl` offers: `import tilelet.language as pl`.

Ops are real functions with signatures and docstrings (docs/ops.md is made of them); they mean
something only in the text of a kernel, which is parsed and never executed.
"""

# Names of this package are its surface: they are imported to be used by others.
# ruff: noqa: F401, F403
from tilelet.dtypes import (
    BF16,
    BOOL,
    FP8E4M3FN,
    FP8E5M2,
    FP16,
    FP32,
    INDEX,
    INT8,
    INT16,
    INT32,
    INT64,
    TASK_ID,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
)
from tilelet.dtypes import DType as DataType
from tilelet.frontend.decorators import function, inline, jit, program
from tilelet.language import array, system, tensor, tile
from tilelet.language.text import parse
from tilelet.ops.bitwise import *
from tilelet.ops.broadcast import *
from tilelet.ops.cast import *
from tilelet.ops.creation import *
from tilelet.ops.elementwise import *
from tilelet.ops.gather_sort import *
from tilelet.ops.matmul import *
from tilelet.ops.movement import *
from tilelet.ops.padding import *
from tilelet.ops.reduction import *
from tilelet.ops.selection import *
from tilelet.ops.tasks import get_block_idx, get_block_num, get_subblock_idx
from tilelet.syntax import unsupported
from tilelet.syntax.enums import *
from tilelet.syntax.enums import TensorLayout
from tilelet.syntax.markers import *
from tilelet.syntax.types import Array, InOut, Out, Scalar, Tensor, Tile, Tuple

ND = TensorLayout.ND
NZ = TensorLayout.NZ
DN = TensorLayout.DN


def __getattr__(name: str) -> object:
    """A name that is not offered: say so at the line, if it is one Tilelet knows of."""
    import sys

    from tilelet.diag.core import Loc

    frame = sys._getframe(1)
    unsupported.check(name, Loc(frame.f_code.co_filename, frame.f_lineno, 0, frame.f_lineno, 0))
    raise AttributeError(f"module 'tilelet.language' has no attribute {name!r}")
