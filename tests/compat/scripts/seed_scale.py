"""April 2026 style: a builder, `pypto.runtime`, a two-argument golden, terse console."""

from __future__ import annotations

import pypto.language as pl

ROWS = 64
COLS = 128
ROW_CHUNK = 16


def build_scale_program(rows: int = ROWS, cols: int = COLS, row_chunk: int = ROW_CHUNK):
    @pl.program
    class ScaleProgram:
        @pl.function(type=pl.FunctionType.Opaque)
        def scale(
            self,
            x: pl.Tensor[[rows, cols], pl.FP32],
            gain: pl.Tensor[[1, cols], pl.FP32],
            y: pl.Tensor[[rows, cols], pl.BF16],
        ) -> pl.Tensor[[rows, cols], pl.BF16]:
            for r in pl.range(0, rows, row_chunk):
                with pl.incore():
                    tile = pl.slice(x, [row_chunk, cols], [r, 0])
                    scaled = pl.col_expand_mul(tile, pl.slice(gain, [1, cols], [0, 0]))
                    y = pl.assemble(y, pl.cast(scaled, target_type=pl.BF16), [r, 0])
            return y

    return ScaleProgram


def golden_scale(tensors, params):
    tensors["y"][:] = (tensors["x"] * tensors["gain"]).bfloat16()


def wrong_golden(tensors, params):
    tensors["y"][:] = (tensors["x"] * tensors["gain"] + 1.0).bfloat16()


def build_tensor_specs(rows: int = ROWS, cols: int = COLS):
    import torch
    from pypto.runtime import TensorSpec

    return [
        TensorSpec("x", [rows, cols], torch.float32, init_value=torch.randn),
        TensorSpec("gain", [1, cols], torch.float32, init_value=lambda: torch.rand(1, cols) + 0.5),
        TensorSpec("y", [rows, cols], torch.bfloat16, is_output=True),
    ]


def compile_and_run(
    platform: str = "a5",
    device_id: int = 0,
    dump_passes: bool = True,
    runtime_profiling: bool = False,
    golden=golden_scale,
):
    from pypto.backend import BackendType
    from pypto.ir.pass_manager import OptimizationStrategy
    from pypto.runtime import RunConfig, run

    backend = BackendType.Ascend950 if platform.startswith("a5") else BackendType.Ascend910B
    return run(
        program=build_scale_program(),
        tensor_specs=build_tensor_specs(),
        golden=golden,
        config=RunConfig(
            platform=platform,
            device_id=device_id,
            rtol=1e-2,
            atol=1e-2,
            strategy=OptimizationStrategy.Default,
            dump_passes=dump_passes,
            backend_type=backend,
            runtime_profiling=runtime_profiling,
        ),
    )


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument(
        "-p", "--platform", default="a5", choices=["a2a3", "a2a3sim", "a5", "a5sim"]
    )
    parser.add_argument("-d", "--device", type=int, default=0)
    parser.add_argument("--runtime-profiling", "--enable-profiling", action="store_true")
    parser.add_argument("--wrong", action="store_true")
    parser.add_argument("--ignore", action="store_true")
    args = parser.parse_args()

    result = compile_and_run(
        platform=args.platform,
        device_id=args.device,
        runtime_profiling=args.runtime_profiling,
        golden=wrong_golden if args.wrong else golden_scale,
    )
    if not result.passed and not args.ignore:
        if result.error and "code_runner" in result.error:
            print("Result: COMPILE OK, device run skipped")
        elif result.error:
            print(f"Result: {result.error}")
        raise SystemExit(1)
