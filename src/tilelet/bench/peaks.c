/* Measure peaks of this machine: fused multiply-adds from registers, sequential reads, copies.
 * Also measure the task runtime alone: a program's control function with empty kernels. */
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
#define ACCUMULATORS 12 /* enough to hide the FMA latency, few enough for the registers */

typedef float floats __attribute__((vector_size(BYTES)));
typedef int32_t ints __attribute__((vector_size(BYTES)));

#define EXPORT __attribute__((visibility("default")))

/* Independent chains of vector FMAs; returns the number of floating-point operations. */
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

/* Read every byte of a buffer sequentially. */
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

/* Read four sequential streams at once: hardware prefetches each of them separately. */
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

/* Copy `program` to `out`, and its kernels to `kernels`, such that it submits the same tasks. */
EXPORT void bench_empty_program(const tl_program *program, tl_program *out, tl_kernel *kernels) {
    for (int32_t i = 0; i < program->kernel_count; i++) {
        kernels[i] = program->kernels[i];
        kernels[i].run = nothing;
    }
    *out = *program;
    out->kernels = kernels;
}
