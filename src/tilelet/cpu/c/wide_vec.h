/* Vectors of the machine's own width, for products: `W` numbers in FP32. */
#ifndef TL_WIDE_VEC_H
#define TL_WIDE_VEC_H

#include <stdint.h>
#include <string.h>

#include "vec.h"

#define W (TL_VEC_BYTES / 4)

typedef float vec __attribute__((vector_size(TL_VEC_BYTES)));

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

#endif
