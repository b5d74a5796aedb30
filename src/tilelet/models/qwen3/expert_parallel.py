# pyright: basic, reportInvalidTypeForm=false
"""The experts of a Qwen3-MoE layer on several ranks; every rank has its own tokens and experts.

Run it:   python -m tilelet.models.qwen3.expert_parallel --ranks 4 --tokens 16

Rank r has experts `r * experts / ranks`... A token's row goes to the ranks of its experts, which
multiply the rows of all tokens of an expert together, and return the results to the token's rank:

  dispatch   rows of a rank's slots, sorted by expert, and how many each expert gets
  experts    grouped products of the rows from all ranks
  combine    the weighted sum of a token's results, plus the residual

A rank's buffer for received rows has a region per sender, large enough for all its tokens.

Versions:
  obvious     all-to-alls of the host, which move whole regions in FP32
  overlapped  one dispatch: only rows that exist are sent, in the dtype of the model; a result is
              returned when its tile is computed, while others are multiplied
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.diag.catalogue.models import BadTile
from tilelet.dtypes import Array
from tilelet.models.qwen3 import inputs
from tilelet.models.qwen3.config import Qwen3Config, Qwen3MoeConfig
from tilelet.models.qwen3.moe import (
    Groups,
    build_moe,
    expert_matrices,
    make_combine,
    make_dispatch,
    make_experts,
    make_routing,
    moe_config,
)
from tilelet.models.qwen3.published import LayerShape
from tilelet.models.qwen3.tensor_parallel import CELL
from tilelet.ranks.config import DistributedConfig
from tilelet.runtime import RunConfig, TensorSpec, compile_program, run


@dataclasses.dataclass(frozen=True)
class ExchangeShape:
    """Sizes of the exchange of `tokens` tokens per rank."""

    s: LayerShape
    tokens: int
    ranks: int

    def __post_init__(self) -> None:
        experts = self.config.num_experts
        if self.ranks < 1 or experts % self.ranks:
            raise BadTile("ranks", self.ranks, f"a divisor of `num_experts`, {experts}")

    @property
    def config(self) -> Qwen3MoeConfig:
        return moe_config(self.s)

    @property
    def experts(self) -> int:
        """Return the experts of one rank."""
        return self.config.num_experts // self.ranks

    @property
    def slots(self) -> int:
        return self.tokens * self.config.num_experts_per_tok

    @property
    def region(self) -> int:
        """Return the rows that one rank may send to another: a token has each expert once."""
        return self.tokens * min(self.config.num_experts_per_tok, self.experts)

    @property
    def counts(self) -> list[int]:
        """Return the shape of row counts and first rows of the experts, for all senders."""
        return [2 * self.ranks, math.ceil(self.experts / 8) * 8]  # rows of whole 32-byte blocks

    @property
    def received(self) -> list[int]:
        return [self.ranks * self.region, self.config.hidden_size]

    def groups(self, narrows: bool) -> Groups:
        received = self.ranks * self.region
        return Groups(self.experts, received, self.ranks * self.tokens, 1, narrows)


def make_own_tokens(x: ExchangeShape):
    """Route a rank's tokens and sort their slots; count what goes to each expert.

    Rows `2 * p` and `2 * p + 1` of `counts` are, for the experts of rank p, the number of rows and
    the first of them in the region.
    """
    c, TOKENS, SLOTS, RANKS, EXPERTS = x.config, x.tokens, x.slots, x.ranks, x.experts
    HIDDEN, E, DTYPE = c.hidden_size, c.num_experts, x.s.dtype
    COUNTS = x.counts
    normalise_and_route = make_routing(x.s, TOKENS)
    dispatch = make_dispatch(x.s, TOKENS)

    @pl.inline
    def route_and_sort(residual, post_norm, w_router, chosen, shares, places, valid):
        normed = pl.create_tensor([TOKENS, HIDDEN], dtype=DTYPE)
        chosen, shares = normalise_and_route(
            residual, post_norm, w_router, normed, chosen, shares, valid
        )
        order = pl.create_tensor([1, SLOTS], dtype=pl.INT32)
        groups = pl.create_tensor([2, E], dtype=pl.INT32)
        order, places, groups = dispatch(chosen, order, places, groups, valid)
        counts = pl.create_tensor(COUNTS, dtype=pl.INT32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="count_rows"):
            for p in pl.range(RANKS):
                begin = pl.read(groups, [1, p * EXPERTS])
                for e in pl.range(EXPERTS):
                    pl.write(counts, [2 * p, e], pl.read(groups, [0, p * EXPERTS + e]))
                    first = pl.read(groups, [1, p * EXPERTS + e]) - begin
                    pl.write(counts, [2 * p + 1, e], first)
        return normed, order, places, groups, counts, shares

    return route_and_sort


def make_sorting(x: ExchangeShape):
    """Sort received rows by expert, given the counts of all senders."""
    RANKS, EXPERTS, REGION = x.ranks, x.experts, x.region
    ROWS = RANKS * REGION
    NUMBERS = math.ceil(REGION / 8) * 8

    @pl.inline
    def sort_received(counts, order, groups):
        first: Any = 0
        for e in pl.range(EXPERTS):
            pl.write(groups, [1, e], pl.cast(first, pl.INT32))
            begin = first
            for p in pl.range(RANKS):
                count = pl.read(counts, [2 * p, e])
                row = pl.read(counts, [2 * p + 1, e]) + p * REGION
                rows = pl.arange(pl.cast(row, pl.INT32), [1, NUMBERS])
                order = pl.assemble(order, pl.set_validshape(rows, 1, count), [0, first])
                first = first + count
            pl.write(groups, [0, e], pl.cast(first - begin, pl.INT32))
        return order, groups

    return sort_received, ROWS + NUMBERS


def make_result_rows(x: ExchangeShape):
    """The row of every slot's result among the returned rows, into `rows`."""
    K, EXPERTS, REGION = x.config.num_experts_per_tok, x.experts, x.region

    @pl.inline
    def result_rows(places, chosen, groups, rows, valid):
        for t in pl.range(valid):
            for k in pl.range(K):
                rank = pl.read(chosen, [t, k]) // EXPERTS
                begin = pl.read(groups, [1, rank * EXPERTS])
                place = pl.read(places, [0, t * K + k]) - begin
                pl.write(rows, [0, t * K + k], rank * REGION + place)
        return rows

    return result_rows


