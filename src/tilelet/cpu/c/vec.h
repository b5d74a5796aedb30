/* Vectors of the native CPU engine, from GNU C vector extensions: one source for SSE, AVX2, AVX-512
 * and NEON, with gcc or clang, and no intrinsics headers.
 *
 * There are two widths. Elementwise code, conversions and reductions work on *eight lanes on every
 * ISA* (`tl_f32x8`; the compiler splits them where registers are shorter), because the numerics
 * contract fixes an eight-lane order for sums. Only products use the machine's own width,
 * `TL_VEC_BYTES` (wide_vec.h).
 *
 * Files that include this must be compiled with -std=gnu11 -O2 -march=native -ffp-contract=off
 * -fno-math-errno -fno-trapping-math -Wno-psabi and linked with -lm. Never use -ffast-math.
 * `-ffp-contract=off` keeps `a * b + c` two roundings; `tl_fma*` rounds once where the contract
 * requires it. */
#ifndef TL_VEC_H
#define TL_VEC_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __clang__
#pragma clang diagnostic ignored "-Wpsabi"
#else
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#ifndef __has_builtin /* build.py searches for this text */
#error "no vector types"
#endif

#ifndef TL_VEC_BYTES /* width of one register, for matmul.c; a build may set it */
#if defined(__AVX512F__)
#define TL_VEC_BYTES 64
#elif defined(__AVX2__)
#define TL_VEC_BYTES 32
#else
#define TL_VEC_BYTES 16
#endif
#endif

/* Whether fmaf is one instruction; clang does not define FP_FAST_FMAF. */
#if defined(FP_FAST_FMAF) || defined(__FMA__) || defined(__aarch64__) || defined(__ARM_FEATURE_FMA)
#define TL_HAS_FMA 1
#else
#define TL_HAS_FMA 0
#endif

#define TL_INLINE static inline __attribute__((always_inline, unused))
#define TL_LANES 8

typedef float tl_f32x8 __attribute__((vector_size(32)));
typedef int32_t tl_i32x8 __attribute__((vector_size(32)));
typedef uint32_t tl_u32x8 __attribute__((vector_size(32)));
typedef uint16_t tl_u16x8 __attribute__((vector_size(16)));
typedef int16_t tl_i16x8 __attribute__((vector_size(16)));
typedef uint8_t tl_u8x8 __attribute__((vector_size(8)));
typedef int8_t tl_i8x8 __attribute__((vector_size(8)));
typedef float tl_f32x4 __attribute__((vector_size(16)));
typedef double tl_f64x4 __attribute__((vector_size(32)));
typedef int64_t tl_i64x4 __attribute__((vector_size(32)));

/* Reinterpret the bits of a vector as another type of the same size. */
#define tl_as_i32(v) ((tl_i32x8)(v))
#define tl_as_u32(v) ((tl_u32x8)(v))
#define tl_as_f32(v) ((tl_f32x8)(v))

TL_INLINE tl_f32x8 tl_splat(float x) { return (tl_f32x8){x, x, x, x, x, x, x, x}; }
TL_INLINE tl_i32x8 tl_splat_i32(int32_t x) { return (tl_i32x8){x, x, x, x, x, x, x, x}; }
TL_INLINE tl_u32x8 tl_splat_u32(uint32_t x) { return (tl_u32x8){x, x, x, x, x, x, x, x}; }

/* Loads and stores of eight elements from any address; the `n` forms touch only the first n (1..7)
 * elements, with the other lanes zero. X(name, element type, vector type). */
#define TL_MEMORY_TYPES(X)                                                                         \
    X(f32, float, tl_f32x8)                                                                        \
    X(i32, int32_t, tl_i32x8)                                                                      \
    X(u32, uint32_t, tl_u32x8)                                                                     \
    X(u16, uint16_t, tl_u16x8)                                                                     \
    X(i16, int16_t, tl_i16x8)                                                                      \
    X(u8, uint8_t, tl_u8x8)                                                                        \
    X(i8, int8_t, tl_i8x8)

