/* Element types and arithmetic, bit for bit as defined by src/tilelet/numerics.
 *
 * BF16, FP16 and FP8 values are computed as `float`; a result is rounded to its type after every op
 * (`ts_round_*`). Functions take one element, for generated loops, and are branch-free where it
 * matters, so that the compiler vectorizes the loops they are inlined into. */
#ifndef TL_NUMBERS_H
#define TL_NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "convert.h" /* tl_mode */

typedef uint16_t ts_bf16;
typedef uint16_t ts_f16;
typedef uint8_t ts_e4m3;
typedef uint8_t ts_e5m2;
typedef uint8_t ts_e8m0;
typedef uint8_t ts_e2m1;
typedef uint8_t ts_hf8;
typedef uint8_t ts_i4; /* one element per byte, in its lower half */
typedef uint8_t ts_u4;
typedef uint8_t ts_bool;

TL_INLINE float ts_f32(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

TL_INLINE uint32_t ts_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

TL_INLINE int64_t ts_min(int64_t a, int64_t b) { return a < b ? a : b; }
TL_INLINE int64_t ts_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* --- narrower floats to FP32: exact ------------------------------------------------------------ */

TL_INLINE float ts_from_bf16(ts_bf16 h) { return ts_f32((uint32_t)h << 16); }

/* The shifted fields are the value times 2^-112: one exact product corrects that, also for
 * subnormals. */
TL_INLINE float ts_from_f16(ts_f16 h) {
    uint32_t fields = (uint32_t)(h & 0x7fff) << 13;
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t finite = ts_bits(ts_f32(fields) * 0x1p112f);
    return ts_f32(sign | (fields >= 0x0f800000 ? fields | 0x7f800000 : finite));
}

TL_INLINE float ts_from_e5m2(ts_e5m2 h) { return ts_from_f16((ts_f16)(h << 8)); }

TL_INLINE float ts_from_e4m3(ts_e4m3 h) {
    uint32_t fields = (uint32_t)(h & 0x7f) << 20;
    uint32_t sign = (uint32_t)(h & 0x80) << 24;
    uint32_t finite = ts_bits(ts_f32(fields) * 0x1p120f);
    return ts_f32(sign | ((h & 0x7f) == 0x7f ? 0x7fc00000u : finite));
}

/* A power of two: 2^(h - 127), the smallest of which is subnormal; 255 is NaN. */
TL_INLINE float ts_from_e8m0(ts_e8m0 h) {
    uint32_t bits = (uint32_t)h << 23;
    return ts_f32(h == 255 ? 0x7fc00000u : h == 0 ? 0x00400000u : bits);
}

TL_INLINE float ts_from_e2m1(ts_e2m1 h) {
    uint32_t fields = (uint32_t)(h & 7) << 22;
    uint32_t sign = (uint32_t)(h & 8) << 28;
    return ts_f32(sign | ts_bits(ts_f32(fields) * 0x1p126f));
}

/* HiFloat8: numerics/hifloat8.py has the table of its fields. */
TL_INLINE float ts_from_hf8(ts_hf8 h) {
    uint32_t code = h & 0x7f, sign = (uint32_t)(h & 0x80) << 24;
    uint32_t width = code >= 0x60 ? 4 : code >= 0x40 ? 3 : code >= 0x20 ? 2 : code >= 0x10;
    uint32_t mantissa = width == 4 ? 1 : width == 3 ? 2 : 3;
    uint32_t field = code >> mantissa & ((1u << width) - 1), leading = (1u << width) >> 1;
    int32_t exponent = (int32_t)(leading | (field & (leading - 1)));
    exponent = field & leading ? -exponent : exponent;
    uint32_t kept = (code & ((1u << mantissa) - 1)) << (23 - mantissa);
    uint32_t bits = (uint32_t)(127 + exponent) << 23 | kept;
    if (code < 8) bits = code ? (127 - 23 + code) << 23 : h ? 0x7fc00000u : 0;
    if (code == 0x6f) bits = 0x7f800000u;
    return ts_f32(bits | sign);
}

/* --- 4-bit integers, which are computed in bytes --------------------------------------------- */

TL_INLINE int8_t ts_from_i4(ts_i4 h) { return (int8_t)((h & 7) - (h & 8)); }
TL_INLINE uint8_t ts_from_u4(ts_u4 h) { return h & 15; }
TL_INLINE ts_i4 ts_to_i4(int8_t x) { return (ts_i4)(x & 15); }
TL_INLINE ts_u4 ts_to_u4(uint8_t x) { return x & 15; }

/* --- FP32 to narrower floats, in every mode ---------------------------------------------------- */

/* `fixed >> shift` as the magnitude of a number of the given sign. */
TL_INLINE uint32_t ts_shift(uint32_t fixed, uint32_t shift, uint32_t negative, int mode) {
    uint32_t below_one = (1u << shift) - 1;
    switch (mode) {
    case TL_TRUNC: return fixed >> shift;
    case TL_ODD: return (fixed >> shift) | ((fixed & below_one) != 0);
    case TL_ROUND: return (fixed + ((1u << shift) >> 1)) >> shift;
    case TL_RINT: return (fixed + (below_one >> 1) + (((fixed >> shift) & 1) & below_one)) >> shift;
    case TL_FLOOR: return (fixed + (negative ? below_one : 0)) >> shift;
    default: return (fixed + (negative ? 0 : below_one)) >> shift;
    }
}

/* The code of a float is its ordinal, so the next value up is code + 1, also across binades. All
 * arguments but `bits` are constants after inlining. */
TL_INLINE uint32_t ts_narrow(uint32_t bits, uint32_t mantissa, uint32_t bias, uint32_t max_code,
                             uint32_t inf_code, uint32_t nan_code, uint32_t width, int mode) {
    uint32_t negative = bits >> 31, magnitude = bits & 0x7fffffff;
    uint32_t drop = 23 - mantissa, first_normal = 127 - bias + 1, code;
    if (first_normal == 1) {
        code = ts_shift(magnitude, drop, negative, mode);
    } else {
        uint32_t exponent = magnitude >> 23;
        uint32_t significand = (magnitude & 0x7fffff) | (exponent ? 0x800000u : 0);
        uint32_t shift = drop + first_normal - (exponent > 1 ? exponent : 1);
        uint32_t fixed = magnitude - ((first_normal - 1) << 23);
        uint32_t small = magnitude < (first_normal << 23);
        shift = small ? (shift < 25 ? shift : 25) : drop;
        code = ts_shift(small ? significand : fixed, shift, negative, mode);
    }
    int to_infinity = mode == TL_RINT || mode == TL_ROUND || (mode == TL_FLOOR && negative) ||
                      (mode == TL_CEIL && !negative);
    code = code > max_code ? (to_infinity ? inf_code : max_code) : code;
    code = magnitude == 0x7f800000 ? inf_code : code;
    code = magnitude > 0x7f800000 ? nan_code : code;
    return code | negative << (width - 1);
}

TL_INLINE ts_bf16 ts_to_bf16(float f, int mode) {
    if (mode == TL_RINT || mode == TL_ROUND) {
        /* Rounding up the greatest finite number yields the code of infinity. What NaN adds is
         * selected, not its code: gcc 12 would narrow both codes before it selects one. */
        uint32_t bits = ts_bits(f), up = mode == TL_RINT ? 0x7fff + (bits >> 16 & 1) : 0x8000;
        uint32_t nan = (bits & 0x80000000) | 0x7fc00000;
        return (ts_bf16)((bits + (f != f ? nan - bits : up)) >> 16);
    }
    return (ts_bf16)ts_narrow(ts_bits(f), 7, 127, 0x7f7f, 0x7f80, 0x7fc0, 16, mode);
}
TL_INLINE ts_f16 ts_to_f16(float f, int mode) {
    return (ts_f16)ts_narrow(ts_bits(f), 10, 15, 0x7bff, 0x7c00, 0x7e00, 16, mode);
}
TL_INLINE ts_e4m3 ts_to_e4m3(float f, int mode) {
    return (ts_e4m3)ts_narrow(ts_bits(f), 3, 7, 0x7e, 0x7e, 0x7f, 8, mode);
}
TL_INLINE ts_e5m2 ts_to_e5m2(float f, int mode) {
    return (ts_e5m2)ts_narrow(ts_bits(f), 2, 15, 0x7b, 0x7c, 0x7e, 8, mode);
}

/* Only for representable values: programs do not round to these two. */
TL_INLINE ts_e8m0 ts_to_e8m0(float f, int mode) {
    (void)mode;
    return (ts_e8m0)(f != f ? 255 : ts_bits(f) >> 23);
}
TL_INLINE ts_e2m1 ts_to_e2m1(float f, int mode) {
    return (ts_e2m1)ts_narrow(ts_bits(f), 1, 1, 0x7, 0x7, 0x7, 4, mode);
}

/* Round at the last place that HF8 has at each exponent; codes of FP32 count in its binades. */
TL_INLINE ts_hf8 ts_to_hf8(float f, int mode) {
    uint32_t bits = ts_bits(f), negative = bits >> 31, magnitude = bits & 0x7fffffff;
    int32_t exponent = (int32_t)(magnitude >> 23) - 127;
    uint32_t apart = (uint32_t)(exponent < 0 ? -exponent : exponent);
    uint32_t mantissa = apart <= 3 ? 3 : apart <= 7 ? 2 : exponent >= -15;
    uint32_t code = ts_shift(magnitude, 23 - mantissa, negative, mode) << (23 - mantissa);
    if (exponent < -22) { /* to 0 or the smallest number */
        uint32_t significand = (magnitude & 0x7fffff) | (exponent > -127 ? 0x800000u : 0);
        int32_t shift = 1 - exponent < 25 ? 1 - exponent : 25;
        code = ts_shift(significand, (uint32_t)shift, negative, mode) ? 105u << 23 : 0;
    }
    int to_infinity = mode == TL_RINT || mode == TL_ROUND || (mode == TL_FLOOR && negative) ||
                      (mode == TL_CEIL && !negative) || magnitude == 0x7f800000;
    if (f != f) return 0x80;
    if (code > 142u << 23) return (ts_hf8)((to_infinity ? 0x6f : 0x6e) | negative << 7);
    if (!code) return 0;
    exponent = (int32_t)(code >> 23) - 127;
    if (exponent < -15) return (ts_hf8)((uint32_t)(exponent + 23) | negative << 7);
    uint32_t below = exponent < 0;
    apart = (uint32_t)(exponent < 0 ? -exponent : exponent);
    mantissa = apart <= 3 ? 3 : apart <= 7 ? 2 : 1;
    uint32_t kept = (code & 0x7fffff) >> (23 - mantissa), field;
    if (!apart)
        field = 0x08 | kept;
    else if (apart == 1)
        field = 0x10 | below << 3 | kept;
    else if (apart <= 3)
        field = 0x20 | below << 4 | (apart & 1) << 3 | kept;
    else if (apart <= 7)
        field = 0x40 | below << 4 | (apart & 3) << 2 | kept;
    else
        field = 0x60 | below << 4 | (apart & 7) << 1 | kept;
    return (ts_hf8)(field | negative << 7);
}

/* For a representable value: needs no rounding. */
TL_INLINE ts_bf16 ts_as_bf16(float f) { return (ts_bf16)(ts_bits(f) >> 16); }

TL_INLINE float ts_round_bf16(float f, int mode) { return ts_from_bf16(ts_to_bf16(f, mode)); }
TL_INLINE float ts_round_f16(float f, int mode) { return ts_from_f16(ts_to_f16(f, mode)); }
TL_INLINE float ts_round_e4m3(float f, int mode) { return ts_from_e4m3(ts_to_e4m3(f, mode)); }
TL_INLINE float ts_round_e5m2(float f, int mode) { return ts_from_e5m2(ts_to_e5m2(f, mode)); }
TL_INLINE float ts_round_e8m0(float f, int mode) { return ts_from_e8m0(ts_to_e8m0(f, mode)); }
TL_INLINE float ts_round_e2m1(float f, int mode) { return ts_from_e2m1(ts_to_e2m1(f, mode)); }
TL_INLINE float ts_round_hf8(float f, int mode) { return ts_from_hf8(ts_to_hf8(f, mode)); }

/* --- floats to integers and back --------------------------------------------------------------- */

TL_INLINE float ts_integral(float x, int mode) {
    switch (mode) {
    case TL_RINT: return __builtin_rintf(x);
    case TL_FLOOR: return __builtin_floorf(x);
    case TL_CEIL: return __builtin_ceilf(x);
    default: break;
    }
    float whole = __builtin_truncf(x), part = __builtin_fabsf(x - whole);
    if (mode == TL_TRUNC) return whole;
    float half = whole * 0.5f;
    int step = mode == TL_ROUND ? part >= 0.5f : part > 0.0f && half == __builtin_truncf(half);
    return step ? whole + __builtin_copysignf(1.0f, x) : whole;
}

/* `top` is the greatest float that the type can represent. Adding 0 turns -0 into +0: without it
 * gcc (12, -O3 -fno-trapping-math) replaces a conversion to an integer and back by `trunc`, which
 * keeps -0. */
#define TL_F32_TO_INT(name, type, lowest, highest, low, top)                                       \
    TL_INLINE type ts_f32_to_##name(float x, int mode) {                                           \
        float v = ts_integral(x, mode) + 0.0f;                                                     \
        int inside = v >= (low) && v <= (top);                                                     \
        type kept = (type)(inside ? v : 0.0f);                                                     \
        return v > (top) ? (highest) : v < (low) ? (lowest) : kept;                                \
    }
