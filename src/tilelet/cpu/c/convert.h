/* Conversions between element types, as tilelet/numerics/casts.py: exact in every rounding mode.
 *
 * Eight lanes in registers for fused loops (always inlined: pass `mode` as a constant), and
 * tl_cast_tile (tile.c) for whole tiles and all pairs of types.
 */
#ifndef TL_CONVERT_H
#define TL_CONVERT_H

#include "vec.h"

typedef enum {
    TL_FP32, TL_FP16, TL_BF16, TL_FP8E4M3FN, TL_FP8E5M2,
    TL_INT8, TL_INT16, TL_INT32, TL_INT64,
    TL_UINT8, TL_UINT16, TL_UINT32, TL_UINT64,
    TL_BOOL, /* one byte, 0 or 1 */
    TL_DTYPES
} tl_dtype;

/* The numbers of tilelet.ops.enums.RoundMode. TL_NONE: TL_TRUNC for float -> int, else TL_RINT. */
typedef enum { TL_NONE, TL_RINT, TL_ROUND, TL_FLOOR, TL_CEIL, TL_TRUNC, TL_ODD } tl_mode;

/* dst[r][c] = src[r][c] converted; ld in elements. dst may be src if both types are equally wide.
 * Returns 0, or -1 for an unknown type or mode. */
int tl_cast_tile(void *dst, int dst_type, int64_t ld_dst, const void *src, int src_type,
                 int64_t ld_src, int64_t rows, int64_t cols, int mode);

/* --- narrow floats to FP32: exact ------------------------------------------------------------- */

TL_INLINE tl_u32x8 tl_u16_to_u32(tl_u16x8 x) { return __builtin_convertvector(x, tl_u32x8); }
TL_INLINE tl_u16x8 tl_u32_to_u16(tl_u32x8 x) { return __builtin_convertvector(x, tl_u16x8); }
TL_INLINE tl_u32x8 tl_u8_to_u32(tl_u8x8 x) { return __builtin_convertvector(x, tl_u32x8); }
TL_INLINE tl_u8x8 tl_u32_to_u8(tl_u32x8 x) { return __builtin_convertvector(x, tl_u8x8); }

TL_INLINE tl_f32x8 tl_bf16_to_f32(tl_u16x8 x) { return tl_as_f32(tl_u16_to_u32(x) << 16); }
TL_INLINE tl_f32x8 tl_f16_to_f32(tl_u16x8 x);
TL_INLINE tl_f32x8 tl_f8e4m3fn_to_f32(tl_u8x8 x);
TL_INLINE tl_f32x8 tl_f8e5m2_to_f32(tl_u8x8 x);

/* --- FP32 to narrow floats, rounded once by `mode` -------------------------------------------- */

TL_INLINE tl_u16x8 tl_f32_to_bf16(tl_f32x8 x, int mode);
TL_INLINE tl_u16x8 tl_f32_to_f16(tl_f32x8 x, int mode);
TL_INLINE tl_u8x8 tl_f32_to_f8e4m3fn(tl_f32x8 x, int mode);
TL_INLINE tl_u8x8 tl_f32_to_f8e5m2(tl_f32x8 x, int mode);

/* FP32 to an integer, rounded by `mode`, saturated to [lowest, highest] (a range of at most 32 bits
 * with sign), NaN to 0: INT8, INT16, INT32, UINT8 and UINT16 by their limits. */
TL_INLINE tl_i32x8 tl_f32_to_i32(tl_f32x8 x, int32_t lowest, int32_t highest, int mode);
