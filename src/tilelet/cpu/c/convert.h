/* Conversions between element types, as tilelet/numerics/casts.py: exact in every rounding mode.
 *
 * Eight lanes in registers, for fused loops and matmul.c; always inlined: pass `mode` as a constant.
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

/* --- narrow floats to FP32: exact ------------------------------------------------------------- */

/* gcc 12 takes lanes apart one by one, or by four shuffles, where one instruction does it. */
TL_INLINE tl_u32x8 tl_u16_to_u32(tl_u16x8 x) {
#if defined(__AVX2__) && __has_builtin(__builtin_ia32_pmovzxwd256)
    return (tl_u32x8)__builtin_ia32_pmovzxwd256((tl_i16x8)x);
#else
    return __builtin_convertvector(x, tl_u32x8);
#endif
}

TL_INLINE tl_u16x8 tl_u32_to_u16(tl_u32x8 x) { return __builtin_convertvector(x, tl_u16x8); }
TL_INLINE tl_u8x8 tl_u32_to_u8(tl_u32x8 x) {
    return __builtin_convertvector(tl_u32_to_u16(x & 0xFF), tl_u8x8);
}

#if defined(__AVX2__) && __has_builtin(__builtin_ia32_pmovzxbd256)
typedef char tl_bytes __attribute__((vector_size(16)));
typedef int64_t tl_words __attribute__((vector_size(16)));
TL_INLINE tl_u32x8 tl_u8_to_u32(tl_u8x8 x) {
    return (tl_u32x8)__builtin_ia32_pmovzxbd256((tl_bytes)(tl_words){(int64_t)x, 0});
}
TL_INLINE tl_i32x8 tl_i8_to_i32(tl_i8x8 x) {
    return (tl_i32x8)__builtin_ia32_pmovsxbd256((tl_bytes)(tl_words){(int64_t)x, 0});
}
#else
TL_INLINE tl_u32x8 tl_u8_to_u32(tl_u8x8 x) { return __builtin_convertvector(x, tl_u32x8); }
TL_INLINE tl_i32x8 tl_i8_to_i32(tl_i8x8 x) { return __builtin_convertvector(x, tl_i32x8); }
#endif

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

/* --- typed loads and stores for fused loops: tl_load_bf16(p) gives FP32 lanes, -----------------
 * tl_store_bf16(p, x) rounds by `rint`, the contract of every op on narrow floats; loadn/storen as
 * in vec.h. Names: bf16, f16 (uint16_t memory), f8e4m3fn, f8e5m2 (uint8_t memory). */
#define TL_DEFINE_FLOAT_MEMORY(name, elem, bits)                                                \
    TL_INLINE tl_f32x8 tl_load_##name(const elem *p) {                                          \
        return tl_##name##_to_f32(tl_load_##bits(p));                                           \
    }                                                                                           \
    TL_INLINE tl_f32x8 tl_loadn_##name(const elem *p, int n) {                                  \
        return tl_##name##_to_f32(tl_loadn_##bits(p, n));                                       \
    }                                                                                           \
    TL_INLINE void tl_store_##name(elem *p, tl_f32x8 x) {                                       \
        tl_store_##bits(p, tl_f32_to_##name(x, TL_RINT));                                       \
    }                                                                                           \
    TL_INLINE void tl_storen_##name(elem *p, tl_f32x8 x, int n) {                               \
        tl_storen_##bits(p, tl_f32_to_##name(x, TL_RINT), n);                                   \
    }
TL_DEFINE_FLOAT_MEMORY(bf16, uint16_t, u16)
TL_DEFINE_FLOAT_MEMORY(f16, uint16_t, u16)
TL_DEFINE_FLOAT_MEMORY(f8e4m3fn, uint8_t, u8)
TL_DEFINE_FLOAT_MEMORY(f8e5m2, uint8_t, u8)
#undef TL_DEFINE_FLOAT_MEMORY

/* --- implementation --------------------------------------------------------------------------- */

#define TL_FP32_INF 0x7F800000

/* Exponent and mantissa fields, moved to FP32's place, times the power of two that re-biases them:
 * exact, subnormals included. Codes from `special` on are infinity and NaN. */
TL_INLINE tl_f32x8 tl_rebias(tl_u32x8 magnitude, tl_u32x8 sign, float scale, uint32_t special) {
    tl_f32x8 value = tl_as_f32(magnitude) * scale;
    tl_i32x8 is_special = tl_as_i32(magnitude) >= (int32_t)special;
    tl_u32x8 all_ones_exponent = magnitude | TL_FP32_INF;
    return tl_as_f32(tl_select_u32(is_special, all_ones_exponent, tl_as_u32(value)) | sign);
}

TL_INLINE tl_f32x8 tl_f16_to_f32(tl_u16x8 x) {
#if defined(__F16C__) && __has_builtin(__builtin_ia32_vcvtph2ps256)
    return __builtin_ia32_vcvtph2ps256((tl_i16x8)x);
#else
    tl_u32x8 bits = tl_u16_to_u32(x);
    return tl_rebias((bits & 0x7FFF) << 13, (bits & 0x8000) << 16, 0x1p112f, 0x7C00 << 13);
#endif
}