TL_F32_TO_INT(i8, int8_t, INT8_MIN, INT8_MAX, -0x1p7f, 127.0f)
TL_F32_TO_INT(i4, int8_t, -8, 7, -8.0f, 7.0f)
TL_F32_TO_INT(u4, uint8_t, 0, 15, 0.0f, 15.0f)
TL_F32_TO_INT(i16, int16_t, INT16_MIN, INT16_MAX, -0x1p15f, 32767.0f)
TL_F32_TO_INT(i32, int32_t, INT32_MIN, INT32_MAX, -0x1p31f, 0x1.fffffep30f)
TL_F32_TO_INT(i64, int64_t, INT64_MIN, INT64_MAX, -0x1p63f, 0x1.fffffep62f)
TL_F32_TO_INT(u8, uint8_t, 0, UINT8_MAX, 0.0f, 255.0f)
TL_F32_TO_INT(u16, uint16_t, 0, UINT16_MAX, 0.0f, 65535.0f)
TL_F32_TO_INT(u32, uint32_t, 0, UINT32_MAX, 0.0f, 0x1.fffffep31f)
TL_F32_TO_INT(u64, uint64_t, 0, UINT64_MAX, 0.0f, 0x1.fffffep63f)

/* Convert an integer, given as sign and magnitude, to FP32. */
TL_INLINE float ts_int_to_f32(uint64_t magnitude, int negative, int mode) {
    float result;
    if (mode == TL_RINT || magnitude <= (1u << 24)) {
        result = (float)magnitude;
    } else {
        int drop = 64 - __builtin_clzll(magnitude) - 24;
        uint64_t below_one = ((uint64_t)1 << drop) - 1, kept = magnitude >> drop;
        uint64_t rest = magnitude & below_one, half = (below_one >> 1) + 1;
        int up;
        switch (mode) {
        case TL_ROUND: up = rest >= half; break;
        case TL_FLOOR: up = negative && rest; break;
        case TL_CEIL: up = !negative && rest; break;
        case TL_ODD: up = rest && !(kept & 1); break;
        default: up = 0; break;
        }
        /* kept has 24 bits; if rounding adds one, it is a power of two and still exact. */
        result = (float)(kept + (uint64_t)up) * ts_f32((uint32_t)(127 + drop) << 23);
    }
    return negative ? -result : result;
}