class ExchangeTypes:
    """Types of the tensors on one rank, and on all of them."""

    def __init__(self, x: ExchangeShape) -> None:
        c, s, ranks = x.config, x.s, x.ranks
        up, down = (s.stored_shape(*sizes, x.experts) for sizes in expert_matrices(c))

        def both(shape: Any, dtype: Any) -> tuple[Any, Any]:
            return pl.Tensor[[*shape], dtype], pl.Tensor[[ranks, *shape], dtype]

        self.Residual, self.AllResiduals = both([x.tokens, c.hidden_size], pl.FP32)
        self.Out, self.AllOut = both([x.tokens, c.hidden_size], s.dtype)
        self.Count, self.AllCounts = both([1], pl.INT32)
        self.Up, self.AllUps = both(up, s.weight_dtype)
        self.Down, self.AllDowns = both(down, s.weight_dtype)
        self.Norm = pl.Tensor[[1, c.hidden_size], pl.FP32]
        self.Router = pl.Tensor[[c.hidden_size, c.num_experts], s.dtype]
        self.Rows = pld.DistributedTensor[x.received, s.dtype]
        self.WideRows = pld.DistributedTensor[x.received, pl.FP32]
        self.RowCounts = pld.DistributedTensor[x.counts, pl.INT32]
        self.Cell = pld.DistributedTensor[[1, CELL], pl.INT32]