TL_INLINE tl_f32x8 tl_f8e5m2_to_f32(tl_u8x8 x) {
    tl_u32x8 bits = tl_u8_to_u32(x);
    return tl_rebias((bits & 0x7F) << 21, (bits & 0x80) << 24, 0x1p112f, 0x7C << 21);
}

TL_INLINE tl_f32x8 tl_f8e4m3fn_to_f32(tl_u8x8 x) {
    tl_u32x8 bits = tl_u8_to_u32(x);
    return tl_rebias((bits & 0x7F) << 20, (bits & 0x80) << 24, 0x1p120f, 0x7F << 20);
}

/* `fixed >> shift`, rounded by the mode as the magnitude of a number of the given sign (a mask). */
TL_INLINE tl_u32x8 tl_shift_rounded(tl_u32x8 fixed, tl_u32x8 shift, tl_u32x8 negative, int mode) {
    tl_u32x8 below_one = (tl_splat_u32(1) << shift) - 1; /* the largest discarded part */
    switch (mode) {
    case TL_TRUNC: return fixed >> shift;
    case TL_ODD: return (fixed >> shift) | (tl_as_u32((fixed & below_one) != 0) & 1);
    case TL_ROUND: return (fixed + ((below_one >> 1) + 1)) >> shift;
    case TL_FLOOR: return (fixed + (negative & below_one)) >> shift;
    case TL_CEIL: return (fixed + (~negative & below_one)) >> shift;
    default: return (fixed + (below_one >> 1) + ((fixed >> shift) & 1)) >> shift;
    }
}

/* A float type narrower than FP32; codes are without the sign bit. `infinity` is the largest finite
 * value again where the type has no infinity. */
typedef struct {
    uint32_t mantissa_bits, bias, sign_bit, largest, infinity, nan;
} tl_format;

#define TL_FORMAT_FP16 ((tl_format){10, 15, 15, 0x7BFF, 0x7C00, 0x7E00})
#define TL_FORMAT_BF16 ((tl_format){7, 127, 15, 0x7F7F, 0x7F80, 0x7FC0})
#define TL_FORMAT_FP8E4M3FN ((tl_format){3, 7, 7, 0x7E, 0x7E, 0x7F})
#define TL_FORMAT_FP8E5M2 ((tl_format){2, 15, 7, 0x7B, 0x7C, 0x7E})

/* Code of a magnitude before overflow is looked at. A float's code counts its values in order, so
 * rounding up is code + 1, also across binades and from subnormal to normal. */
TL_INLINE tl_u32x8 tl_narrow_magnitude(tl_u32x8 magnitude, tl_u32x8 negative, tl_format to,
                                       int mode) {
    uint32_t drop = 23 - to.mantissa_bits;
    uint32_t first_normal = 127 - to.bias + 1; /* FP32 exponent field of the smallest normal */
    if (first_normal == 1) return tl_shift_rounded(magnitude, tl_splat_u32(drop), negative, mode);
    tl_i32x8 subnormal = tl_as_i32(magnitude) < (int32_t)(first_normal << 23);
    tl_u32x8 fixed = magnitude - ((first_normal - 1) << 23);
    if (!tl_any(subnormal)) return tl_shift_rounded(fixed, tl_splat_u32(drop), negative, mode);
    tl_u32x8 exponent = magnitude >> 23;
    tl_u32x8 has_hidden_bit = tl_as_u32(exponent != 0);
    tl_u32x8 significand = (magnitude & 0x7FFFFF) | (has_hidden_bit & 0x800000);
    /* The exponent field 0 counts as 1; a shift by 25 already leaves less than half a last place. */
    tl_u32x8 more = first_normal - (exponent + (~has_hidden_bit & 1));
    tl_u32x8 shift = tl_select_u32(tl_as_i32(more) > (int32_t)(25 - drop), tl_splat_u32(25),
                                   more + drop);
    return tl_shift_rounded(tl_select_u32(subnormal, significand, fixed),
                            tl_select_u32(subnormal, shift, tl_splat_u32(drop)), negative, mode);
}

TL_INLINE tl_u32x8 tl_f32_to_code(tl_f32x8 x, tl_format to, int mode) {
    tl_u32x8 bits = tl_as_u32(x);
    tl_u32x8 magnitude = bits & 0x7FFFFFFF;
    tl_u32x8 negative = tl_as_u32(tl_as_i32(bits) >> 31);
    tl_u32x8 code = tl_narrow_magnitude(magnitude, negative, to, mode);
    tl_u32x8 largest = tl_splat_u32(to.largest), infinity = tl_splat_u32(to.infinity);
    tl_u32x8 overflow = infinity;
    if (mode == TL_TRUNC || mode == TL_ODD) overflow = largest;
    if (mode == TL_FLOOR) overflow = tl_select_u32(tl_as_i32(negative), infinity, largest);
    if (mode == TL_CEIL) overflow = tl_select_u32(tl_as_i32(negative), largest, infinity);
    code = tl_select_u32(tl_as_i32(code) > (int32_t)to.largest, overflow, code);
    code = tl_select_u32(magnitude == TL_FP32_INF, infinity, code);
    code = tl_select_u32(tl_as_i32(magnitude) > TL_FP32_INF, tl_splat_u32(to.nan), code);
    return code | ((bits >> 31) << to.sign_bit);
}

