/* FP32 functions on eight lanes, for fused loops, and the fixed orders of reductions.
 *
 * As tilelet/numerics/elementwise.py and reductions.py: sqrt, div, recip and rsqrt are correctly
 * rounded, max and min know NaN and signed zeros, exp is at most 1 ulp from the correctly rounded
 * result, log, sin and cos are computed in double (they differ from it about once in 10^5). None
 * depends on the ISA: every lane gives the same bits on every machine. Add, subtract, multiply and
 * divide are the vector operators `+ - * /`.
 *
 * Narrow floats: tl_load_bf16 etc. (convert.h), the FP32 function, tl_store_bf16.
 */
#ifndef TL_ELEMENTWISE_H
#define TL_ELEMENTWISE_H

#include "convert.h"

/* --- arithmetic -------------------------------------------------------------------------------- */

TL_INLINE tl_f32x8 tl_abs(tl_f32x8 x) { return tl_as_f32(tl_as_u32(x) & 0x7FFFFFFF); }
TL_INLINE tl_f32x8 tl_neg(tl_f32x8 x) { return tl_as_f32(tl_as_u32(x) ^ 0x80000000); }
TL_INLINE tl_f32x8 tl_recip(tl_f32x8 x) { return 1.0f / x; }

/* x where x > 0, else +0; NaN stays NaN. */
TL_INLINE tl_f32x8 tl_relu(tl_f32x8 x) { return tl_as_f32(tl_as_i32(x) & ~(x <= 0.0f)); }

/* a where a > b, else b: also where either is NaN, and of two zeros. One x86 instruction. */
TL_INLINE tl_f32x8 tl_greater_or_second(tl_f32x8 a, tl_f32x8 b) {
#if defined(__AVX__) && __has_builtin(__builtin_ia32_maxps256)
    return __builtin_ia32_maxps256(a, b);
#else
    return tl_select(a > b, a, b);
#endif
}

TL_INLINE tl_f32x8 tl_less_or_second(tl_f32x8 a, tl_f32x8 b) {
#if defined(__AVX__) && __has_builtin(__builtin_ia32_minps256)
    return __builtin_ia32_minps256(a, b);
#else
    return tl_select(a < b, a, b);
#endif
}

/* NaN if either is NaN (all bits set is one); +0 counts as greater than -0: where both are zero the
 * two orders give both operands, whose signs `&` and `|` combine; elsewhere they agree. */
TL_INLINE tl_f32x8 tl_max(tl_f32x8 a, tl_f32x8 b) {
    tl_i32x8 greater = tl_as_i32(tl_greater_or_second(a, b)) & tl_as_i32(tl_greater_or_second(b, a));
    return tl_as_f32(greater | (a != a) | (b != b));
}

TL_INLINE tl_f32x8 tl_min(tl_f32x8 a, tl_f32x8 b) {
    tl_i32x8 less = tl_as_i32(tl_less_or_second(a, b)) | tl_as_i32(tl_less_or_second(b, a));
    return tl_as_f32(less | (a != a) | (b != b));
}

/* As C's fmodf (exact), and Python's % on floats. */
TL_INLINE tl_f32x8 tl_fmod(tl_f32x8 a, tl_f32x8 b) {
    tl_f32x8 r;
    for (int i = 0; i < TL_LANES; i++) r[i] = fmodf(a[i], b[i]);
    return r;
}

TL_INLINE tl_f32x8 tl_rem(tl_f32x8 a, tl_f32x8 b) {
    tl_f32x8 remainder = tl_fmod(a, b);
    tl_i32x8 other_sign = (remainder < 0.0f) ^ (b < 0.0f);
    tl_f32x8 zero_like_b = tl_as_f32(tl_as_u32(b) & 0x80000000);
    return tl_select(remainder == 0.0f, zero_like_b,
                     tl_select(other_sign, remainder + b, remainder));
}

/* --- double halves ----------------------------------------------------------------------------- */

TL_INLINE tl_f64x4 tl_low_f64(tl_f32x8 x) {
    return __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1, 2, 3), tl_f64x4);
}

TL_INLINE tl_f64x4 tl_high_f64(tl_f32x8 x) {
    return __builtin_convertvector(__builtin_shufflevector(x, x, 4, 5, 6, 7), tl_f64x4);
}

TL_INLINE tl_f32x8 tl_join_f64(tl_f64x4 low, tl_f64x4 high) {
    return __builtin_shufflevector(__builtin_convertvector(low, tl_f32x4),
                                   __builtin_convertvector(high, tl_f32x4), 0, 1, 2, 3, 4, 5, 6, 7);
}

