"""Late April 2026 style: the `golden` package, in/out state, a scalar, one-argument golden."""

# ruff: noqa: B007, C408

import pypto.language as pl


@pl.program
class Accumulate:
    @pl.function(type=pl.FunctionType.Opaque)
    def accumulate(
        self,
        x: pl.Tensor[[32, 64], pl.FP32],
        steps: pl.Scalar[pl.INT32],
        state: pl.InOut[pl.Tensor[[32, 64], pl.FP32]],
    ) -> pl.Tensor[[32, 64], pl.FP32]:
        for i in pl.range(0, steps):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="add"):
                old = pl.slice(state, [32, 64], [0, 0])
                state = pl.assemble(state, pl.add(old, pl.slice(x, [32, 64], [0, 0])), [0, 0])
        return state


def golden_accumulate(tensors):
    steps = int(tensors["steps"])
    tensors["state"][:] = tensors["state"] + steps * tensors["x"]


def build_tensor_specs(steps):
    import torch

    from golden import ScalarSpec, TensorSpec

    return [
        TensorSpec("x", [32, 64], torch.float32, init_value=torch.randn),
        ScalarSpec("steps", torch.int32, steps),
        TensorSpec("state", [32, 64], torch.float32, init_value=torch.ones, is_output=True),
    ]


if __name__ == "__main__":
    import argparse

    from golden import RunConfig, run

    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", type=str, default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    parser.add_argument("--enable-l2-swimlane", action="store_true", default=False)
    parser.add_argument("--golden-data", type=str, default=None)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()

    result = run(
        program=Accumulate,
        specs=build_tensor_specs(args.steps),
        golden_fn=golden_accumulate,
        golden_data=args.golden_data,
        config=RunConfig(
            rtol=1e-4,
            atol=1e-4,
            compile=dict(dump_passes=False),
            runtime=dict(
                platform=args.platform,
                device_id=args.device,
                enable_l2_swimlane=args.enable_l2_swimlane,
            ),
        ),
    )
    if not result.passed:
        if result.error:
            print(result.error)
        raise SystemExit(1)