TL_INLINE float ts_i64_to_f32(int64_t x, int mode) {
    return ts_int_to_f32(x < 0 ? 0 - (uint64_t)x : (uint64_t)x, x < 0, mode);
}
TL_INLINE float ts_u64_to_f32(uint64_t x, int mode) { return ts_int_to_f32(x, 0, mode); }
/* Without branches, unlike the above: loops of it are vectorized. A double holds the integer exactly;
 * half a unit of the last of 24 bits is added to its code, and the rest is cut off. */
TL_INLINE float ts_i32_to_f32(int32_t x, int mode) {
    if (mode != TL_ROUND) return ts_i64_to_f32(x, mode);
    double exact = x;
    uint64_t code;
    memcpy(&code, &exact, sizeof code);
    code = (code + (1u << 28)) & ~(uint64_t)((1u << 29) - 1);
    memcpy(&exact, &code, sizeof code);
    return (float)exact;
}

/* --- arithmetic -------------------------------------------------------------------------------- */

/* `result`, but zero if `x` was never written: numerics/undefined.py. */
TL_INLINE float ts_zero_if_undefined(float x, float result) {
    return ts_bits(x) == 0x7fa00000u ? 0.0f : result;
}

TL_INLINE float ts_max_f32(float a, float b) {
    float greater = a > b ? a : b;
    /* Equal numbers have equal bits, except for the two zeros: +0 is greater. */
    greater = a == b ? ts_f32(ts_bits(a) & ts_bits(b)) : greater;
    return a != a || b != b ? a + b : greater;
}

