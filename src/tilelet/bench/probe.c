/* Report the target that the compiler derives from its flags: the instruction set, the bytes of a
 * vector register, and whether a fused multiply-add is one instruction. */
#include <stdio.h>

#if defined(__AVX512F__)
#define ISA "AVX-512"
#define BYTES 64
#elif defined(__AVX2__)
#define ISA "AVX2"
#define BYTES 32
#elif defined(__AVX__)
#define ISA "AVX"
#define BYTES 32
#elif defined(__SSE2__)
#define ISA "SSE2"
#define BYTES 16
#elif defined(__ARM_NEON)
#define ISA "NEON"
#define BYTES 16
#else
#define ISA "scalar"
#define BYTES 4
#endif

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FMA 1
#else
#define FMA 0
#endif

int main(void) {
    printf("%s %d %d\n", ISA, BYTES, FMA);
    return 0;
}
