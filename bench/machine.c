/* What this machine can do at best, for figures to be compared with: fused multiply-adds from
 * registers, and reading memory in order. */
#include "vec.h"

#define ACCUMULATORS 12
#define W (TL_VEC_BYTES / 4)

typedef float vec __attribute__((vector_size(TL_VEC_BYTES)));

/* Independent chains of vector FMAs; returns the floating-point operations done. */
double bench_fma(int64_t steps, float *sink) {
    vec acc[ACCUMULATORS], factor, term;
    for (int i = 0; i < W; i++) factor[i] = 0.999f, term[i] = 1e-9f;
    for (int j = 0; j < ACCUMULATORS; j++) acc[j] = factor + (float)j;
    for (int64_t s = 0; s < steps; s++) {
#pragma GCC unroll 12
        for (int j = 0; j < ACCUMULATORS; j++) {
#if __has_builtin(__builtin_elementwise_fma)
            acc[j] = __builtin_elementwise_fma(acc[j], factor, term);
#elif defined(__AVX512F__)
            acc[j] = __builtin_ia32_vfmaddps512_mask(acc[j], factor, term, (uint16_t)-1, 4);
#elif defined(__FMA__)
            acc[j] = __builtin_ia32_vfmaddps256(acc[j], factor, term);
#else
            for (int i = 0; i < W; i++) acc[j][i] = __builtin_fmaf(acc[j][i], factor[i], term[i]);
#endif
        }
    }
    for (int j = 1; j < ACCUMULATORS; j++) acc[0] += acc[j];
    *sink = acc[0][0];
    return 2.0 * ACCUMULATORS * W * (double)steps;
}

/* Every cache line of a buffer, in order. */
void bench_read(const char *p, int64_t bytes, float *sink) {
    tl_i32x8 seen[4] = {{0}};
    for (int64_t i = 0; i + 256 <= bytes; i += 256) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            seen[j] ^= tl_load_i32((const int32_t *)(p + i + 64 * j));
            seen[j] ^= tl_load_i32((const int32_t *)(p + i + 64 * j + 32));
        }
    }
    *sink = (float)(seen[0] ^ seen[1] ^ seen[2] ^ seen[3])[0];
}
