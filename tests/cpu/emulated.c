/* Runs one program of the native engine on arrays from a file: `emulated IN OUT THREADS`.
 *
 * IN holds int64 numbers: how many tensors and scalars; of each tensor its rank, itemsize, bytes and
 * extents; then the scalars as they are in `tl_word`, then the elements. OUT receives the elements.
 */
#include <stdio.h>
#include <stdlib.h>

#include "rt.h"

enum { MOST = 64 };

extern const tl_program tl_main;

static int64_t next(FILE *in) {
    int64_t n;
    if (fread(&n, sizeof n, 1, in) != 1) abort();
    return n;
}

static int no_host(int64_t op, tl_win *tiles, const tl_word *scalars, int64_t block) {
    (void)op, (void)tiles, (void)scalars, (void)block;
    return 1;
}

int main(int argc, char **argv) {
    FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
    if (argc != 4 || !in || !out) return 100;
    tl_win windows[MOST] = {0};
    tl_word words[MOST] = {0};
    int64_t sizes[MOST], buffers[MOST], counts[1024] = {0};
    char *bases[MOST];
    int32_t names[MOST], cancel = 0;
    uint8_t readonly[MOST] = {0};
    int64_t tensors = next(in), scalars = next(in);
    for (int64_t i = 0; i < tensors; i++) {
        tl_win *w = &windows[i];
        w->rank = (int32_t)next(in);
        w->itemsize = (int32_t)next(in);
        sizes[i] = next(in);
        for (int k = 0; k < w->rank; k++) w->shape[k] = w->valid[k] = w->reach[k] = next(in);
        for (int64_t k = w->rank - 1, stride = 1; k >= 0; stride *= w->shape[k--])
            w->stride[k] = stride;
        w->data = bases[i] = aligned_alloc(64, (size_t)(sizes[i] / 64 + 1) * 64);
        buffers[i] = names[i] = (int32_t)i;
    }
    for (int64_t i = 0; i < scalars; i++) words[i].i = next(in);
    for (int64_t i = 0; i < tensors; i++)
        if (fread(bases[i], 1, (size_t)sizes[i], in) != (size_t)sizes[i]) return 101;
    tl_fault fault = {0};
    const tl_run_args args = {.windows = windows,
                              .scalars = words,
                              .buffer_of = buffers,
                              .bases = bases,
                              .names = names,
                              .readonly = readonly,
                              .window_count = tensors,
                              .buffer_count = tensors,
                              .threads = atoi(argv[3]),
                              .seed = -1,
                              .memory = INT64_C(1) << 40,
                              .cancel = &cancel,
                              .host = no_host,
                              .counts = counts,
                              .fault = &fault};
    int kind = tl_run(&tl_main, &args);
    for (int64_t i = 0; i < tensors; i++) fwrite(bases[i], 1, (size_t)sizes[i], out);
    return fclose(out) || kind;
}
