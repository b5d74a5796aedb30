"""August 2026 style: `@pl.jit` with inlined helpers, subscripts, `run_jit`, comparators."""

# ruff: noqa: C408

import pypto.language as pl

ROWS, COLS, TILE = 64, 128, 16


@pl.jit.inline
def centre(tile):
    mean = pl.mul(pl.row_sum(tile), 1.0 / COLS)
    return pl.row_expand_sub(tile, mean)


@pl.jit
def centre_rows(
    x: pl.Tensor[[ROWS, COLS], pl.FP32],
    y: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
    total: pl.Out[pl.Tensor[[ROWS, 1], pl.FP32]],
):
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="centre"):
            tile = x[r : r + TILE, :]
            y[r : r + TILE, :] = centre(tile)
            total[r : r + TILE, :] = pl.row_sum(tile)
    return y, total


def golden_centre(tensors):
    x = tensors["x"]
    tensors["y"][:] = x - x.mean(dim=-1, keepdim=True)
    tensors["total"][:] = x.sum(dim=-1, keepdim=True)


def build_tensor_specs():
    import torch

    from golden import TensorSpec

    return [
        TensorSpec("x", [ROWS, COLS], torch.float32, init_value=torch.randn),
        TensorSpec("y", [ROWS, COLS], torch.float32, is_output=True),
        TensorSpec("total", [ROWS, 1], torch.float32, is_output=True),
    ]


if __name__ == "__main__":
    import argparse

    from golden import ratio_allclose, run_jit

    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", type=str, default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    parser.add_argument("--enable-chip-swimlane", type=int, nargs="?", const=4, default=0)
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--save-data", action="store_true")
    parser.add_argument("--no-golden", action="store_true")
    args = parser.parse_args()

    result = run_jit(
        fn=centre_rows,
        specs=build_tensor_specs(),
        golden_fn=None if args.no_golden else golden_centre,
        compile_cfg=dict(dump_passes=False),
        runtime_cfg=dict(
            platform=args.platform,
            device_id=args.device,
            enable_chip_swimlane=args.enable_chip_swimlane,
        ),
        rtol=1e-4,
        atol=1e-4,
        compare_fn={} if args.no_golden else {"y": ratio_allclose(atol=1e-4, rtol=1e-4)},
        compile_only=args.compile_only,
        save_data=args.save_data,
    )
    if not result.passed:
        if result.error:
            print(result.error)
        raise SystemExit(1)