def make_overlapped(x: ExchangeShape) -> Any:
    """The host function."""
    c, t, TOKENS, RANKS, REGION = x.config, ExchangeTypes(x), x.tokens, x.ranks, x.region
    HIDDEN, K, EXPERTS, DTYPE, SLOTS = (
        c.hidden_size, c.num_experts_per_tok, x.experts, x.s.dtype, x.slots,
    )  # fmt: skip
    g = x.groups(narrows=False)
    T, COUNTS, RECEIVED = g.tile, x.counts, x.received
    route_and_sort = make_own_tokens(x)
    sort_received, ORDER = make_sorting(x)
    experts = make_experts(x.s, g)
    result_rows = make_result_rows(x)
    combine = make_combine(x.s, RANKS * REGION)
    ADD, GE = pld.NotifyOp.AtomicAdd, pld.WaitCmp.Ge

    @pl.inline
    def send_rows(normed, order, groups, counts, inbox, inbox_counts, arrived):
        """Send every rank the rows of its experts, in one task per rank."""
        for p in pl.parallel(RANKS):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="send_rows"):
                me = pld.rank(pld.get_comm_ctx(inbox))
                begin = pl.read(groups, [1, p * EXPERTS])
                last = p * EXPERTS + EXPERTS - 1
                count = pl.read(groups, [1, last]) + pl.read(groups, [0, last]) - begin
                for i in pl.range(count):
                    token = pl.read(order, [0, begin + i]) // K
                    row = pl.slice(normed, [1, HIDDEN], [token, 0])
                    pld.tensor.remote_store(row, inbox, peer=p, offsets=[me * REGION + i, 0])
                numbers = pl.slice(counts, [2, COUNTS[1]], [2 * p, 0])
                pld.tensor.remote_store(numbers, inbox_counts, peer=p, offsets=[2 * me, 0])
                pld.system.notify(arrived, peer=p, offsets=[0, 0], value=1, op=ADD)
        return inbox

    @pl.inline
    def return_rows(products, order, groups, results, returned):
        """Return results to the ranks of their tokens, in one task per tile of an expert."""
        for e in pl.parallel(EXPERTS):
            count = pl.read(groups, [0, e])
            begin = pl.read(groups, [1, e])
            for r0 in pl.range(0, count, T):
                used = pl.min(T, count - r0)
                tile = pl.slice(products, [T, HIDDEN], [begin + r0, 0], valid_shape=[used, HIDDEN])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="return_rows"):
                    me = pld.rank(pld.get_comm_ctx(results))
                    for r in pl.range(used):
                        row = pl.read(order, [0, begin + r0 + r])
                        source, place = row // REGION, me * REGION + row % REGION
                        result = pl.slice(tile, [1, HIDDEN], [r, 0])
                        pld.tensor.remote_store(result, results, peer=source, offsets=[place, 0])
                        pld.system.notify(returned, peer=source, offsets=[0, 0], value=1, op=ADD)
        return results

    @pl.jit
    def rank_experts(
        residual: t.Residual, count: t.Count, post_norm: t.Norm, w_router: t.Router, w_gate: t.Up,
        w_up: t.Up, w_down: t.Down, out: pl.Out[t.Out], inbox: t.Rows, inbox_counts: t.RowCounts,
        arrived: t.Cell, results: t.WideRows, returned: t.Cell,
    ):  # fmt: skip
        valid = pl.read(count, [0])
        chosen = pl.create_tensor([TOKENS, K], dtype=pl.INT32)
        shares = pl.create_tensor([TOKENS, K], dtype=pl.FP32)
        places = pl.create_tensor([1, SLOTS], dtype=pl.INT32)
        normed, order, places, groups, counts, shares = route_and_sort(
            residual, post_norm, w_router, chosen, shares, places, valid
        )
        inbox = send_rows(normed, order, groups, counts, inbox, inbox_counts, arrived)
        received_order = pl.create_tensor([1, ORDER], dtype=pl.INT32)
        received_groups = pl.create_tensor([2, EXPERTS], dtype=pl.INT32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="sort_received"):
            pld.system.wait(arrived, offsets=[0, 0], expected=RANKS, cmp=GE)
            received_order, received_groups = sort_received(
                inbox_counts, received_order, received_groups
            )
        products = experts(inbox, received_order, received_groups, w_gate, w_up, w_down)
        results = return_rows(products, received_order, received_groups, results, returned)
        rows = pl.create_tensor([1, SLOTS], dtype=pl.INT32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="result_rows"):
            pld.system.wait(returned, offsets=[0, 0], expected=valid * K, cmp=GE)
            rows = result_rows(places, chosen, groups, rows, valid)
        out = combine(residual, results, rows, shares, out, 0, valid)
        return out  # noqa: RET504 - the assignment says that `out` was written

    @pl.jit.host
    def overlapped_experts(
        residual: t.AllResiduals, count: t.AllCounts, post_norm: t.Norm, w_router: t.Router,
        w_gate: t.AllUps, w_up: t.AllUps, w_down: t.AllDowns, out: pl.Out[t.AllOut],
    ):  # fmt: skip
        inbox_buf = pld.alloc_window_buffer(RECEIVED, dtype=DTYPE)
        counts_buf = pld.alloc_window_buffer(COUNTS, dtype=pl.INT32)
        arrived_buf = pld.alloc_window_buffer([1, CELL], dtype=pl.INT32)
        results_buf = pld.alloc_window_buffer(RECEIVED, dtype=pl.FP32)
        returned_buf = pld.alloc_window_buffer([1, CELL], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            inbox = pld.window(inbox_buf, RECEIVED, dtype=DTYPE)
            inbox_counts = pld.window(counts_buf, COUNTS, dtype=pl.INT32)
            arrived = pld.window(arrived_buf, [1, CELL], dtype=pl.INT32)
            results = pld.window(results_buf, RECEIVED, dtype=pl.FP32)
            returned = pld.window(returned_buf, [1, CELL], dtype=pl.INT32)
            rank_experts(
                residual[r], count[r], post_norm, w_router, w_gate[r], w_up[r], w_down[r], out[r],
                inbox, inbox_counts, arrived, results, returned, device=r,
            )  # fmt: skip

    return overlapped_experts


def make_obvious(x: ExchangeShape) -> Any:
    """The host function."""
    c, t, TOKENS, RANKS, REGION = x.config, ExchangeTypes(x), x.tokens, x.ranks, x.region
    HIDDEN, K, EXPERTS, SLOTS = c.hidden_size, c.num_experts_per_tok, x.experts, x.slots
    g = x.groups(narrows=True)
    T, COUNTS, RECEIVED = g.tile, x.counts, x.received
    REGIONS, COUNT_ROWS = [RANKS, REGION * HIDDEN], [RANKS, 2 * COUNTS[1]]
    route_and_sort = make_own_tokens(x)
    sort_received, ORDER = make_sorting(x)
    experts = make_experts(x.s, g)
    result_rows = make_result_rows(x)
    combine = make_combine(x.s, RANKS * REGION)
    Places = pld.DistributedTensor[[1, SLOTS], pl.INT32]
    Shares = pld.DistributedTensor[[TOKENS, K], pl.FP32]
    WideCounts = pld.DistributedTensor[COUNTS, pl.FP32]

    @pl.jit
    def route_part(
        residual: t.Residual, count: t.Count, post_norm: t.Norm, w_router: t.Router,
        outbox: pl.Out[t.WideRows], outbox_counts: pl.Out[WideCounts], rows: pl.Out[Places],
        shares: pl.Out[Shares],
    ):  # fmt: skip
        valid = pl.read(count, [0])
        chosen = pl.create_tensor([TOKENS, K], dtype=pl.INT32)
        places = pl.create_tensor([1, SLOTS], dtype=pl.INT32)
        normed, order, places, groups, counts, shares = route_and_sort(
            residual, post_norm, w_router, chosen, shares, places, valid
        )
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="result_rows"):
            rows = result_rows(places, chosen, groups, rows, valid)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="pack_counts"):
            numbers = pl.cast(pl.slice(counts, COUNTS, [0, 0]), target_type=pl.FP32)
            outbox_counts = pl.assemble(outbox_counts, numbers, [0, 0])
        for p in pl.parallel(RANKS):
            own = pl.slice(outbox, [REGION, HIDDEN], [p * REGION, 0])
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="pack_rows"):
                begin = pl.read(groups, [1, p * EXPERTS])
                last = p * EXPERTS + EXPERTS - 1
                count_p = pl.read(groups, [1, last]) + pl.read(groups, [0, last]) - begin
                for i in pl.range(count_p):
                    token = pl.read(order, [0, begin + i]) // K
                    row = pl.slice(normed, [1, HIDDEN], [token, 0])
                    own = pl.assemble(own, pl.cast(row, target_type=pl.FP32), [i, 0])
        return outbox, outbox_counts, rows, shares

    @pl.jit
    def expert_part(
        w_gate: t.Up,
        w_up: t.Up,
        w_down: t.Down,
        inbox: t.WideRows,
        inbox_counts: WideCounts,
        back: pl.Out[t.WideRows],
    ):
        order = pl.create_tensor([1, ORDER], dtype=pl.INT32)
        groups = pl.create_tensor([2, EXPERTS], dtype=pl.INT32)
        counts = pl.create_tensor(COUNTS, dtype=pl.INT32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="unpack_counts"):
            numbers = pl.cast(pl.slice(inbox_counts, COUNTS, [0, 0]), target_type=pl.INT32)
            counts = pl.assemble(counts, numbers, [0, 0])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="sort_received"):
            order, groups = sort_received(counts, order, groups)
        products = experts(inbox, order, groups, w_gate, w_up, w_down)
        for e in pl.parallel(EXPERTS):
            count = pl.read(groups, [0, e])
            begin = pl.read(groups, [1, e])
            for r0 in pl.range(0, count, T):
                used = pl.min(T, count - r0)
                tile = pl.slice(products, [T, HIDDEN], [begin + r0, 0], valid_shape=[used, HIDDEN])
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="pack_results"):
                    for r in pl.range(used):
                        row = pl.read(order, [0, begin + r0 + r])
                        back = pl.assemble(back, pl.slice(tile, [1, HIDDEN], [r, 0]), [row, 0])
        return back

    @pl.jit
    def combine_part(
        residual: t.Residual,
        count: t.Count,
        results: t.WideRows,
        rows: Places,
        shares: Shares,
        out: pl.Out[t.Out],
    ):
        valid = pl.read(count, [0])
        out = combine(residual, results, rows, shares, out, 0, valid)
        return out  # noqa: RET504 - the assignment says that `out` was written

    @pl.jit.host
    def obvious_experts(
        residual: t.AllResiduals, count: t.AllCounts, post_norm: t.Norm, w_router: t.Router,
        w_gate: t.AllUps, w_up: t.AllUps, w_down: t.AllDowns, out: pl.Out[t.AllOut],
    ):  # fmt: skip
        outbox_buf = pld.alloc_window_buffer(RECEIVED, dtype=pl.FP32)
        out_counts_buf = pld.alloc_window_buffer(COUNTS, dtype=pl.FP32)
        inbox_buf = pld.alloc_window_buffer(RECEIVED, dtype=pl.FP32)
        in_counts_buf = pld.alloc_window_buffer(COUNTS, dtype=pl.FP32)
        back_buf = pld.alloc_window_buffer(RECEIVED, dtype=pl.FP32)
        results_buf = pld.alloc_window_buffer(RECEIVED, dtype=pl.FP32)
        places_buf = pld.alloc_window_buffer([1, SLOTS], dtype=pl.INT32)
        shares_buf = pld.alloc_window_buffer([TOKENS, K], dtype=pl.FP32)
        rows_signal_buf = pld.alloc_window_buffer([RANKS], dtype=pl.INT32)
        counts_signal_buf = pld.alloc_window_buffer([RANKS], dtype=pl.INT32)
        back_signal_buf = pld.alloc_window_buffer([RANKS], dtype=pl.INT32)
        places = pld.window(places_buf, [1, SLOTS], dtype=pl.INT32)
        shares = pld.window(shares_buf, [TOKENS, K], dtype=pl.FP32)
        for r in pl.range(pld.world_size()):
            route_part(
                residual[r], count[r], post_norm, w_router,
                pld.window(outbox_buf, RECEIVED, dtype=pl.FP32),
                pld.window(out_counts_buf, COUNTS, dtype=pl.FP32), places, shares, device=r,
            )  # fmt: skip
        pld.tensor.all_to_all(
            pld.window(outbox_buf, REGIONS, dtype=pl.FP32),
            pld.window(inbox_buf, REGIONS, dtype=pl.FP32),
            pld.window(rows_signal_buf, [RANKS], dtype=pl.INT32),
        )
        pld.tensor.all_to_all(
            pld.window(out_counts_buf, COUNT_ROWS, dtype=pl.FP32),
            pld.window(in_counts_buf, COUNT_ROWS, dtype=pl.FP32),
            pld.window(counts_signal_buf, [RANKS], dtype=pl.INT32),
        )
        for r in pl.range(pld.world_size()):
            expert_part(
                w_gate[r], w_up[r], w_down[r], pld.window(inbox_buf, RECEIVED, dtype=pl.FP32),
                pld.window(in_counts_buf, COUNTS, dtype=pl.FP32),
                pld.window(back_buf, RECEIVED, dtype=pl.FP32), device=r,
            )  # fmt: skip
        pld.tensor.all_to_all(
            pld.window(back_buf, REGIONS, dtype=pl.FP32),
            pld.window(results_buf, REGIONS, dtype=pl.FP32),
            pld.window(back_signal_buf, [RANKS], dtype=pl.INT32),
        )
        for r in pl.range(pld.world_size()):
            combine_part(
                residual[r], count[r], pld.window(results_buf, RECEIVED, dtype=pl.FP32), places,
                shares, out[r], device=r,
            )  # fmt: skip

    return obvious_experts


