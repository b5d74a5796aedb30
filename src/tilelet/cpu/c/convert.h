/* Element types, and exact conversions of eight lanes of each to FP32, as read by matmul.c. */
#ifndef TL_CONVERT_H
#define TL_CONVERT_H

#include "vec.h"

typedef enum {
    TL_FP32,
    TL_FP16,
    TL_BF16,
    TL_FP8E4M3FN,
    TL_FP8E5M2,
    TL_INT8,
    TL_INT16,
    TL_INT32,
    TL_INT64,
    TL_UINT8,
    TL_UINT16,
    TL_UINT32,
    TL_UINT64,
    TL_BOOL, /* one byte, 0 or 1 */
    TL_DTYPES
} tl_dtype;

/* Values of tilelet.syntax.enums.RoundMode. TL_NONE: TL_TRUNC for float -> int, else TL_RINT. */
typedef enum { TL_NONE, TL_RINT, TL_ROUND, TL_FLOOR, TL_CEIL, TL_TRUNC, TL_ODD } tl_mode;

/* gcc 12 extracts lanes one by one, or by four shuffles, where one instruction suffices. */
TL_INLINE tl_u32x8 tl_u16_to_u32(tl_u16x8 x) {
#if defined(__AVX2__) && __has_builtin(__builtin_ia32_pmovzxwd256)
    return (tl_u32x8)__builtin_ia32_pmovzxwd256((tl_i16x8)x);
#else
    return __builtin_convertvector(x, tl_u32x8);
#endif
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
#define TL_FP32_INF 0x7F800000

/* Exponent and mantissa fields, shifted to FP32's position, times the power of two that corrects
 * the bias: exact, also for subnormals. Codes from `special` on are infinity and NaN. */
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

/* tl_load_bf16(p) etc. return FP32 lanes; `n` forms as in vec.h. */
#define TL_DEFINE_FLOAT_MEMORY(name, elem, bits)                                                   \
    TL_INLINE tl_f32x8 tl_load_##name(const elem *p) {                                             \
        return tl_##name##_to_f32(tl_load_##bits(p));                                              \
    }                                                                                              \
    TL_INLINE tl_f32x8 tl_loadn_##name(const elem *p, int n) {                                     \
        return tl_##name##_to_f32(tl_loadn_##bits(p, n));                                          \
    }
TL_DEFINE_FLOAT_MEMORY(bf16, uint16_t, u16)
TL_DEFINE_FLOAT_MEMORY(f16, uint16_t, u16)
TL_DEFINE_FLOAT_MEMORY(f8e4m3fn, uint8_t, u8)
TL_DEFINE_FLOAT_MEMORY(f8e5m2, uint8_t, u8)
#undef TL_DEFINE_FLOAT_MEMORY

/* INT32 to FP32 with `rint`; narrower integers are widened first (exact). */
TL_INLINE tl_f32x8 tl_i32_to_f32(tl_i32x8 x) { return __builtin_convertvector(x, tl_f32x8); }

#endif
