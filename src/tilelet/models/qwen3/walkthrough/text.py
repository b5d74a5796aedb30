"""The text of the walkthrough, with placeholders such as `{now.tasks}` that `page.py` fills in.

`now` is the step that a text belongs to, `was` the one it is compared with, `gain` the ratio of
their modelled times on an a2a3. `page.Figures` lists their fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Step:
    """One variant of a program at one size, and its text.

    was        number of the step it is compared with, if not the previous one
    published  tasks and microseconds measured for this program on an a2a3
    """

    variant: str
    title: str
    text: str
    sizes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    was: int | None = None
    published: tuple[int, float] | None = None


@dataclass(frozen=True)
class Section:
    """A program, and the steps from its first variant to its fast one."""

    model: str
    title: str
    intro: str
    steps: tuple[Step, ...]
    outro: str = ""


HIDDEN_5120, HIDDEN_8192 = {"hidden": 5120}, {"hidden": 8192}
TWO_SEQUENCES = {"batch": 2, "max_seq": 256, "span": 256}

SCOPE1 = Section(
    "scope1",
    "Scope 1: input RMSNorm and the Q, K and V projections",
    """\
Sixteen rows are normalized and multiplied by three weights. {first.least} must be read from
global memory, nearly all of it weights, each used once: at 1 TB/s that takes {first.bound} us, a
lower bound for every version.""",
    (
        Step(
            "per_block",
            "a task per block of 64 columns",
            """\
As first written: one task for the norm, then a loop that submits one task per block of 64
columns, with K and V in separate tasks. A row of a `[128, 64]` block of a weight is 128 bytes
long, a quarter of the access granularity of global memory, every task loads all normalized rows
again, and nothing is loaded while the cube multiplies. {now.gm} are moved instead of
{now.least}.""",
            HIDDEN_8192,
            published=(161, 525.04),
        ),
        Step(
            "chunked",
            "four blocks per task, K and V together",
            """\
`pl.parallel(..., chunk=4)` puts four blocks into a task, K and V of a block share one, and the
inner dimension is split into chunks of 512: {now.tasks} tasks instead of {was.tasks}. The traffic
is the same {now.gm}, since the same blocks are loaded, but there are fewer transfers and fewer
tasks to dispatch, which takes {gain} less time.""",
            HIDDEN_8192,
            published=(37, 350.02),
        ),
        Step(
            "split_accumulation",
            "products into global memory, added up by the vector unit",
            """\
A plausible proposal: the cube only multiplies and stores the product of every chunk in a buffer in
global memory, and the vector unit adds them up. This moves 64 times the result out and back,
{now.gm} in all, and takes {now.us} us where the plain per-block program takes {was.us}. It was not
faster at any tiling tried: accumulating in the cube is free.""",
            HIDDEN_8192,
            was=0,
        ),
        Step(
            "wide",
            "blocks of 256 columns, loads overlapped with products",
            """\
Rows of the weights are now 512 bytes, so that they move at full speed; K and V share their input
rows; `pl.pipeline` loads the next block while one is multiplied; the norm is two tasks, and no task
waits for one that it does not need. {now.gm} are moved, {now.ratio} times the minimum.""",
            HIDDEN_8192,
            was=1,
        ),
        Step(
            "exchanged",
            "the loop over K outside",
            """\
A task has two blocks of columns, which share every loaded chunk of rows. The wide version had more
tasks than the device has cubes, so some cores ran two while the others waited; now none does:
{now.us} us, against a bound of {now.bound}. On an a5, {was.a5} us become {now.a5}.""",
            HIDDEN_8192,
        ),
    ),
)

SCOPE2 = Section(
    "scope2",
    "Scope 2: RoPE, cache update, attention",
    """\
One new token of each sequence attends to its context of 1 to 4096 positions. Keys and values of the
contexts are {first.least}: {first.bound} us at 1 TB/s.""",
    (
        Step(
            "staged",
            "four tasks per block of context",
            """\
Scores, softmax, the product with the values and the running sum are separate tasks, per block of 64
positions and K/V head, and pass their results through global memory: `raw_scores_pad`, `exp_padded`
and `oi_tmp_pad` are written and read back for every block. The eight query heads of a group are
padded to sixteen rows for the cube, so half of every product is discarded. {now.tasks} tasks take
{now.latency} us each on average; {now.handing} of the critical path is dispatch overhead, and the
cube cores are busy {now.busy} of the time.""",
            HIDDEN_8192,
        ),
        Step(
            "fused",
            "a task per sequence and K/V head",
            """\
One task rotates the queries and the new key, updates the caches and processes the context in blocks
of 512. Scores, exponentials and partial outputs never leave the chip; maximum, sum and output are
carried from block to block. There are {now.tasks} tasks, whatever the context, {now.gm} instead of
{was.gm}, and {gain} less time. The control program submits long contexts first: a long task that
starts last would leave all other cores idle.""",
            HIDDEN_8192,
        ),
        Step(
            "padding_free",
            "two K/V heads fill the tile",
            """\
