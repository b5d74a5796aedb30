/* Reductions of one row, in the fixed order of src/tilelet/numerics/reductions.py: eight lanes, lane
 * j taking x[j], x[j+8], ..., then combined pairwise. Short rows have fewer lanes. */
#ifndef TL_REDUCE_H
#define TL_REDUCE_H

#include "numbers.h"

#define TL_FOLD_ROW(name, OP)                                                                      \
    static float __attribute__((noinline, unused)) ts_short_##name(const float *x, int64_t n) {    \
        float lane[8];                                                                             \
        int64_t lanes = n;                                                                         \
        for (int64_t j = 0; j < n; j++) lane[j] = x[j];                                            \
        for (int64_t width = 4; width >= 1; width /= 2) {                                          \
            for (int64_t j = 0; j + width < lanes; j++) lane[j] = lane[j] OP lane[j + width];      \
            lanes = lanes < width ? lanes : width;                                                 \
        }                                                                                          \
        return lane[0];                                                                            \
    }                                                                                              \
    TL_INLINE float ts_row_##name##_f32(const float *x, int64_t n) {                               \
        if (n < 8) return ts_short_##name(x, n);                                                   \
        int64_t k = 8;                                                                             \
        tl_f32x8 folded = tl_load_f32(x);                                                          \
        for (; k + 8 <= n; k += 8) folded = folded OP tl_load_f32(x + k);                          \
        float t[8];                                                                                \
        tl_store_f32(t, folded);                                                                   \
        for (int j = 0; j < n - k; j++) t[j] = t[j] OP x[k + j];                                   \
        return ((t[0] OP t[4])OP(t[2] OP t[6]))OP((t[1] OP t[5])OP(t[3] OP t[7]));                 \
    }
TL_FOLD_ROW(sum, +)
TL_FOLD_ROW(prod, *)

/* The same for a row computed in pieces, whose lengths are multiples of eight except the last. */
typedef struct {
    tl_f32x8 lanes;
    int64_t count;
} ts_fold;

#define TL_FOLD_PIECES(name, OP)                                                                   \
    TL_INLINE void ts_fold_##name##_f32(ts_fold *f, const float *x, int64_t n) {                   \
        tl_f32x8 lanes = f->lanes;                                                                 \
        int64_t k = 0;                                                                             \
        if (f->count == 0 && n >= 8) lanes = tl_load_f32(x), k = 8;                                \
        for (; k + 8 <= n; k += 8) lanes = lanes OP tl_load_f32(x + k);                            \
        for (int j = 0; j < n - k; j++) lanes[j] = lanes[j] OP x[k + j];                           \
        f->lanes = lanes;                                                                          \
        f->count += n;                                                                             \
    }                                                                                              \
    TL_INLINE float ts_folded_##name##_f32(const ts_fold *f, const float *first) {                 \
        tl_f32x8 t = f->lanes;                                                                     \
        if (f->count < 8) return ts_short_##name(first, f->count);                                 \
        return ((t[0] OP t[4])OP(t[2] OP t[6]))OP((t[1] OP t[5])OP(t[3] OP t[7]));                 \
    }
TL_FOLD_PIECES(sum, +)
TL_FOLD_PIECES(prod, *)

/* Signed integers ordered like the floats, -0 below +0. NaN is handled separately. */
TL_INLINE int32_t ts_ordered(float x) {
    int32_t bits = (int32_t)ts_bits(x);
    return bits ^ ((bits >> 31) & 0x7fffffff);
}
TL_INLINE float ts_unordered(int32_t key) {
    return ts_f32((uint32_t)(key ^ ((key >> 31) & 0x7fffffff)));
}

#define TL_EXTREME_ROW(name, LESS)                                                                 \
    TL_INLINE float ts_row_##name##_f32(const float *x, int64_t n) {                               \
        int32_t best = ts_ordered(x[0]), nan = 0;                                                  \
        for (int64_t j = 0; j < n; j++) {                                                          \
            int32_t key = ts_ordered(x[j]);                                                        \
            best = key LESS best ? best : key;                                                     \
            nan |= x[j] != x[j];                                                                   \
        }                                                                                          \
        return nan ? ts_f32(0x7fc00000) : ts_unordered(best);                                      \
    }
TL_EXTREME_ROW(max, <)
TL_EXTREME_ROW(min, >)

#define TL_FIND_ROW(name, BEATS)                                                                   \
    TL_INLINE int32_t ts_row_##name##_f32(const float *x, int64_t n) {                             \
        int64_t at = 0;                                                                            \
        for (int64_t j = 0; j < n; j++) {                                                          \
            if (x[j] != x[j]) return (int32_t)j;                                                   \
            if (x[j] BEATS x[at]) at = j;                                                          \
        }                                                                                          \
        return (int32_t)at;                                                                        \
    }
TL_FIND_ROW(argmax, >)
TL_FIND_ROW(argmin, <)

#define TL_INT_ROW(suffix, type)                                                                   \
    TL_INLINE type ts_row_sum_##suffix(const type *x, int64_t n) {                                 \
        uint64_t total = 0;                                                                        \
        for (int64_t j = 0; j < n; j++) total += (uint64_t)x[j];                                   \
        return (type)total;                                                                        \
    }                                                                                              \
    TL_INLINE type ts_row_prod_##suffix(const type *x, int64_t n) {                                \
        uint64_t total = 1;                                                                        \
        for (int64_t j = 0; j < n; j++) total *= (uint64_t)x[j];                                   \
        return (type)total;                                                                        \
    }                                                                                              \
    TL_INLINE int32_t ts_row_argmax_##suffix(const type *x, int64_t n) {                           \
        int64_t at = 0;                                                                            \
        for (int64_t j = 1; j < n; j++) at = x[j] > x[at] ? j : at;                                \
        return (int32_t)at;                                                                        \
    }                                                                                              \
    TL_INLINE int32_t ts_row_argmin_##suffix(const type *x, int64_t n) {                           \
        int64_t at = 0;                                                                            \
        for (int64_t j = 1; j < n; j++) at = x[j] < x[at] ? j : at;                                \
        return (int32_t)at;                                                                        \
    }                                                                                              \
    TL_INLINE type ts_row_max_##suffix(const type *x, int64_t n) {                                 \
        type best = x[0];                                                                          \
        for (int64_t j = 1; j < n; j++) best = x[j] > best ? x[j] : best;                          \
        return best;                                                                               \
    }                                                                                              \
    TL_INLINE type ts_row_min_##suffix(const type *x, int64_t n) {                                 \
        type best = x[0];                                                                          \
        for (int64_t j = 1; j < n; j++) best = x[j] < best ? x[j] : best;                          \
        return best;                                                                               \
    }
TL_INT_ROW(i8, int8_t)
TL_INT_ROW(i16, int16_t)
TL_INT_ROW(i32, int32_t)
TL_INT_ROW(i64, int64_t)
TL_INT_ROW(u8, uint8_t)
TL_INT_ROW(u16, uint16_t)
TL_INT_ROW(u32, uint32_t)
TL_INT_ROW(u64, uint64_t)

#endif