TL_INLINE tl_u16x8 tl_f32_to_bf16(tl_f32x8 x, int mode) {
    if (mode != TL_RINT && mode != TL_ROUND && mode != TL_NONE)
        return tl_u32_to_u16(tl_f32_to_code(x, TL_FORMAT_BF16, mode));
    /* Nearest: a carry out of the largest finite value gives infinity by itself. */
    tl_u32x8 bits = tl_as_u32(x);
    tl_u32x8 half = mode == TL_ROUND ? tl_splat_u32(0x8000) : 0x7FFF + ((bits >> 16) & 1);
    tl_u32x8 quiet_nan = (bits >> 16) | 0x40;
    return tl_u32_to_u16(tl_select_u32(x != x, quiet_nan, (bits + half) >> 16));
}

TL_INLINE tl_u16x8 tl_f32_to_f16(tl_f32x8 x, int mode) {
#if defined(__F16C__) && __has_builtin(__builtin_ia32_vcvtps2ph256)
    if (mode == TL_RINT || mode == TL_NONE) return (tl_u16x8)__builtin_ia32_vcvtps2ph256(x, 0);
#endif
    return tl_u32_to_u16(tl_f32_to_code(x, TL_FORMAT_FP16, mode));
}

TL_INLINE tl_u8x8 tl_f32_to_f8e4m3fn(tl_f32x8 x, int mode) {
    return tl_u32_to_u8(tl_f32_to_code(x, TL_FORMAT_FP8E4M3FN, mode));
}

TL_INLINE tl_u8x8 tl_f32_to_f8e5m2(tl_f32x8 x, int mode) {
    return tl_u32_to_u8(tl_f32_to_code(x, TL_FORMAT_FP8E5M2, mode));
}

/* The integral value next to x by the mode, as FP32 (the sign of a zero is lost). */
TL_INLINE tl_f32x8 tl_round_to_integral(tl_f32x8 x, int mode) {
    tl_f32x8 magnitude = tl_as_f32(tl_as_u32(x) & 0x7FFFFFFF);
    tl_i32x8 has_fraction = magnitude < 0x1p23f; /* false for NaN */
    tl_f32x8 small = tl_as_f32(tl_as_i32(x) & has_fraction);
    tl_i32x8 whole = __builtin_convertvector(small, tl_i32x8);
    tl_f32x8 towards_zero = __builtin_convertvector(whole, tl_f32x8);
    tl_f32x8 fraction = tl_as_f32(tl_as_u32(small - towards_zero) & 0x7FFFFFFF); /* exact */
    tl_i32x8 step; /* -1 where the magnitude is rounded up */
    switch (mode) {
    case TL_RINT: step = (fraction > 0.5f) | ((fraction == 0.5f) & -(whole & 1)); break;
    case TL_ROUND: step = fraction >= 0.5f; break;
    case TL_FLOOR: step = small < towards_zero; break;
    case TL_CEIL: step = small > towards_zero; break;
    case TL_ODD: step = (fraction > 0.0f) & ((whole & 1) - 1); break;
    default: step = tl_splat_i32(0); break;
    }
    tl_i32x8 sign = (tl_as_i32(x) >> 31) | 1;
    tl_i32x8 rounded = whole + (step & sign);
    return tl_select(has_fraction, __builtin_convertvector(rounded, tl_f32x8), x);
}

TL_INLINE tl_i32x8 tl_f32_to_i32(tl_f32x8 x, int32_t lowest, int32_t highest, int mode) {
    tl_f32x8 integral = tl_round_to_integral(x, mode == TL_NONE ? TL_TRUNC : mode);
    integral = tl_as_f32(tl_as_i32(integral) & (x == x));
    /* 2^31 - 1 is no FP32 value: the one below it is what can be converted. */
    float top = highest == INT32_MAX ? 0x1.fffffep30f : (float)highest;
    tl_i32x8 above = integral > top;
    tl_i32x8 below = integral < (float)lowest;
    tl_f32x8 inside = tl_as_f32(tl_as_i32(integral) & ~(above | below));
    tl_i32x8 result = __builtin_convertvector(inside, tl_i32x8);
    result = tl_select_i32(above, tl_splat_i32(highest), result);
    return tl_select_i32(below, tl_splat_i32(lowest), result);
}

/* INT32 to FP32 by `rint`; narrower integers are widened first (exact). */
TL_INLINE tl_f32x8 tl_i32_to_f32(tl_i32x8 x) { return __builtin_convertvector(x, tl_f32x8); }

#endif