TL_INLINE float ts_min_f32(float a, float b) {
    float smaller = a < b ? a : b;
    smaller = a == b ? ts_f32(ts_bits(a) | ts_bits(b)) : smaller;
    return a != a || b != b ? a + b : smaller;
}

TL_INLINE float ts_relu_f32(float x) { return x <= 0.0f ? 0.0f : x; }
TL_INLINE float ts_rsqrt_f32(float x) { return (float)(1.0 / __builtin_sqrt((double)x)); }
TL_INLINE float ts_sqrt_f32(float x) { return __builtin_sqrtf(x); }
TL_INLINE float ts_abs_f32(float x) { return __builtin_fabsf(x); }
TL_INLINE float ts_sin_f32(float x) { return (float)sin((double)x); }
TL_INLINE float ts_cos_f32(float x) { return (float)cos((double)x); }
TL_INLINE float ts_fmod_f32(float a, float b) { return fmodf(a, b); }

TL_INLINE float ts_rem_f32(float a, float b) {
    float r = fmodf(a, b);
    if (r == 0.0f) return __builtin_copysignf(0.0f, b);
    return (r < 0.0f) != (b < 0.0f) ? r + b : r;
}

/* exp, at most 1 ulp off: x = n ln 2 + r, a polynomial of degree 6 in r, scaled by 2^n. */
TL_INLINE float ts_exp_f32(float x) {
    float low = -104.0f > x ? -104.0f : x;                         /* the result is 0 below this */
    float shifted = __builtin_fmaf(low, 0x1.715476p0f, 0x1.8p23f); /* its low bits are n */
    float n = shifted - 0x1.8p23f;
    float r = __builtin_fmaf(n, -0x1.62e4p-1f, low);
    r = __builtin_fmaf(n, -0x1.7f7d1cp-20f, r);
    float p = 0x1.6850e4p-10f;
    p = __builtin_fmaf(p, r, 0x1.123bccp-7f);
    p = __builtin_fmaf(p, r, 0x1.555b98p-5f);
    p = __builtin_fmaf(p, r, 0x1.55548ep-3f);
    p = __builtin_fmaf(p, r, 0x1.fffff8p-2f);
    p = __builtin_fmaf(p, r * r, r) + 1.0f;
    /* 2^n is added to the exponent. Small results are first scaled by 2^64, so that they are
     * rounded only once, by the product that makes them subnormal. */
    uint32_t small = x < -86.0f ? 0xffffffffu : 0u;
    float scaled = ts_f32(ts_bits(p) + (ts_bits(shifted) << 23) + (small & 64u << 23));
    float result = scaled * ts_f32((small & 0x1f800000u) | (~small & 0x3f800000u));
    result = x > 0x1.62e42ep6f ? __builtin_inff() : result;
    return x != x ? x : result;
}