TL_INLINE tl_f64x4 tl_sqrt_f64(tl_f64x4 x) {
#if __has_builtin(__builtin_elementwise_sqrt)
    return __builtin_elementwise_sqrt(x);
#elif defined(__AVX__) && __has_builtin(__builtin_ia32_sqrtpd256)
    return __builtin_ia32_sqrtpd256(x);
#else
    tl_f64x4 r;
    for (int i = 0; i < 4; i++) r[i] = __builtin_sqrt(x[i]);
    return r;
#endif
}

/* 1 / sqrt(x), correctly rounded: the two roundings in double never cross a tie of FP32. */
TL_INLINE tl_f32x8 tl_rsqrt(tl_f32x8 x) {
    return tl_join_f64(1.0 / tl_sqrt_f64(tl_low_f64(x)), 1.0 / tl_sqrt_f64(tl_high_f64(x)));
}

/* --- exp, log, sin, cos ------------------------------------------------------------------------ */

/* e^x = 2^n e^r with n = rint(x / ln 2) and |r| <= ln(2)/2; e^r = 1 + r + r^2 P(r). */
TL_INLINE tl_f32x8 tl_exp(tl_f32x8 x) {
    const float to_integer = 0x1.8p23f; /* adding it leaves the integral part in the low bits */
    /* Beyond these the result is 0 or infinity anyway; the second operand keeps NaN. */
    x = tl_greater_or_second(tl_splat(-104.0f), x);
    x = tl_less_or_second(tl_splat(89.0f), x);
    tl_f32x8 shifted = tl_fma(x, tl_splat(0x1.715476p+0f), tl_splat(to_integer));
    tl_f32x8 n = shifted - to_integer;
    tl_f32x8 r = tl_fma(n, tl_splat(-0x1.62e430p-1f), x);
    r = tl_fma(n, tl_splat(0x1.05c610p-29f), r);
    tl_f32x8 p = tl_splat(0x1.6d4362p-10f);
    p = tl_fma(tl_splat(0x1.a12528p-13f), r, p);
    p = tl_fma(p, r, tl_splat(0x1.1110e0p-7f));
    p = tl_fma(p, r, tl_splat(0x1.5554e8p-5f));
    p = tl_fma(p, r, tl_splat(0x1.555556p-3f));
    p = tl_fma(p, r, tl_splat(0.5f));
    p = 1.0f + tl_fma(p, r * r, r);
    /* 2^n as two factors, each in range: the first product is exact, the second rounds (only if
     * the result is subnormal) or overflows. */
    tl_i32x8 power = tl_as_i32(shifted) - 0x4B400000;
    tl_i32x8 half = power >> 1;
    tl_f32x8 first = tl_as_f32((half + 127) << 23);
    tl_f32x8 second = tl_as_f32((power - half + 127) << 23);
    return p * first * second;
}

/* log(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)): f times a polynomial, 2^-38 relative. */
TL_INLINE tl_f64x4 tl_log1p_f64(tl_f64x4 f) {
    tl_f64x4 p = f * -0x1.827a940e44864p-5 + 0x1.7450fbf77bc18p-4;
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
    return p * f;
}

/* log x = e ln 2 + log m, where x = 2^e m with m in [sqrt(1/2), sqrt(2)). */
TL_INLINE tl_f32x8 tl_log(tl_f32x8 x) {
    tl_i32x8 subnormal = x < 0x1p-126f;
    tl_f32x8 scaled = tl_select(subnormal, x * 0x1p24f, x);
    const int32_t sqrt_half = 0x3F3504F3;
    tl_i32x8 exponent = (tl_as_i32(scaled) - sqrt_half) >> 23;
    tl_f32x8 mantissa = tl_as_f32(tl_as_i32(scaled) - (exponent << 23));
    tl_f32x8 e = tl_i32_to_f32(exponent - (subnormal & 24));
    const double ln2 = 0x1.62e42fefa39efp-1;
    tl_f32x8 result = tl_join_f64(tl_low_f64(e) * ln2 + tl_log1p_f64(tl_low_f64(mantissa) - 1.0),
                                  tl_high_f64(e) * ln2 + tl_log1p_f64(tl_high_f64(mantissa) - 1.0));
    result = tl_select(x == INFINITY, x, result);
    result = tl_select(x == 0.0f, tl_splat(-INFINITY), result);
    return tl_as_f32(tl_as_i32(result) | ~(x >= 0.0f)); /* negative or NaN: all bits set */
}

/* sin(x + quadrant * pi/2) for |x| below 2^20: x = n pi/2 + r by three parts of pi/2 whose products
 * with n are exact, then the polynomial of the quadrant. */