VARIANTS = {"obvious": make_obvious, "overlapped": make_overlapped}


# --- inputs and golden ----------------------------------------------------------------------------


def whole_weights(s: LayerShape) -> dict[str, Array]:
    """Draw norm, router and experts of a layer."""
    c, rng = moe_config(s), np.random.default_rng(3)
    hidden, experts, width = c.hidden_size, c.num_experts, c.moe_intermediate_size

    def matrix(name: str, count: int, rows: int, columns: int) -> Array:
        return inputs.make_normal(name, (count * rows, columns), rows**-0.5, s.dtype)()

    return {
        "post_norm": rng.uniform(0.5, 1.5, (1, hidden)).astype(np.float32),
        "w_router": matrix("w_router", 1, hidden, experts),
        "w_gate": matrix("w_gate", experts, hidden, width),
        "w_up": matrix("w_up", experts, hidden, width),
        "w_down": matrix("w_down", experts, width, hidden),
    }


def specs(x: ExchangeShape) -> list[TensorSpec]:
    """Return the tensors of all ranks; the last rank has fewer tokens than the others."""
    c, s, rng = x.config, x.s, np.random.default_rng(4)
    rows = (x.ranks, x.tokens, c.hidden_size)
    counts = np.full((x.ranks, 1), x.tokens, np.int32)
    counts[-1] = max(1, x.tokens // 2)
    found = [
        TensorSpec("residual", rows, pl.FP32, rng.standard_normal(rows).astype(np.float32)),
        TensorSpec("count", counts.shape, pl.INT32, counts),
    ]
    for name, whole in whole_weights(s).items():
        is_expert = name in ("w_gate", "w_up", "w_down")
        value = np.stack(np.split(whole, x.ranks)) if is_expert else whole
        dtype = pl.FP32 if name == "post_norm" else s.dtype
        found.append(TensorSpec(name, value.shape, dtype, value))
    return [*found, TensorSpec("out", rows, s.dtype, is_output=True)]


def golden(x: ExchangeShape, engine: str | None = None) -> Callable[[dict[str, Array]], None]:
    """All experts on one rank, for the tokens of each in turn; other rows stay as they are."""

    def layer(tensors: dict[str, Array]) -> None:
        program = compile_program(build_moe(x.s, x.tokens), config=RunConfig(engine=engine))
        weights = whole_weights(x.s)
        for rank in range(x.ranks):
            own = (np.asarray(tensors[name])[rank] for name in ("residual", "count", "out"))
            residual, count, out = own
            program(residual, count, *weights.values(), out)

    return layer


def main() -> int:
    parser = argparse.ArgumentParser(description="the experts of a Qwen3-MoE layer on ranks")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=16, help="tokens of each rank")
    parser.add_argument("--variant", default="overlapped", choices=tuple(VARIANTS))
    parser.add_argument("--size", default="30B-A3B", help="a published model with experts")
    parser.add_argument("-p", "--platform", default="a2a3sim")
    args = parser.parse_args()
    shape = exchange_shape(Qwen3Config.preset(args.size), args.tokens, args.ranks)
    world = DistributedConfig(device_ids=range(args.ranks))
    result = run(
        VARIANTS[args.variant](shape),
        specs(shape),
        golden_fn=golden(shape),
        config=RunConfig(platform=args.platform, distributed_config=world),
        rtol=1e-2,
        atol=1e-2,
    )
    return 0 if result.passed else 1


def exchange_shape(config: Qwen3Config, tokens: int, ranks: int) -> ExchangeShape:
    return ExchangeShape(LayerShape(config, 1, tokens, row_tile=16), tokens, ranks)


if __name__ == "__main__":
    raise SystemExit(main())
