"""The sections of the bench."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilelet.bench import torch_forms
from tilelet.bench.calls import calls
from tilelet.bench.cases import (
    BF16,
    FP32,
    BenchCase,
    int8_case,
    matmul_case,
    model_case,
    vector_case,
)
from tilelet.bench.goldens import goldens
from tilelet.bench.report import Goal
from tilelet.bench.runner import Bench
from tilelet.bench.searches import searches
from tilelet.bench.sizes import (
    HIDDEN_5120,
    HIDDEN_8192,
    LAYER_5120,
    PREFILL,
    SMALL,
    SMALL_PREFILL,
)
from tilelet.bench.timing import Effort, Form, Missing, run_once
from tilelet.bench.tokens import tokens
from tilelet.dataclasses import dataclass

if TYPE_CHECKING:
    from torch import Tensor

STREAMING = Goal("copy_share", 0.85)
AHEAD_OF_VECTOR = Goal("ours_is_faster", 1.0)
INT8_WEIGHTS = Goal("read_share", 0.60)
TWO_THREADS = Goal("scaling", 1.8)
SCOPE = (Goal("fma_share", 0.65), TWO_THREADS)
FEW_ROWS = (Goal("fma_share", 0.70), TWO_THREADS)
MANY_ROWS = (Goal("fma_share", 0.80), TWO_THREADS)
PREFILL_LAYER = (Goal("fma_share", 0.85), TWO_THREADS)
LAYER_TIME = Goal("seconds", 1.0, is_upper=True)
RUNTIME = (
    Goal("runtime_seconds", 0.050, is_upper=True),
    Goal("runtime_per_task", 1e-6, is_upper=True),
)
COMPILE = (Goal("cold_seconds", 2.5, is_upper=True), Goal("warm_seconds", 0.1, is_upper=True))
FIRST_COMPILE = Goal("cold_seconds", 1.5, is_upper=True)
AHEAD_OF_BF16 = Goal("ours_is_faster", 3.3)
AHEAD_OF_FP32 = Goal("ours_is_faster", 1.6)
AHEAD_OF_SDPA = Goal("ours_is_faster", 1.0)  # of the last form, `padding_free`

SLICE = 256  # columns for which torch takes half a minute

NO_TORCH = Missing("torch", "not installed: `pip install 'tilelet[torch]'`")
Others = list[Form | Missing]


def _model(bench: Bench, name: str, sizes: dict[str, int]) -> BenchCase:
    label = f"{name.replace(':', ' ')}, hidden {sizes['hidden']}"
    return model_case(bench.data, label, f"qwen3/{name}", sizes)


# --- products -------------------------------------------------------------------------------------


def matmul(bench: Bench) -> None:
    """Products of a decode layer and of a prefill layer, here and in other libraries."""
    rows, inner, columns = (16, 1024, 2048) if bench.is_quick else (16, 5120, 25600)
    with bench.guard("decode product"):
        case = matmul_case(bench.data, rows, inner, columns)
        forms = [*_torch_products(bench, case), *_other_products(bench, case)]
        bench.measure([case], FEW_ROWS, forms)
    with bench.guard("prefill product"):
        case = matmul_case(bench.data, 512, inner, columns, row_tile=128)
        bench.measure([case], MANY_ROWS)
    with bench.guard("INT8 weights"):
        case = int8_case(bench.data, inner, columns)
        bench.measure([case], [INT8_WEIGHTS], [_torch_int8(bench, case)])


def _other_products(bench: Bench, case: BenchCase) -> Others:
    x, w = case.arguments["x"], case.arguments["w"]
    wide_x, wide_w = x.astype(FP32), bench.data.normal("wide_w", w.shape, FP32)
    forms: Others = [Form("NumPy, FP32 weights", lambda: wide_x @ wide_w, is_foreign=True)]
    if importlib.util.find_spec("jax") is None:
        return [*forms, Missing("JAX, BF16", "not installed")]
    # an optional package without types
    jax: object = importlib.import_module("jax")
    jnp: object = importlib.import_module("jax.numpy")
    product = jax.jit(functools.partial(jnp.matmul, preferred_element_type=jnp.float32))
    left, right = jnp.asarray(x), jnp.asarray(w)

    def run() -> object:
        return product(left, right).block_until_ready()

    return [*forms, Form("JAX, BF16", run, is_foreign=True)]


def _torch_products(bench: Bench, case: BenchCase) -> Others:
    """Other forms of a product; weights as [out, in] are reinterpreted, not transposed."""
    if not torch_forms.is_installed():
        return [NO_TORCH]
    torch_forms.use_threads(bench.threads)
    x, w = case.arguments["x"], case.arguments["w"]
    inner, columns = w.shape
    wide_w = torch_forms.tensor(bench.data.normal("wide_w", w.shape, FP32))
    narrow_x, narrow_w = torch_forms.tensor(x), torch_forms.tensor(w)
    wide_x = narrow_x.float()
    by_rows, wide_by_rows = narrow_w.view(columns, inner), wide_w.view(columns, inner)
    few = min(SLICE, columns)
    blocks = torch_forms.Blocks()

    sliced = f"measured on {few} columns, scaled"

    def form(name: str, run: Callable[[], object], part: float = 1.0, note: str = "") -> Form:
        return Form(f"torch {name}", torch_forms.in_inference_mode(run), True, part, note)

    return [
        form("x @ W, BF16", lambda: narrow_x @ narrow_w[:, :few], few / columns, sliced),
        form("F.linear, BF16", lambda: torch_forms.linear(narrow_x, by_rows)),
        form("BF16 widened in blocks", lambda: blocks(narrow_x, by_rows)),
        form("x @ W, FP32 weights", lambda: wide_x @ wide_w),
        form("F.linear, FP32 weights", lambda: torch_forms.linear(wide_x, wide_by_rows)),
        form("W @ x, FP32 weights", lambda: torch_forms.weight_first(wide_x, wide_by_rows)),
        form("FP32 weights in blocks", lambda: blocks(wide_x, wide_by_rows)),
        _torch_compiled(bench, narrow_x, by_rows),
    ]


def _torch_int8(bench: Bench, case: BenchCase) -> Form | Missing:
    """Weights in INT8 with BF16 activations; as [out, in], reinterpreted."""
    name = "torch INT8 weights, BF16"
    if not torch_forms.is_installed():
        return NO_TORCH
    torch_forms.use_threads(bench.threads)
    inner, columns = case.arguments["w"].shape
    x = torch_forms.tensor(case.arguments["x"].astype(BF16))
    w = torch_forms.tensor(case.arguments["w"]).view(columns, inner)
    scale = torch_forms.tensor(case.arguments["scale"][0].astype(BF16))
    run = torch_forms.int8_linear(x, w, scale)
    return Form(name, run, is_foreign=True) if run else Missing(name, "not in this torch")


def _torch_compiled(bench: Bench, x: Tensor, w: Tensor) -> Form | Missing:
    name = "torch.compile, BF16"
    if bench.is_quick:
        return Missing(name, "left out: its search takes long")
    bench.say(f"matmul: {name}")
    try:
        return Form(name, torch_forms.compiled_linear(x, w), is_foreign=True)
    except Exception as error:
        return Missing(name, f"does not work here: {type(error).__name__}")


# --- parts of a decode layer ----------------------------------------------------------------------


def scope1(bench: Bench) -> None:
    """RMSNorm and the projections to queries, keys and values."""
    sizes = SMALL if bench.is_quick else HIDDEN_8192
    for name in ("scope1:per_block", "scope1:chunked", "scope1:wide"):
        with bench.guard(name):
            bench.measure([_model(bench, name, sizes)], SCOPE)


def scope3(bench: Bench) -> None:
    """Output projection, residual, RMSNorm and MLP."""
    for sizes in [SMALL] if bench.is_quick else [HIDDEN_5120, HIDDEN_8192]:
        for name in ("scope3:baseline", "scope3:refactored", "scope3:tuned"):
            with bench.guard(name):
                case = _model(bench, name, sizes)
                has_many_tasks = name == "scope3:baseline" and sizes is HIDDEN_5120
                bench.measure([case], [*SCOPE, *(RUNTIME if has_many_tasks else ())])


def attention(bench: Bench) -> None:
    """RoPE, cache update and attention over full contexts."""
    sizes = SMALL if bench.is_quick else HIDDEN_8192
    with bench.guard("attention"):
        names = ("scope2:staged", "scope2:fused", "scope2:padding_free")
        cases = [_model(bench, name, sizes) for name in names]
        others = _torch_attentions(bench, cases[-1])
        goals = {form.name: AHEAD_OF_SDPA for form in others}
        bench.measure(cases, others=others, other_goals=goals)


def _torch_attentions(bench: Bench, case: BenchCase) -> Others:
    """Attention alone, with rotated queries and updated caches."""
    if not torch_forms.is_installed():
        return [NO_TORCH]
    torch_forms.use_threads(bench.threads)
    s = _shape(case)
    q = torch_forms.tensor(case.arguments["q_proj"].astype(BF16))
    q = q.view(s.batch, s.kv_heads, s.q_per_kv, s.head_dim)
    k, v = (
        torch_forms.tensor(case.arguments[name]).view(s.batch, s.kv_heads, s.max_seq, s.head_dim)
        for name in ("k_cache", "v_cache")
    )

    def form(name: str, attend: torch_forms.Attention) -> Form:
        return Form(
            f"torch {name}, BF16", torch_forms.in_inference_mode(lambda: attend(q, k, v)), True
        )

    return [form(name, attend) for name, attend in torch_forms.ATTENTION.items()]


def _shape(case: BenchCase) -> Any:
    from tilelet.models import registry

    model, variant = registry.resolve(case.name)
    return model.shape_for(variant, **case.sizes)


# --- whole layers ---------------------------------------------------------------------------------


def decode(bench: Bench) -> None:
    """The whole decode layer, here and in torch."""
    names = ("decode:baseline", "decode:optimised")
    effort = bench.effort if bench.is_quick else Effort(5, 60.0)
    if not bench.is_quick:
        with bench.guard("decode, hidden 5120"):
            cases = [_model(bench, name, LAYER_5120) for name in names]
            bench.measure(cases, effort=effort)
    sizes = SMALL if bench.is_quick else HIDDEN_8192
    with bench.guard(f"decode, hidden {sizes['hidden']}"):
        cases = [_model(bench, name, sizes) for name in names]
        forms = _torch_layers(bench, cases[-1])
        goals = {form.name: goal for form, goal in forms.items()}
        bench.measure(cases, [LAYER_TIME, *COMPILE], list(forms), goals, effort)


def _torch_layers(bench: Bench, case: BenchCase) -> dict[Form | Missing, Goal]:
    """Return the fastest form of each kind: one call per weight or blocked; BF16 or FP32."""
    if not torch_forms.is_installed():
        return {NO_TORCH: AHEAD_OF_BF16}
    torch_forms.use_threads(bench.threads)
    blocks = torch_forms.Blocks()
    by_hand = {"in blocks": blocks}
    calls = {"F.linear": torch_forms.linear, "W @ x": torch_forms.weight_first}
    layers = {"BF16": _torch_layer(bench, case, BF16), "FP32": _torch_layer(bench, case, FP32)}
    kinds = [
        ("BF16", {"F.linear": torch_forms.linear}, AHEAD_OF_BF16),
        ("BF16", {"widened in blocks": blocks}, AHEAD_OF_BF16),
        ("FP32", calls, AHEAD_OF_FP32),
        ("FP32", by_hand, AHEAD_OF_FP32),
    ]
    found: dict[Form | Missing, Goal] = {}
    for width, ways, goal in kinds:
        layer = layers[width]
        candidates = [
            _layer_form(f"torch {width} weights, {way}, {name}", layer, project, attend)
            for way, project in ways.items()
            for name, attend in torch_forms.ATTENTION.items()
        ]
        bench.say(f"decode: the fastest of {len(candidates)} forms in torch, {width} weights")
        found[_fastest(candidates)] = goal
    return found


def _layer_form(
    name: str,
    layer: torch_forms.DecodeLayer,
    project: torch_forms.Linear,
    attend: torch_forms.Attention,
) -> Form:
    return Form(
        name, torch_forms.in_inference_mode(lambda: layer(project, attend)), is_foreign=True
    )


def _fastest(candidates: list[Form]) -> Form:
    """Rank forms by one run each, after a warm-up."""
    for form in candidates:
        form.run()
    times = [run_once(form).clock for form in candidates]
    return candidates[times.index(min(times))]


def _torch_layer(bench: Bench, case: BenchCase, dtype: object) -> torch_forms.DecodeLayer:
    """Return weights (reinterpreted as [out, in]) and caches in `dtype`."""
    tensors: dict[str, Tensor] = {}
    for name, array in case.arguments.items():
        is_weight = name.startswith("w")
        if dtype == FP32 and (is_weight or name.endswith("_cache")):
            array = bench.data.normal(f"wide_{name}", array.shape, FP32, 0.01)
        tensors[name] = torch_forms.tensor(array.reshape(array.shape[::-1]) if is_weight else array)
    s = _shape(case)
    return torch_forms.DecodeLayer(tensors, s.kv_heads, s.head_dim, s.eps)


def prefill(bench: Bench) -> None:
    """A whole prefill layer, two sequences of 256 tokens."""
    sizes = SMALL_PREFILL if bench.is_quick else PREFILL
    with bench.guard("prefill"):
        bench.measure([_model(bench, "prefill:tuned", sizes)], PREFILL_LAYER)


# --- memory ---------------------------------------------------------------------------------------


def vector(bench: Bench) -> None:
    """Softmax, norms, SwiGLU, add and cast of tensors larger than the caches."""
    rows, columns = (512, 2048) if bench.is_quick else (16384, 2048)
    for op in ("softmax", "rmsnorm", "layernorm", "swiglu", "add", "cast"):
        with bench.guard(op):
            case = vector_case(bench.data, op, rows, columns)
            form = _torch_vector(bench, op, case)
            goals = [STREAMING, FIRST_COMPILE]
            bench.measure([case], goals, [form], {form.name: AHEAD_OF_VECTOR})


def _torch_vector(bench: Bench, op: str, case: BenchCase) -> Form | Missing:
    """The same in torch, into preallocated outputs where possible."""
    if not torch_forms.is_installed():
        return NO_TORCH
    import torch

    torch_forms.use_threads(bench.threads)
    tensors = {name: torch_forms.tensor(array) for name, array in case.arguments.items()}
    x, out = tensors["x"], tensors["out"]
    runs: dict[str, Callable[[], object]] = {
        "softmax": lambda: torch.softmax(x, -1, out=out),
        "rmsnorm": lambda: torch.nn.functional.rms_norm(x, x.shape[1:], tensors["weight"][0], 1e-6),
        "layernorm": lambda: torch.nn.functional.layer_norm(
            x, x.shape[1:], tensors["weight"][0], tensors["bias"][0]
        ),
        "swiglu": lambda: torch.mul(torch.nn.functional.silu(x), tensors["y"], out=out),
        "add": lambda: torch.add(x, tensors["y"], out=out),
        "cast": lambda: out.copy_(x),
    }
    return Form(f"torch {op}", torch_forms.in_inference_mode(runs[op]), is_foreign=True)


# --- all of them ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """A section of the bench."""

    about: str
    run: Callable[[Bench], None]


SECTIONS = {
    "matmul": Section("one product, here and in torch, NumPy and JAX", matmul),
    "scope1": Section("RMSNorm and Q/K/V projections of a decode layer", scope1),
    "scope3": Section("output projection and MLP of a decode layer", scope3),
    "attention": Section("RoPE, cache update and attention of a decode layer", attention),
    "decode": Section("a whole decode layer, here and in torch", decode),
    "prefill": Section("a whole prefill layer, two sequences of 256 tokens", prefill),
    "vector": Section("softmax, norms, SwiGLU, add and cast: memory only", vector),
    "call": Section("what a small call and a small script cost", calls),
    "tune": Section("tile sizes of scope 3: the tuner's search and a random one", searches),
    "tokens": Section("a whole model of 0.6B, here and by transformers", tokens),
    "goldens": Section("results of every Qwen3 program at full size", goldens),
}
