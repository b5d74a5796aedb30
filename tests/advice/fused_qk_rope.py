"""Scope 1 of a decode layer with RoPE fused into it, with the faults of a published kernel.

Queries and keys are projected, rotated and stored by tasks of their own; what one makes, the next
one reads back from global memory.
"""

SCRIPT = """\
import ml_dtypes
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run

BATCH = 16
HIDDEN = 1024
HEADS = 8
KV_HEADS = 2
MAX_SEQ = 128
K_CHUNK = 256
KV_OUT_CHUNK = 128
HEAD_DIM = 128


def build(head_dim=HEAD_DIM, heads=HEADS, kv_heads=KV_HEADS):
    HALF = head_dim // 2
    K_BLOCKS = HIDDEN // K_CHUNK
    KV_BLOCKS = kv_heads * head_dim // KV_OUT_CHUNK

    @pl.program
    class FusedRope:
        @pl.function
        def scope1(
            self,
            x: pl.Tensor[[BATCH, HIDDEN], pl.BF16],
            wq: pl.Tensor[[HIDDEN, HEADS * HEAD_DIM], pl.BF16],
            wk: pl.Tensor[[HIDDEN, KV_HEADS * HEAD_DIM], pl.BF16],
            wv: pl.Tensor[[HIDDEN, KV_HEADS * HEAD_DIM], pl.BF16],
            seq_lens: pl.Tensor[[BATCH], pl.INT32],
            cos: pl.Tensor[[MAX_SEQ, HEAD_DIM], pl.FP32],
            sin: pl.Tensor[[MAX_SEQ, HEAD_DIM], pl.FP32],
            k_cache: pl.InOut[pl.Tensor[[BATCH * KV_HEADS * MAX_SEQ, HEAD_DIM], pl.BF16]],
            v_cache: pl.InOut[pl.Tensor[[BATCH * KV_HEADS * MAX_SEQ, HEAD_DIM], pl.BF16]],
            out: pl.Out[pl.Tensor[[BATCH * HEADS, HEAD_DIM], pl.BF16]],
        ):
            q_rows = pl.create_tensor([BATCH * HEADS, HEAD_DIM], dtype=pl.BF16)
            for h in pl.range(heads):
                q0 = h * head_dim
                with pl.at(level=pl.Level.CORE_GROUP):
                    q_acc = pl.matmul(x[:, 0:K_CHUNK], wq[0:K_CHUNK, q0 : q0 + head_dim],
                                      out_dtype=pl.FP32)
                    for kb in pl.range(1, K_BLOCKS):
                        k0 = kb * K_CHUNK
                        q_acc = pl.matmul_acc(q_acc, x[:, k0 : k0 + K_CHUNK],
                                              wq[k0 : k0 + K_CHUNK, q0 : q0 + head_dim])
                with pl.at(level=pl.Level.CORE_GROUP):
                    for b in pl.range(BATCH):
                        pos = pl.read(seq_lens, [b]) - 1
                        lo = pl.slice(q_acc, [1, HALF], [b, 0])
                        hi = pl.slice(q_acc, [1, HALF], [b, HALF])
                        new_lo = pl.sub(pl.mul(lo, cos[pos : pos + 1, 0:HALF]),
                                        pl.mul(hi, sin[pos : pos + 1, 0:HALF]))
                        new_hi = pl.add(pl.mul(hi, cos[pos : pos + 1, HALF:head_dim]),
                                        pl.mul(lo, sin[pos : pos + 1, HALF:head_dim]))
                        row = b * HEADS + h
                        new_lo = pl.cast(new_lo, target_type=pl.BF16)
                        new_hi = pl.cast(new_hi, target_type=pl.BF16)
                        q_rows = pl.assemble(q_rows, new_lo, [row, 0])
                        q_rows = pl.assemble(q_rows, new_hi, [row, HALF])
            for ob in pl.range(KV_BLOCKS):
                kv0 = ob * KV_OUT_CHUNK
                with pl.at(level=pl.Level.CORE_GROUP):
                    k_acc = pl.matmul(x[:, 0:K_CHUNK], wk[0:K_CHUNK, kv0 : kv0 + KV_OUT_CHUNK],
                                      out_dtype=pl.FP32)
                    for kb in pl.range(1, K_BLOCKS):
                        k0 = kb * K_CHUNK
                        k_acc = pl.matmul_acc(k_acc, x[:, k0 : k0 + K_CHUNK],
                                              wk[k0 : k0 + K_CHUNK, kv0 : kv0 + KV_OUT_CHUNK])
                with pl.at(level=pl.Level.CORE_GROUP):
                    for b in pl.range(BATCH):
                        pos = pl.read(seq_lens, [b]) - 1
                        lo = pl.slice(k_acc, [1, HALF], [b, 0])
                        hi = pl.slice(k_acc, [1, HALF], [b, HALF])
                        new_lo = pl.sub(pl.mul(lo, cos[pos : pos + 1, 0:HALF]),
                                        pl.mul(hi, sin[pos : pos + 1, 0:HALF]))
                        new_hi = pl.add(pl.mul(hi, cos[pos : pos + 1, HALF:head_dim]),
                                        pl.mul(lo, sin[pos : pos + 1, HALF:head_dim]))
                        head = kv0 // head_dim
                        row = (b * KV_HEADS + head) * MAX_SEQ + pos
                        new_lo = pl.cast(new_lo, target_type=pl.BF16)
                        new_hi = pl.cast(new_hi, target_type=pl.BF16)
                        k_cache = pl.assemble(k_cache, new_lo, [row, 0])
                        k_cache = pl.assemble(k_cache, new_hi, [row, HALF])
            for ob in pl.range(KV_BLOCKS):
                kv0 = ob * KV_OUT_CHUNK
                with pl.at(level=pl.Level.CORE_GROUP):
                    v_acc = pl.matmul(x[:, 0:K_CHUNK], wv[0:K_CHUNK, kv0 : kv0 + KV_OUT_CHUNK],
                                      out_dtype=pl.FP32)
                    for kb in pl.range(1, K_BLOCKS):
                        k0 = kb * K_CHUNK
                        v_acc = pl.matmul_acc(v_acc, x[:, k0 : k0 + K_CHUNK],
                                              wv[k0 : k0 + K_CHUNK, kv0 : kv0 + KV_OUT_CHUNK])
                with pl.at(level=pl.Level.CORE_GROUP):
                    for b in pl.range(BATCH):
                        pos = pl.read(seq_lens, [b]) - 1
                        head = kv0 // head_dim
                        row = (b * KV_HEADS + head) * MAX_SEQ + pos
                        v_row = pl.cast(v_acc[b : b + 1, :], target_type=pl.BF16)
                        v_cache = pl.assemble(v_cache, v_row, [row, 0])
            for b in pl.range(0, BATCH * HEADS, 64):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[b : b + 64, :] = q_rows[b : b + 64, :]
            return k_cache, v_cache, out

    return FusedRope


if __name__ == "__main__":
    draw = np.random.default_rng(11)

    def made(*shape):
        return (draw.standard_normal(shape) / 8).astype(ml_dtypes.bfloat16)

    angles = np.arange(MAX_SEQ)[:, None] * 10000.0 ** (-np.arange(HEAD_DIM)[None, :] / HEAD_DIM)
    cache = (BATCH * KV_HEADS * MAX_SEQ, HEAD_DIM)
    specs = [
        TensorSpec("x", (BATCH, HIDDEN), pl.BF16, made(BATCH, HIDDEN)),
        TensorSpec("wq", (HIDDEN, HEADS * HEAD_DIM), pl.BF16, made(HIDDEN, HEADS * HEAD_DIM)),
        TensorSpec("wk", (HIDDEN, KV_HEADS * HEAD_DIM), pl.BF16, made(HIDDEN, KV_HEADS * HEAD_DIM)),
        TensorSpec("wv", (HIDDEN, KV_HEADS * HEAD_DIM), pl.BF16, made(HIDDEN, KV_HEADS * HEAD_DIM)),
        TensorSpec("seq_lens", (BATCH,), pl.INT32, np.arange(1, BATCH + 1, dtype=np.int32) * 7),
        TensorSpec("cos", (MAX_SEQ, HEAD_DIM), pl.FP32, np.cos(angles).astype(np.float32)),
        TensorSpec("sin", (MAX_SEQ, HEAD_DIM), pl.FP32, np.sin(angles).astype(np.float32)),
        TensorSpec("k_cache", cache, pl.BF16, made(*cache), is_output=True),
        TensorSpec("v_cache", cache, pl.BF16, made(*cache), is_output=True),
        TensorSpec("out", (BATCH * HEADS, HEAD_DIM), pl.BF16, is_output=True),
    ]
    run(build(), specs)
"""