The query heads of two K/V heads share one tile of sixteen rows. A product of the upper half,
with zeros below, and one of the lower half, with zeros above, add up on the cube to a tile in
which every row is used. The steps of a block depend on each other, and a task mostly waits for
their latencies; with two heads it waits once for both: {now.us} us instead of {was.us}, with the
cubes busy {now.busy} of the time.""",
            HIDDEN_8192,
        ),
    ),
)

SCOPE3 = Section(
    "scope3",
    "Scope 3: output projection, residual, RMSNorm, MLP",
    """\
Four products with large weights, {last.least} in all: {last.bound} us at 1 TB/s. This is the
program whose published figures started this work: 33,411 tasks in 63.0 ms, refactored to 1,651
tasks in 3.3 ms. The published figures are for different sizes, hidden 5120 and hidden 8192, so both
programs are shown at both sizes.""",
    (
        Step(
            "baseline",
            "accumulated in global memory (hidden 5120)",
            """\
As first written. The down projection runs inside the loop over blocks of the MLP: for each of 400
blocks and 40 blocks of the output, one task multiplies and one reads the accumulator from global
memory, adds, and writes it back. All these additions update one tensor, so each waits for the one
before: {now.handing} of the critical path is overhead, not computation. Gate, up and SiLU are three
tasks per block, and `resid1` and the accumulator are zero-filled first.""",
            HIDDEN_5120,
            published=(33411, 63044.26),
        ),
        Step(
            "refactored",
            "one chain per block of the output (hidden 5120)",
            """\
The activations of the MLP are kept in a buffer in global memory, and one task per block of the
output multiplies all of them, with `matmul_acc` on the cube. The 32,000 tasks of the down
projection become 80.""",
            HIDDEN_5120,
        ),
        Step(
            "baseline",
            "accumulated in global memory (hidden 8192)",
            "The same program at the size of the other programs.",
            HIDDEN_8192,
            was=0,
        ),
        Step(
            "refactored",
            "one chain per block of the output (hidden 8192)",
            """\
{was.tasks} tasks become {now.tasks}, and {was.us} us become {now.us}: {gain} less, at equal
size. The cube cores are now busy {now.busy} of the time, but wait for memory: blocks of 64
columns have rows of 128 bytes, gate and up both load the same rows, and {now.gm} are moved where
{now.least} would suffice. A reviewer of the public program objected that `resid1` (512 KB) and the
MLP buffer (800 KB) do not fit on chip. They need not: they are tensors in global memory, of
which tasks load tiles. `tilelet check` reports tiles that do not fit, never tensors.""",
            HIDDEN_8192,
            published=(1651, 3284.44),
        ),
        Step(
            "tuned",
            "wide blocks, fused MLP, work for all cores",
            """\
Blocks of 256 columns; gate, up and SiLU in one task that loads the rows once; the residual and
its norm in one task; no zero fills. The inner dimensions of the output and down projections are
split in two, so that there are tasks for all cores and the down projection starts while the last
blocks of the MLP still run; a short task adds the parts up. {now.gm} are moved, {now.ratio} times
the minimum.""",
            HIDDEN_8192,
        ),
    ),
)

# The twelve faults of the decode layer as first written, and the step that removes each.
FAULTS = (
    (
        "q, k, v and the attention output are filled with zeros first, block by block",
        "`tuned_attention`, `optimised`",
    ),
    (
        "K and V in separate tasks, which both load `normed_tile`",
        "`optimised`",
    ),
    (
        "explicit `pl.incore` where a scope could be placed automatically",
        "`optimised`",
    ),
    (
        "RMSNorm multiplies by `mean(x^2) + eps`, not its inverse root (a switch)",
        "off by default",
    ),
    (
        "a docstring says BATCH_TILE=4, the program has 16",
        "`optimised`",
    ),
    (
        "four tasks per block of attention, with round trips through global memory",
        "`tuned_attention`",
    ),
    (
        "half of the cube's rows computed and discarded",
        "`tuned_attention`",
    ),
    (
        "`add(acc, matmul(a, b))` instead of `matmul_acc`",
        "`optimised`",
    ),
    (
        "tensors in global memory that one task writes and only the next one reads",
        "`tuned_mlp`, `tuned_attention`",
    ),
    (
        "gate and up both load the same rows",
        "`tuned_mlp`",
    ),
    (
        "`chunk=4` in the down projection, chosen without measuring",
        "`tuned_mlp`",
    ),
    (
        "q, k and v go through global memory between scopes 1 and 2",
        "`fused_qk_rope`",
    ),
)

DECODE = Section(
    "decode",
    "The whole decode layer",
    """\
