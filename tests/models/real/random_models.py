"""Random tiny models with all kinds of sizes and settings, and prompts for them.

`python -m tests.models.real.random_models FIRST COUNT` compares so many with the reference.
"""

from __future__ import annotations

import atexit
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilelet.models import qwen3
from tilelet.models.qwen3.compare import ModelComparison, ReferenceModel, compare
from tilelet.models.qwen3.generate import generate
from tilelet.models.qwen3.reference import Array

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

NEW = 64


@dataclass(frozen=True)
class RandomModel:
    """fields   of the configuration, as `transformers` takes them
    dtype     of the weights
    spread    standard deviation of matrices, in proportion to one over the root of their inputs
    sizes     of the caches: `page`, `chunk`, `batch`, `max_seq`
    lengths   of the prompts
    """

    seed: int
    fields: dict[str, Any]
    is_sparse: bool
    dtype: str
    spread: float
    sizes: dict[str, int]
    lengths: tuple[int, ...]

    def save(self) -> Path:
        """Write the model's directory."""
        kind = "Qwen3Moe" if self.is_sparse else "Qwen3"
        config = getattr(transformers, f"{kind}Config")(**self.fields)
        model = getattr(transformers, f"{kind}ForCausalLM")(config)
        generator = torch.Generator().manual_seed(self.seed)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "norm" in name:
                    weight.uniform_(0.5, 1.5, generator=generator)
                else:
                    size = 1.0 if "embed" in name else self.spread * weight.shape[-1] ** -0.5
                    weight.normal_(0, size, generator=generator)
        directory = Path(tempfile.mkdtemp(prefix="random-qwen3-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        shard = {} if self.seed % 2 else {"max_shard_size": "50KB"}
        model.to(getattr(torch, self.dtype)).save_pretrained(directory, **shard)
        return directory

    def prompts(self) -> list[Array]:
        rng = np.random.default_rng(self.seed)
        return [rng.integers(0, self.fields["vocab_size"], n) for n in self.lengths]


def random_model(seed: int) -> RandomModel:
    """Draw any supported model; the same one for the same seed."""
    rng = random.Random(seed)
    kv_heads = rng.choice([1, 1, 2, 3])
    fields: dict[str, Any] = {
        "hidden_size": rng.choice([16, 24, 40, 48, 64, 72, 90, 100, 128, 130, 256]),
        "num_attention_heads": kv_heads * rng.choice([1, 2, 3, 4, 5]),
        "num_key_value_heads": kv_heads,
        "head_dim": rng.choice([8, 16, 20, 24, 32, 64, 128]),
        "intermediate_size": rng.choice([24, 33, 56, 64, 96, 100, 144, 257, 512]),
        "num_hidden_layers": rng.randint(1, 4),
        "vocab_size": rng.choice([61, 97, 255, 256, 257, 300, 513, 1000]),
        "max_position_embeddings": 512,
        "rms_norm_eps": rng.choice([1e-6, 1e-5, 1e-3]),
        "tie_word_embeddings": rng.random() < 0.5,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": rng.choice([1e4, 1e6, 5e6, 123456.0]),
        },
        "attn_implementation": "eager",
    }
    is_sparse = rng.random() < 0.4
    if is_sparse:
        experts = rng.choice([2, 3, 5, 8, 16])
        layers = fields["num_hidden_layers"]
        dense = [n for n in range(layers) if rng.random() < 0.3]
        fields |= {
            "num_experts": experts,
            "num_experts_per_tok": rng.randint(1, min(experts, 4)),
            "moe_intermediate_size": rng.choice([8, 24, 32, 40, 63]),
            "norm_topk_prob": rng.random() < 0.5,
            "decoder_sparse_step": rng.choice([1, 1, 2]),
            "mlp_only_layers": rng.choice([[], dense]),
            "experts_implementation": "eager",
        }
    page = rng.choice([16, 32])
    chunk = page * rng.choice([1, 2, 3])
    # Return lengths at and beside the ends of pages and chunks.
    ends = [page, 2 * page, chunk, 2 * chunk, 3 * page]
    lengths = [max(1, rng.choice(ends) + rng.choice([-1, 0, 1])) for _ in range(3)]
    longest = max(lengths) + NEW - 1
    return RandomModel(
        seed=seed,
        fields=fields,
        is_sparse=is_sparse,
        dtype=rng.choice(["float32", "bfloat16"]),
        spread=rng.choice([0.5, 1.0, 2.0]),
        sizes={
            "page": page,
            "chunk": chunk,
            "batch": rng.choice([1, 2, 4]),
            "max_seq": longest + rng.choice([0, 1, 17]),
        },
        lengths=(rng.randint(1, 5), *lengths),
    )


def reference_tokens(model: Any, prompt: Array, count: int) -> list[int]:
    """Return the tokens that the reference generates greedily."""
    given = torch.from_numpy(prompt)[None]
    with torch.no_grad():
        found = model.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    return found[0, len(prompt) :].tolist()


@dataclass(frozen=True)
class Found:
    """Both outputs, and their comparison position by position."""

    ours: list[list[int]]
    theirs: list[list[int]]
    comparison: ModelComparison

    @property
    def is_same(self) -> bool:
        return self.ours == self.theirs


def compared(case: RandomModel, new: int = NEW) -> Found:
    """Generate with both on the same prompts."""
    directory, prompts = case.save(), case.prompts()
    model = qwen3.load(directory, **case.sizes)
    ours: list[list[int]] = [[] for _ in prompts]
    for token in generate(model, prompts, max_new_tokens=new):
        ours[token.sequence].append(token.token)
    reference = ReferenceModel(directory, model.dtype, model.config.num_hidden_layers)
    theirs = [reference_tokens(reference.model, prompt, new) for prompt in prompts]
    return Found(ours, theirs, compare(model, reference, prompts, ours))


def main(arguments: Sequence[str]) -> int:
    first, count = (int(a) for a in arguments)
    torch.set_num_threads(1)
    failures = 0
    for seed in range(first, first + count):
        case, begin = random_model(seed), time.perf_counter()
        found = compared(case)
        comparison = found.comparison
        is_good = comparison.agrees and (found.is_same or case.dtype != "float32")
        failures += not is_good
        worst = max(layer.distance / layer.bound for layer in comparison.layers)
        print(
            f"{seed} {'experts' if case.is_sparse else 'dense'} {case.dtype}: "
            f"{'good' if is_good else 'BAD'}, the same tokens: {found.is_same}, "
            f"{len(comparison.differences)} of {len(comparison.choices)} other choices, "
            f"{len(comparison.experts)} of {comparison.routed} other experts, "
            f"distance {worst:.2f} of the bound, {time.perf_counter() - begin:.0f} s",
            flush=True,
        )
        if not is_good:
            print(case, comparison, sep="\n", flush=True)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