TL_INLINE tl_f64x4 tl_sine_f64(tl_f64x4 x, int quadrant) {
    const double to_integer = 0x1.8p52;
    tl_f64x4 shifted = x * 0x1.45f306dc9c883p-1 + to_integer;
    tl_f64x4 n = shifted - to_integer;
    tl_f64x4 r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
    tl_f64x4 z = r * r;
    tl_f64x4 sine = z * -0x1.aa27435ae367dp-26 + 0x1.71d9a79f7c8bdp-19;
    sine = sine * z - 0x1.a019fd9820cb8p-13;
    sine = sine * z + 0x1.1111110fd28f7p-7;
    sine = sine * z - 0x1.5555555555166p-3;
    sine = r + sine * z * r;
    tl_f64x4 cosine = z * 0x1.1c81251025d14p-29 - 0x1.27e25df5a9a5fp-22;
    cosine = cosine * z + 0x1.a019ff51e1d9fp-16;
    cosine = cosine * z - 0x1.6c16c16b60951p-10;
    cosine = cosine * z + 0x1.5555555555435p-5;
    cosine = 1.0 - 0.5 * z + cosine * z * z;
    tl_i64x4 turn = (tl_i64x4)shifted + quadrant;
    tl_i64x4 is_cosine = -(turn & 1);
    tl_i64x4 sign = (turn & 2) << 62;
    return (tl_f64x4)(((is_cosine & (tl_i64x4)cosine) | (~is_cosine & (tl_i64x4)sine)) ^ sign);
}

TL_INLINE tl_f32x8 tl_sine(tl_f32x8 x, int quadrant, double (*far)(double)) {
    tl_i32x8 near = tl_abs(x) < 0x1p20f;
    tl_f32x8 result = tl_join_f64(tl_sine_f64(tl_low_f64(x), quadrant),
                                  tl_sine_f64(tl_high_f64(x), quadrant));
    if (__builtin_expect(tl_any(~near), 0)) /* huge, infinite or NaN */
        for (int i = 0; i < TL_LANES; i++)
            if (!near[i]) result[i] = (float)far(x[i]);
    return result;
}

TL_INLINE tl_f32x8 tl_cos(tl_f32x8 x) { return tl_sine(x, 1, cos); }

/* The polynomial would lose the sign of -0. */
TL_INLINE tl_f32x8 tl_sin(tl_f32x8 x) { return tl_select(x == 0.0f, x, tl_sine(x, 0, sin)); }

/* --- ordered reductions ------------------------------------------------------------------------
 *
 * Eight lanes: start from tl_splat(TL_SUM_NEUTRAL), add each eight elements (`lanes = lanes + x`),
 * pass the last, shorter group through tl_tail, then fold the lanes. Adding -0 or multiplying by 1
 * changes no value, not even a zero's sign, so this is the contract's order for any length. */

#define TL_SUM_NEUTRAL (-0.0f)
#define TL_PROD_NEUTRAL 1.0f
#define TL_MAX_NEUTRAL (-INFINITY)
#define TL_MIN_NEUTRAL INFINITY

/* x with the lanes from n on replaced by `neutral`. */
TL_INLINE tl_f32x8 tl_tail(tl_f32x8 x, int n, float neutral) {
    const tl_i32x8 lane = {0, 1, 2, 3, 4, 5, 6, 7};
    return tl_select(lane < n, x, tl_splat(neutral));
}

/* (s0,s4) (s1,s5) (s2,s6) (s3,s7) -> t; (t0,t2) (t1,t3) -> u; (u0,u1). */
TL_INLINE float tl_fold_sum(tl_f32x8 s) {
    float t0 = s[0] + s[4], t1 = s[1] + s[5], t2 = s[2] + s[6], t3 = s[3] + s[7];
    return (t0 + t2) + (t1 + t3);
}

TL_INLINE float tl_fold_prod(tl_f32x8 s) {
    float t0 = s[0] * s[4], t1 = s[1] * s[5], t2 = s[2] * s[6], t3 = s[3] * s[7];
    return (t0 * t2) * (t1 * t3);
}

/* Maxima and minima: `lanes = tl_max(lanes, x)` from tl_splat(TL_MAX_NEUTRAL), in any order. */
TL_INLINE float tl_fold_max(tl_f32x8 s) {
    s = tl_max(s, __builtin_shufflevector(s, s, 4, 5, 6, 7, 0, 1, 2, 3));
    s = tl_max(s, __builtin_shufflevector(s, s, 2, 3, 0, 1, 6, 7, 4, 5));
    s = tl_max(s, __builtin_shufflevector(s, s, 1, 0, 3, 2, 5, 4, 7, 6));
    return s[0];
}

TL_INLINE float tl_fold_min(tl_f32x8 s) { return -tl_fold_max(tl_neg(s)); }

#endif