All three scopes in one program, with the faults that a public review of it lists. Weights and
contexts are {first.least}: {first.bound} us at 1 TB/s. The scopes are replaced by their fast
versions one after the other, the most expensive first.

{faults}

With fault 4 on, `tilelet run qwen3/decode --rmsnorm-fault` fails its golden. The public program
passed, because its golden had the same mistake.""",
    (
        Step(
            "baseline",
            "as first written",
            """\
{now.tasks} tasks, {now.latency} us each on average. The MLP, which is most of the work, also takes
most of the time: every block of it is added to the output in global memory.""",
            HIDDEN_8192,
        ),
        Step(
            "tuned_mlp",
            "with the tuned scope 3",
            """\
Scope 3 from above. {was.us} us become {now.us}; what remains is attention, most of the
{now.tasks} tasks.""",
            HIDDEN_8192,
        ),
        Step(
            "tuned_attention",
            "and the padding-free scope 2",
            """\
Attention in 64 tasks. The projections remain, above all on the a5 with its newer runtime, which
treats a `pl.range` loop as ordered: the tasks in it that write blocks of one tensor run one after
the other, {now.a5} us in all. `pl.parallel` declares them independent.""",
            HIDDEN_8192,
        ),
        Step(
            "optimised",
            "and the exchanged scope 1",
            """\
The tuned version of every scope, {now.tasks} tasks in all. Each works on its own windows, so that
independent tasks overlap across scopes. {now.us} us is {bound_ratio} times the bound, and
{total_gain} less than the baseline.""",
            HIDDEN_8192,
        ),
        Step(
            "fused_qk_rope",
            "or: RoPE in the projection",
            """\
An alternative: the tasks that project queries and keys also rotate them and write the caches, so
that no tensor of plain projections exists. The public version of this fails its golden in 83,472
of 131,072 elements; this one passes. It moves less between the scopes, but its blocks are one
head, 128 columns, wide, half of the optimized ones: {now.us} us against {was.us}.""",
            HIDDEN_8192,
        ),
    ),
)

PREFILL = Section(
    "prefill",
    "Prefill: all tokens of a prompt",
    """\
The same layer for whole prompts: two sequences, of 256 and 65 tokens. A loaded weight can now serve
many rows.""",
    (
        Step(
            "april",
            "four tokens at a time",
            """\
In the style of April 2026: tiles of four tokens go through the three scopes of the decode layer,
and each token attends separately, four tasks per block of context. All weights are loaded for
every four tokens, {now.gm} in all, and the cube uses four rows of sixteen.""",
            TWO_SEQUENCES,
        ),
        Step(
            "tuned",
            "stage by stage, attention on tiles",
            """\
Each stage runs over all tokens of a span before the next one starts, on tiles of 128 tokens, so
that a block of a weight is used for all of them while it is in the device's cache. Attention
works on tiles of 8 tokens with all query heads of a K/V head, against whole blocks of keys: only
the last block, where the diagonal passes, needs the causal mask. {was.tasks} tasks become
{now.tasks}.""",
            TWO_SEQUENCES,
        ),
    ),
)

SECTIONS = (SCOPE1, SCOPE2, SCOPE3, DECODE, PREFILL)

COLUMNS = (
    ("tasks", "kernel executions submitted to the device"),
    ("GM", "bytes moved between global memory and the cores, by all tasks"),
    (
        "a2a3, a5",
        "modelled microseconds on one die; no board was used ([how](adr/0003-device-model.md))",
    ),
    ("published", "microseconds measured for the same program on an a2a3"),
    ("CPU", "milliseconds of the native engine, where dispatching a task is nearly free"),
)

# Variants with scopes and loops of April 2026; `tilelet check --portable 2026-08` lists them.
APRIL = (
    "per_block",
    "chunked",
    "staged",
    "baseline",
    "refactored",
    "tuned_mlp",
    "tuned_attention",
    "april",
)

INTRO = """\
One layer of Qwen3-32B, in the shapes of the public programs of April 2026: hidden 8192, 64 query
and 8 K/V heads of 128, MLP 25600, batch 16, contexts up to 4096. It is written several times:
first as someone new to tile programs would write it, then better, step by step. Every version
computes the same result; when this page was generated, all outputs and K/V caches of each were
compared with a reference in double precision. What changes is how often data crosses global
memory, and how many tasks the device gets.

This page is generated: `make walkthrough` builds, models, runs and compares every program, and
fills in all figures. `tilelet walkthrough --check` checks that the modelled figures are up to
date.

{columns}

`tilelet compare qwen3/scope3:refactored qwen3/scope3:tuned` compares two versions in detail;
`tilelet list` lists them all.

{april} are written in the language of April 2026, the others in that of August 2026. `tilelet
export` writes each of them for a public release ([how](portability.md))."""
