/* Vectors of the machine's own width, for products: `W` numbers in FP32. */
#ifndef TL_WIDE_VEC_H
#define TL_WIDE_VEC_H

#include <stdint.h>
#include <string.h>

#include "vec.h"

#define W (TL_VEC_BYTES / 4)

typedef float vec __attribute__((vector_size(TL_VEC_BYTES)));
typedef uint32_t words __attribute__((vector_size(TL_VEC_BYTES)));
typedef uint16_t halves __attribute__((vector_size(TL_VEC_BYTES)));

TL_INLINE vec fma_vec(vec a, vec b, vec c) {
#if TL_HAS_FMA && __has_builtin(__builtin_elementwise_fma)
    return __builtin_elementwise_fma(a, b, c);
#elif TL_VEC_BYTES == 64 && __has_builtin(__builtin_ia32_vfmaddps512_mask)
    return __builtin_ia32_vfmaddps512_mask(a, b, c, (uint16_t)-1, 4);
#elif TL_VEC_BYTES == 32 && defined(__FMA__) && __has_builtin(__builtin_ia32_vfmaddps256)
    return __builtin_ia32_vfmaddps256(a, b, c);
#elif TL_VEC_BYTES == 16 && defined(__FMA__) && __has_builtin(__builtin_ia32_vfmaddps)
    return __builtin_ia32_vfmaddps(a, b, c);
#elif defined(__aarch64__) && __has_builtin(__builtin_aarch64_fmav4sf)
    return __builtin_aarch64_fmav4sf(a, b, c);
#else
    vec r;
    for (int i = 0; i < W; i++) {
#if TL_HAS_FMA
        r[i] = __builtin_fmaf(a[i], b[i], c[i]);
#else
        r[i] = tl_fma_by_double(a[i], b[i], c[i]);
#endif
    }
    return r;
#endif
}

TL_INLINE vec load_vec(const void *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

TL_INLINE void store_vec(float *p, vec v) { memcpy(p, &v, sizeof v); }

TL_INLINE words load_words(const void *p) {
    words v;
    memcpy(&v, p, sizeof v);
    return v;
}

TL_INLINE void store_words(void *p, words v) { memcpy(p, &v, sizeof v); }

TL_INLINE words smaller_words(words a, words b) {
#if __has_builtin(__builtin_elementwise_min)
    return __builtin_elementwise_min(a, b);
#elif TL_VEC_BYTES == 64 && __has_builtin(__builtin_ia32_pminud512_mask)
    typedef int ints __attribute__((vector_size(64)));
    return (words)__builtin_ia32_pminud512_mask((ints)a, (ints)b, (ints)a, (uint16_t)-1);
#else
    words is_less = (words)(a < b);
    return (is_less & a) | (~is_less & b);
#endif
}

TL_INLINE halves smaller_halves(halves a, halves b) {
#if __has_builtin(__builtin_elementwise_min)
    return __builtin_elementwise_min(a, b);
#elif defined(__AVX512BW__) && TL_VEC_BYTES == 64 && __has_builtin(__builtin_ia32_pminuw512_mask)
    typedef short shorts __attribute__((vector_size(64)));
    return (halves)__builtin_ia32_pminuw512_mask((shorts)a, (shorts)b, (shorts)a, (uint32_t)-1);
#else
    halves is_less = (halves)(a < b);
    return (is_less & a) | (~is_less & b);
#endif
}

#endif