/* log, at most 1 ulp off: x = 2^e m with m in [sqrt(1/2), sqrt(2)), log m by a polynomial in double
 * whose error is 2^-38 of the result. */
TL_INLINE float ts_log_f32(float x) {
    int tiny = x < 0x1p-126f;
    int32_t bits = (int32_t)ts_bits(tiny ? x * 0x1p24f : x);
    int32_t exponent = (bits - 0x3f3504f3) >> 23;
    double f = (double)ts_f32((uint32_t)(bits - (int32_t)((uint32_t)exponent << 23))) - 1.0;
    double p = f * -0x1.827a940e44864p-5 + 0x1.7450fbf77bc18p-4;
    p = p * f - 0x1.7eaf366ddb3dfp-4;
    p = p * f + 0x1.72df5f43a0b36p-4;
    p = p * f - 0x1.94a481a90569fp-4;
    p = p * f + 0x1.c6c74537edb73p-4;
    p = p * f - 0x1.0022d10053211p-3;
    p = p * f + 0x1.2495b3ff17576p-3;
    p = p * f - 0x1.555468681e9b4p-3;
    p = p * f + 0x1.999982ba66962p-3;
    p = p * f - 0x1.0000015fdf390p-2;
    p = p * f + 0x1.5555556e75120p-2;
    p = p * f - 0x1.fffffffecae59p-2;
    p = p * f + 0x1.fffffffffbcb0p-1;
    float result = (float)((double)(exponent - (tiny ? 24 : 0)) * 0x1.62e42fefa39efp-1 + p * f);
    result = x == __builtin_inff() ? x : result;
    result = x == 0.0f ? -__builtin_inff() : result;
    return x >= 0.0f ? result : __builtin_nanf("");
}