#define TL_DEFINE_MEMORY(name, elem, vec)                                                          \
    TL_INLINE vec tl_load_##name(const elem *p) {                                                  \
        vec v;                                                                                     \
        memcpy(&v, p, sizeof v);                                                                   \
        return v;                                                                                  \
    }                                                                                              \
    TL_INLINE void tl_store_##name(elem *p, vec v) { memcpy(p, &v, sizeof v); }                    \
    TL_INLINE vec tl_loadn_##name(const elem *p, int n) {                                          \
        elem lanes[TL_LANES] = {0};                                                                \
        for (int i = 0; i < n && i < TL_LANES; i++) lanes[i] = p[i];                               \
        return tl_load_##name(lanes);                                                              \
    }                                                                                              \
    TL_INLINE void tl_storen_##name(elem *p, vec v, int n) {                                       \
        elem lanes[TL_LANES];                                                                      \
        tl_store_##name(lanes, v);                                                                 \
        for (int i = 0; i < n && i < TL_LANES; i++) p[i] = lanes[i];                               \
    }
TL_MEMORY_TYPES(TL_DEFINE_MEMORY)
#undef TL_DEFINE_MEMORY

/* `mask ? a : b` by lane; masks come from vector comparisons (all bits of a lane 0 or 1). */
TL_INLINE tl_i32x8 tl_select_i32(tl_i32x8 mask, tl_i32x8 a, tl_i32x8 b) {
#if defined(__AVX2__) && __has_builtin(__builtin_ia32_blendvps256)
    return (tl_i32x8)__builtin_ia32_blendvps256((tl_f32x8)b, (tl_f32x8)a, (tl_f32x8)mask);
#else
    return (mask & a) | (~mask & b);
#endif
}

TL_INLINE tl_f32x8 tl_select(tl_i32x8 mask, tl_f32x8 a, tl_f32x8 b) {
    return tl_as_f32(tl_select_i32(mask, tl_as_i32(a), tl_as_i32(b)));
}

TL_INLINE tl_u32x8 tl_select_u32(tl_i32x8 mask, tl_u32x8 a, tl_u32x8 b) {
    return tl_as_u32(tl_select_i32(mask, tl_as_i32(a), tl_as_i32(b)));
}

/* Whether any lane of a mask is set. */
TL_INLINE int tl_any(tl_i32x8 mask) {
#if defined(__AVX2__) && __has_builtin(__builtin_ia32_movmskps256)
    return __builtin_ia32_movmskps256((tl_f32x8)mask) != 0;
#else
    int32_t any = 0;
    for (int i = 0; i < TL_LANES; i++) any |= mask[i];
    return any != 0;
#endif
}

#if !TL_HAS_FMA
/* a * b + c rounded once, without hardware FMA: exact product in double; the rounding error of the
 * sum decides whether to move it to the neighbor with an odd last bit (round to odd), from which
 * narrowing to FP32 rounds as from the exact value. */
TL_INLINE float tl_fma_by_double(float a, float b, float c) {
    double product = (double)a * (double)b, start = c;
    double sum = start + product;
    double from_product = sum - start;
    double error = (start - (sum - from_product)) + (product - from_product);
    int64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if ((error > 0 || error < 0) && (bits & 1) == 0) {
        bits += (error > 0) == (sum > 0) ? 1 : -1;
        memcpy(&sum, &bits, sizeof bits);
    }
    return (float)sum;
}
#endif

/* a * b + c by lane, rounded once. */
TL_INLINE tl_f32x8 tl_fma(tl_f32x8 a, tl_f32x8 b, tl_f32x8 c) {
#if TL_HAS_FMA && __has_builtin(__builtin_elementwise_fma)
    return __builtin_elementwise_fma(a, b, c);
#elif defined(__FMA__) && __has_builtin(__builtin_ia32_vfmaddps256)
    return __builtin_ia32_vfmaddps256(a, b, c);
#elif TL_HAS_FMA
    tl_f32x8 r;
    for (int i = 0; i < TL_LANES; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
#else
    tl_f32x8 r;
    for (int i = 0; i < TL_LANES; i++) r[i] = tl_fma_by_double(a[i], b[i], c[i]);
    return r;
#endif
}

/* Square root by lane, correctly rounded. */
TL_INLINE tl_f32x8 tl_sqrt(tl_f32x8 x) {
#if __has_builtin(__builtin_elementwise_sqrt)
    return __builtin_elementwise_sqrt(x);
#elif defined(__AVX__) && __has_builtin(__builtin_ia32_sqrtps256)
    return __builtin_ia32_sqrtps256(x);
#else
    tl_f32x8 r;
    for (int i = 0; i < TL_LANES; i++) r[i] = __builtin_sqrtf(x[i]);
    return r;
#endif
}

#endif
