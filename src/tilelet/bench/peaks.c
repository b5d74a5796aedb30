/* What this machine can do at best, for figures to be compared with: fused multiply-adds from
 * registers, reading memory in order, copying it. And a program's task runtime by itself: the same
 * control program with kernels that do nothing. */
#include <stdint.h>
#include <string.h>

#include "rt.h"

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX2__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define LANES (BYTES / 4)
#define ACCUMULATORS 12 /* enough to hide the latency of an FMA, few enough for the registers */

typedef float floats __attribute__((vector_size(BYTES)));
typedef int32_t ints __attribute__((vector_size(BYTES)));

#define EXPORT __attribute__((visibility("default")))

/* Independent chains of vector FMAs; returns the floating-point operations done. */
EXPORT double bench_fma(int64_t steps, float *sink) {
    floats acc[ACCUMULATORS], factor, term;
    for (int i = 0; i < LANES; i++) factor[i] = 0.999f, term[i] = 1e-9f;
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
            for (int i = 0; i < LANES; i++)
                acc[j][i] = __builtin_fmaf(acc[j][i], factor[i], term[i]);
#endif
        }
    }
    for (int j = 1; j < ACCUMULATORS; j++) acc[0] += acc[j];
    *sink = acc[0][0];
    return 2.0 * ACCUMULATORS * LANES * (double)steps;
}

/* Every byte of a buffer, in order. */
EXPORT void bench_read(const char *p, int64_t bytes, float *sink) {
    enum { STREAMS = 8 };
    ints seen[STREAMS] = {{0}};
    for (int64_t i = 0; i + STREAMS * BYTES <= bytes; i += STREAMS * BYTES) {
#pragma GCC unroll 8
        for (int j = 0; j < STREAMS; j++) {
            ints v;
            memcpy(&v, p + i + j * BYTES, BYTES);
            seen[j] ^= v;
        }
    }
    for (int j = 1; j < STREAMS; j++) seen[0] ^= seen[j];
    *sink = (float)seen[0][0];
}

/* The same in four places at once, each in order: processors prefetch for each by itself. */
EXPORT void bench_read_streams(const char *p, int64_t bytes, float *sink) {
    enum { STREAMS = 4 };
    ints seen[STREAMS] = {{0}};
    int64_t part = bytes / STREAMS;
    for (int64_t i = 0; i + 64 <= part; i += 64) {
#pragma GCC unroll 4
        for (int j = 0; j < STREAMS; j++) {
#pragma GCC unroll 4
            for (int k = 0; k < 64; k += BYTES) {
                ints v;
                memcpy(&v, p + j * part + i + k, BYTES);
                seen[j] ^= v;
            }
        }
    }
    for (int j = 1; j < STREAMS; j++) seen[0] ^= seen[j];
    *sink = (float)seen[0][0];
}

EXPORT void bench_copy(char *to, const char *from, int64_t bytes) {
    memcpy(to, from, (size_t)bytes);
}

static int nothing(tl_ctx *c, const tl_win *w, const tl_word *x) {
    (void)c, (void)w, (void)x;
    return TL_OK;
}

EXPORT int64_t bench_kernel_bytes(const tl_program *program) {
    return (int64_t)sizeof(tl_kernel) * (program->kernel_count + 1);
}

EXPORT int64_t bench_program_bytes(void) { return (int64_t)sizeof(tl_program); }

/* A copy of `program` in `out`, and of its kernels in `kernels`, that submits the same tasks. */
EXPORT void bench_empty_program(const tl_program *program, tl_program *out, tl_kernel *kernels) {
    for (int32_t i = 0; i < program->kernel_count; i++) {
        kernels[i] = program->kernels[i];
        kernels[i].run = nothing;
    }
    *out = *program;
    out->kernels = kernels;
}