/* Integer division truncates, and gives 0 for a zero divisor; the lowest number / -1 wraps. */
#define TL_INT_ARITHMETIC(name, type, is_signed)                                                   \
    TL_INLINE type ts_div_##name(type a, type b) {                                                 \
        if (b == 0) return 0;                                                                      \
        return (is_signed) && b == (type) - 1 ? (type)(0 - (uint64_t)a) : (type)(a / b);           \
    }                                                                                              \
    TL_INLINE type ts_fmod_##name(type a, type b) {                                                \
        return b == 0 || ((is_signed) && b == (type) - 1) ? 0 : (type)(a % b);                     \
    }                                                                                              \
    TL_INLINE type ts_rem_##name(type a, type b) {                                                 \
        type r = ts_fmod_##name(a, b);                                                             \
        return (is_signed) && r != 0 && (r < 0) != (b < 0) ? (type)(r + b) : r;                    \
    }                                                                                              \
    TL_INLINE type ts_max_##name(type a, type b) { return a > b ? a : b; }                         \
    TL_INLINE type ts_min_##name(type a, type b) { return a < b ? a : b; }                         \
    TL_INLINE type ts_neg_##name(type a) { return (type)(0 - (uint64_t)a); }                       \
    TL_INLINE type ts_abs_##name(type a) { return a < 0 ? (type)(0 - (uint64_t)a) : a; }           \
    TL_INLINE type ts_relu_##name(type a) { return a <= 0 ? 0 : a; }                               \
    TL_INLINE type ts_shl_##name(type a, type b) {                                                 \
        int inside = b >= 0 && b < (type)(8 * sizeof(type));                                       \
        return inside ? (type)((uint64_t)a << (inside ? b : 0)) : 0;                               \
    }                                                                                              \
    TL_INLINE type ts_shr_##name(type a, type b) {                                                 \
        int inside = b >= 0 && b < (type)(8 * sizeof(type));                                       \
        return inside ? (type)(a >> (inside ? b : 0)) : (type)(a < 0 ? -1 : 0);                    \
    }
TL_INT_ARITHMETIC(i8, int8_t, 1)
TL_INT_ARITHMETIC(i16, int16_t, 1)
TL_INT_ARITHMETIC(i32, int32_t, 1)
TL_INT_ARITHMETIC(i64, int64_t, 1)
TL_INT_ARITHMETIC(u8, uint8_t, 0)
TL_INT_ARITHMETIC(u16, uint16_t, 0)
TL_INT_ARITHMETIC(u32, uint32_t, 0)
TL_INT_ARITHMETIC(u64, uint64_t, 0)

#endif
