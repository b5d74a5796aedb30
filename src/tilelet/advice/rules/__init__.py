"""Advice on speed, clarity and use of the machine (W13xx).

A rule is a module with the message, the search for the fault and the rewriting, and a Markdown file
of the same name with explanation, evidence, legality and two kernels: with and without the fault.
To add a rule, write both and add the rule to `RULES`; tests/advice/test_pairs.py runs the kernels.
"""

from __future__ import annotations

from tilelet.advice.rules import (
    added_product,
    crossing_tensor,
    discarded_rows,
    empty_buffers,
    explicit_scope,
    few_tasks,
    fill,
    hidden_equality,
    launch_in_loop,
    look_alike,
    missing_root,
    no_pipeline,
    one_scope_tensor,
    orchestrator,
    read_modify_write,
    repeated_read,
    round_trip,
    sequential_loop,
    shared_operand,
    short_rows,
    small_tasks,
    small_transfers,
    softmax_overflow,
    stale_constant,
    stored_and_loaded,
    sum_in_memory,
    tile_size,
    twin_loops,
    uneven_wave,
    zeros_read_back,
)

RULES = (  # in the order of docs/advice.md
    fill.RULE,
    zeros_read_back.RULE,
    round_trip.RULE,
    shared_operand.RULE,
    twin_loops.RULE,
    one_scope_tensor.RULE,
    launch_in_loop.RULE,
    stored_and_loaded.RULE,
    added_product.RULE,
    sum_in_memory.RULE,
    read_modify_write.RULE,
    sequential_loop.RULE,
    no_pipeline.RULE,
    discarded_rows.RULE,
    crossing_tensor.RULE,
    tile_size.RULE,
    small_tasks.RULE,
    few_tasks.RULE,
    uneven_wave.RULE,
    orchestrator.RULE,
    short_rows.RULE,
    small_transfers.RULE,
    empty_buffers.RULE,
    repeated_read.RULE,
    missing_root.RULE,
    softmax_overflow.RULE,
    explicit_scope.RULE,
    hidden_equality.RULE,
    stale_constant.RULE,
    look_alike.RULE,
)
