"""How each element type is stored and computed in C.

Narrow floats are computed as `float`s that the narrow type can represent; `rounded` restores this
after ops whose results may not be representable. 4-bit integers are held in bytes.
"""

from __future__ import annotations

import numpy as np

from tilelet import dtypes
from tilelet.cpu.emit.text import float_text, int_text
from tilelet.dataclasses import dataclass
from tilelet.dtypes import DType
from tilelet.numerics.undefined import poison
from tilelet.ops.reference import to_element


@dataclass(frozen=True)
class Element:
    """memory: C type in memory; number: C type for arithmetic; suffix: of `ts_*` functions."""

    dtype: DType
    memory: str
    number: str
    suffix: str
    enum: str  # `tl_dtype`

    @property
    def is_float(self) -> bool:
        return self.dtype.is_float

    @property
    def is_narrow_float(self) -> bool:
        return self.dtype.is_float and self.memory != "float"

    @property
    def is_nibble(self) -> bool:
        return not self.dtype.is_float and self.dtype.bits == 4

    def load(self, place: str) -> str:
        coded = self.is_narrow_float or self.is_nibble
        return f"ts_from_{self.suffix}({place})" if coded else place

    def store(self, number: str) -> str:
        """Return the C expression that converts `number` to its type in memory."""
        if self.dtype is dtypes.BF16:
            return f"ts_as_bf16({number})"
        if self.is_narrow_float:
            return f"ts_to_{self.suffix}({number}, TL_RINT)"
        return f"ts_to_{self.suffix}({number})" if self.is_nibble else number

    def rounded(self, number: str, mode: str = "TL_RINT") -> str:
        """Round an FP32 result to a value of the type."""
        return f"ts_round_{self.suffix}({number}, {mode})" if self.is_narrow_float else number

    def constant(self, value: float) -> str:
        """Return a constant as an element, narrowed as `numerics` does."""
        element = to_element(value, self.dtype)
        if self.is_float:
            return float_text(float(element.astype(np.float32)))
        number = int(element)
        text = int_text(number)
        return text if self.dtype.bits <= 32 else f"(({self.number}){text})"

    def from_scalar(self, scalar: str) -> str:
        """Convert a run-time scalar (an `int64_t`, `uint64_t`, `int` or `double`) to an element."""
        if self.is_float:
            return self.rounded(f"(float)(double)({scalar})")
        if self.dtype is dtypes.BOOL:
            return f"(({scalar}) != 0)"
        return self.wrapped(scalar)

    def wrapped(self, number: str) -> str:
        """Convert an integer to the width of the type."""
        text = f"({self.number})({number})"
        return f"ts_from_{self.suffix}(ts_to_{self.suffix}({text}))" if self.is_nibble else text


def _integer(dtype: DType) -> Element:
    sign = "i" if dtype.is_signed else "u"
    c_type = f"{'' if dtype.is_signed else 'u'}int{dtype.bits}_t"
    name = "INT64" if dtype is dtypes.INDEX else dtype.name
    return Element(dtype, c_type, c_type, f"{sign}{dtype.bits}", f"TL_{name}")


_ELEMENTS: dict[DType, Element] = {
    dtypes.FP32: Element(dtypes.FP32, "float", "float", "f32", "TL_FP32"),
    dtypes.BF16: Element(dtypes.BF16, "ts_bf16", "float", "bf16", "TL_BF16"),
    dtypes.FP16: Element(dtypes.FP16, "ts_f16", "float", "f16", "TL_FP16"),
    dtypes.FP8E4M3FN: Element(dtypes.FP8E4M3FN, "ts_e4m3", "float", "e4m3", "TL_FP8E4M3FN"),
    dtypes.FP8E5M2: Element(dtypes.FP8E5M2, "ts_e5m2", "float", "e5m2", "TL_FP8E5M2"),
    # No arithmetic in these types: values are only moved and converted.
    dtypes.FP8E8M0: Element(dtypes.FP8E8M0, "ts_e8m0", "float", "e8m0", "TL_UINT8"),
    dtypes.FP4: Element(dtypes.FP4, "ts_e2m1", "float", "e2m1", "TL_UINT8"),
    dtypes.HF8: Element(dtypes.HF8, "ts_hf8", "float", "hf8", "TL_UINT8"),
    dtypes.INT4: Element(dtypes.INT4, "ts_i4", "int8_t", "i4", "TL_INT8"),
    dtypes.UINT4: Element(dtypes.UINT4, "ts_u4", "uint8_t", "u4", "TL_UINT8"),
    dtypes.BOOL: Element(dtypes.BOOL, "ts_bool", "uint8_t", "u8", "TL_BOOL"),
    **{d: _integer(d) for d in dtypes.ALL if d.kind in ("int", "uint", "index")},
}


def element(dtype: DType) -> Element:
    return _ELEMENTS[dtype]


def scalar_type(dtype: DType) -> str:
    """Return the C type of a scalar of this type."""
    if dtype.is_float:
        return "double"
    if dtype is dtypes.UINT64:
        return "uint64_t"
    return "int" if dtype is dtypes.BOOL else "int64_t"


def word_field(dtype: DType) -> str:
    """Return the member of `tl_word` that holds a scalar of this type."""
    if dtype.is_float:
        return "f"
    return "u" if dtype is dtypes.UINT64 else "i"


def poison_pattern(dtype: DType) -> int:
    """Return eight bytes of the poison pattern, which fills unwritten memory."""
    return repeat_bytes(np.asarray(poison(dtype), dtype.numpy).tobytes())


def repeat_bytes(item: bytes) -> int:
    """Repeat an element's bytes to eight bytes."""
    return int.from_bytes((item * 8)[:8], "little")
