/* Deferred products: run the pieces that kernels have collected. */
#include "kernel.h"

void tl_run_product(tl_product *p, tl_ctx *c) {
    if (p->pieces) tl_matmul_pieces(p, c->matmul);
    p->pieces = 0;
}

/* Run several independent products in parallel. */
void tl_run_products(tl_ctx *c, tl_product *const *products, int count, const void *then) {
    tl_product all[TL_PRODUCTS];
    int total = 0;
    for (int i = 0; i < count; i++) {
        if (products[i]->pieces) all[total++] = *products[i];
        products[i]->pieces = 0;
    }
    tl_matmul_side_by_side(all, total, then, c->matmul);
}
