/* Convert operands of products from any dtype to FP32, as stored or transposed. */
#ifndef TL_OPERANDS_H
#define TL_OPERANDS_H

#include <stdint.h>

#include "convert.h"
#include "vec.h"

static int element_size(int type) {
    switch (type) {
    case TL_FP32: return 4;
    case TL_FP16:
    case TL_BF16: return 2;
    default: return 1;
    }
}

TL_INLINE tl_f32x8 tl_load_int8(const int8_t *p) {
    return tl_i32_to_f32(tl_i8_to_i32(tl_load_i8(p)));
}
TL_INLINE tl_f32x8 tl_loadn_int8(const int8_t *p, int n) {
    return tl_i32_to_f32(tl_i8_to_i32(tl_loadn_i8(p, n)));
}
TL_INLINE tl_f32x8 tl_load_uint8(const uint8_t *p) {
    return tl_i32_to_f32(tl_as_i32(tl_u8_to_u32(tl_load_u8(p))));
}
TL_INLINE tl_f32x8 tl_loadn_uint8(const uint8_t *p, int n) {
    return tl_i32_to_f32(tl_as_i32(tl_u8_to_u32(tl_loadn_u8(p, n))));
}

/* X(tl_dtype, element type in memory, name of its loads) */
#define OPERAND_TYPES(X)                                                                           \
    X(TL_FP32, float, f32)                                                                         \
    X(TL_BF16, uint16_t, bf16)                                                                     \
    X(TL_FP16, uint16_t, f16)                                                                      \
    X(TL_FP8E4M3FN, uint8_t, f8e4m3fn)                                                             \
    X(TL_FP8E5M2, uint8_t, f8e5m2)                                                                 \
    X(TL_INT8, int8_t, int8)                                                                       \
    X(TL_UINT8, uint8_t, uint8)

/* dst[r][c] = src[r][c]; rows of dst are zero-padded to `width` (at least cols). */
static void convert_rows(float *dst, int64_t ld_dst, const char *src, int type, int64_t ld_src,
                         int64_t rows, int64_t cols, int64_t width) {
#define CASE(dtype, elem, name)                                                                    \
    case dtype:                                                                                    \
        for (int64_t r = 0; r < rows; r++, dst += ld_dst) {                                        \
            const elem *from = (const elem *)src + r * ld_src;                                     \
            int64_t c = 0;                                                                         \
            for (; c + 8 <= cols; c += 8) tl_store_f32(dst + c, tl_load_##name(from + c));         \
            if (c < cols) {                                                                        \
                int n = (int)(width - c < 8 ? width - c : 8);                                      \
                tl_storen_f32(dst + c, tl_loadn_##name(from + c, (int)(cols - c)), n);             \
                c += n;                                                                            \
            }                                                                                      \
            for (; c < width; c++) dst[c] = 0;                                                     \
        }                                                                                          \
        break;
    switch (type) { OPERAND_TYPES(CASE) }
#undef CASE
}

TL_INLINE void transpose8(tl_f32x8 x[8]) {
    tl_f32x8 y[8], z[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        y[2 * i] = __builtin_shufflevector(x[2 * i], x[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        y[2 * i + 1] = __builtin_shufflevector(x[2 * i], x[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        z[i] = __builtin_shufflevector(y[i], y[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        z[i + 1] = __builtin_shufflevector(y[i], y[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        z[i + 2] = __builtin_shufflevector(y[i + 1], y[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        z[i + 3] = __builtin_shufflevector(y[i + 1], y[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        x[i] = __builtin_shufflevector(z[i], z[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        x[i + 4] = __builtin_shufflevector(z[i], z[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

TL_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Load `rows` x `cols` elements (at most 8 x 8), transpose, store as `cols` x `width`. */
#define TRANSPOSE_FEW(elem, name, to, ld_to, from, ld_from, rows, cols, width)                     \
    do {                                                                                           \
        tl_f32x8 x[8] = {{0}};                                                                     \
        for (int i = 0; i < (rows); i++) x[i] = tl_loadn_##name((from) + i * (ld_from), (cols));   \
        transpose8(x);                                                                             \
        for (int i = 0; i < (cols); i++) tl_storen_f32((to) + i * (ld_to), x[i], (width));         \
    } while (0)

#define TRANSPOSE_8X8(elem, name, to, ld_to, from, ld_from)                                        \
    do {                                                                                           \
        tl_f32x8 x[8];                                                                             \
        _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) x[i] =                                 \
            tl_load_##name((from) + i * (ld_from));                                                \
        transpose8(x);                                                                             \
        _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++)                                        \
            tl_store_f32((to) + i * (ld_to), x[i]);                                                \
    } while (0)

/* dst[c][r] = src[r][c]; rows of dst are zero-padded to `width` (at least rows). */
#define DEFINE_TRANSPOSED(elem, name)                                                              \
    static void transpose_##name(float *dst, int64_t ld_dst, const elem *src, int64_t ld_src,      \
                                 int64_t rows, int64_t cols, int64_t width) {                      \
        for (int64_t r = 0; r < width; r += 8) {                                                   \
            int some_rows = (int)smaller(rows - r, 8), some_width = (int)smaller(width - r, 8);    \
            for (int64_t c = 0; c < cols; c += 8) {                                                \
                const elem *from = src + r * ld_src + c;                                           \
                float *to = dst + c * ld_dst + r;                                                  \
                int some_cols = (int)smaller(cols - c, 8);                                         \
                if (some_rows == 8 && some_cols == 8)                                              \
                    TRANSPOSE_8X8(elem, name, to, ld_dst, from, ld_src);                           \
                else                                                                               \
                    TRANSPOSE_FEW(elem, name, to, ld_dst, from, ld_src, some_rows, some_cols,      \
                                  some_width);                                                     \
            }                                                                                      \
        }                                                                                          \
    }
DEFINE_TRANSPOSED(float, f32)
DEFINE_TRANSPOSED(uint16_t, bf16)

/* The same for all types. Rare ones are widened first: each direct form costs compile time. */
static void convert_transposed(float *dst, int64_t ld_dst, const char *src, int type,
                               int64_t ld_src, int64_t rows, int64_t cols, int64_t width) {
    enum { ROWS = 8, COLUMNS = 64 };
    if (type == TL_FP32) {
        transpose_f32(dst, ld_dst, (const float *)src, ld_src, rows, cols, width);
        return;
    }
    if (type == TL_BF16) {
        transpose_bf16(dst, ld_dst, (const uint16_t *)src, ld_src, rows, cols, width);
        return;
    }
    float wide[ROWS * COLUMNS];
    for (int64_t r = 0; r < width; r += ROWS)
        for (int64_t c = 0; c < cols; c += COLUMNS) {
            int64_t some_rows = smaller(rows - r, ROWS), some_cols = smaller(cols - c, COLUMNS);
            if (some_rows > 0)
                convert_rows(wide, COLUMNS, src + (r * ld_src + c) * element_size(type), type,
                             ld_src, some_rows, some_cols, some_cols);
            transpose_f32(dst + c * ld_dst + r, ld_dst, wide, COLUMNS, some_rows, some_cols,
                          smaller(width - r, ROWS));
        }
}

#endif
