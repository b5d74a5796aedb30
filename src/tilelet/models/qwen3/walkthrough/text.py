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
Sixteen rows are normalised and multiplied with three weights. {first.least} must cross global
memory, nearly all of it weights, each used once: at 1 TB/s that takes {first.bound} us, and no
arithmetic can be faster than that.""",
    (
        Step(
            "per_block",
            "a task per block of 64 columns",
            """\
As first written: one task for the norm, then a loop that hands out one task per block of 64
columns, K and V in tasks of their own. A row of a `[128, 64]` block of a weight is 128 bytes
long, a quarter of what global memory likes to move at once, every task loads all normalised rows
again, and nothing is loaded while the cube multiplies. {now.gm} move instead of {now.least}.""",
            HIDDEN_8192,
            published=(161, 525.04),
        ),
        Step(
            "chunked",
            "four blocks per task, K and V together",
            """\
`pl.parallel(..., chunk=4)` puts four blocks into a task, K and V of a block share one, and the
inner dimension is cut into chunks of 512: {now.tasks} tasks instead of {was.tasks}. The bytes
are the same {now.gm}, since the same blocks are loaded. But transfers start less often and tasks
are handed out less often, which makes {gain} less time.""",
            HIDDEN_8192,
            published=(37, 350.02),
        ),
        Step(
            "split_accumulation",
            "products into global memory, added up by the vector unit",
            """\
A proposal that sounds good: the cube only multiplies, and leaves the product of every chunk in a
buffer in global memory, where the vector unit adds them up. It moves 64 times the result out and
back, {now.gm} in all, and takes {now.us} us where the plain per-block program takes {was.us}. It
does not win at any tiling that was tried: an accumulator on the cube costs nothing.""",
            HIDDEN_8192,
            was=0,
        ),
        Step(
            "wide",
            "blocks of 256 columns, loads behind the products",
            """\
Rows of the weights are now 512 bytes, so that they move at full speed; K and V share the rows
they both multiply; `pl.pipeline` loads the next block while one is multiplied; the norm is two
tasks, and no task waits for one that it does not need. {now.gm} move, {now.ratio} times what
must.""",
            HIDDEN_8192,
            was=1,
        ),
        Step(
            "exchanged",
            "the loop over K outside",
            """\
A task has two blocks of columns, which share every chunk of rows that is loaded. The wide
version had more tasks than the device has cubes, so some cores did two and the others waited;
now no core has to: {now.us} us, against a bound of {now.bound}. On an a5, {was.a5} us become
{now.a5}.""",
            HIDDEN_8192,
        ),
    ),
)

SCOPE2 = Section(
    "scope2",
    "Scope 2: RoPE, cache update, attention",
    """\
One new token of each sequence attends to its context, which is between 1 and 4096 positions long
here. Keys and values of the contexts are {first.least}: {first.bound} us at 1 TB/s.""",
    (
        Step(
            "staged",
            "four tasks per block of context",
            """\
Scores, softmax, the product with the values and the running sum are tasks of their own, per
block of 64 positions and K/V head, and hand their results on through global memory:
`raw_scores_pad`, `exp_padded` and `oi_tmp_pad` are written and read back for every block. The
eight query heads of a group are padded to sixteen rows for the cube, so half of every product is
thrown away. {now.tasks} tasks take {now.latency} us each on average; {now.handing} of the
critical path goes into handing them out, and the cube cores are busy {now.busy} of the time.""",
            HIDDEN_8192,
        ),
        Step(
            "fused",
            "a task per sequence and K/V head",
            """\
One task rotates the queries and the new key, updates the caches and walks over the context in
blocks of 512. Scores, exponentials and partial outputs never leave the chip; maximum, sum and
output are carried from block to block. {now.tasks} tasks, whatever the context, {now.gm} instead
of {was.gm}, and {gain} less time. The control program hands out long contexts first: a long task
that starts last leaves all other cores without work.""",
            HIDDEN_8192,
        ),
        Step(
            "padding_free",
            "two K/V heads fill the tile",
            """\
The query heads of two K/V heads share one tile of sixteen rows. A product of the upper half,
with zeros below, and one of the lower half, with zeros above, add up on the cube to a tile in
which every row is wanted. The steps of a block follow one another, and a task mostly waits for
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
tasks in 3.3 ms. The published pair compares different sizes, hidden 5120 with hidden 8192, so
both sizes are shown here for both.""",
    (
        Step(
            "baseline",
            "added up in global memory (hidden 5120)",
            """\
As first written. The down projection runs inside the loop over blocks of the MLP: for each of
400 blocks and 40 blocks of the output, one task multiplies and one reads the accumulator from
global memory, adds, and writes it back. All those additions concern one tensor, so each waits
for the one before: {now.handing} of the critical path is not computing but handing over. Gate,
up and SiLU are three tasks per block, and `resid1` and the accumulator are filled with zeros
first.""",
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
            "added up in global memory (hidden 8192)",
            "The same program at the size that the other programs use.",
            HIDDEN_8192,
            was=0,
        ),
        Step(
            "refactored",
            "one chain per block of the output (hidden 8192)",
            """\
{was.tasks} tasks become {now.tasks}, and {was.us} us become {now.us}: {gain} less, at equal
size. The cube cores are now busy {now.busy} of the time, but wait for memory: blocks of 64
columns have rows of 128 bytes, gate and up both load the same rows, and {now.gm} move where
{now.least} would do. A reviewer of the public program objected that `resid1` (512 KB) and the
MLP buffer (800 KB) do not fit on chip. They need not: they are tensors in global memory, of
which tasks load tiles. `tilelet check` complains about tiles that do not fit, never about
tensors.""",
            HIDDEN_8192,
            published=(1651, 3284.44),
        ),
        Step(
            "tuned",
            "wide blocks, fused MLP, work for all cores",
            """\
Blocks of 256 columns; gate, up and SiLU in one task that loads the rows once; the residual and
its norm in one task; no zero fills. The inner dimensions of the output and down projections are
cut into two parts each, so that there are tasks for all cores and the down projection starts
while the last blocks of the MLP still run; a short task adds the parts up. {now.gm} move,
{now.ratio} times what must.""",
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
        "K and V in tasks of their own, which both load `normed_tile`",
        "`optimised`",
    ),
    (
        "explicit `pl.incore` where a scope could be placed automatically",
        "`optimised`",
    ),
    (
        "RMSNorm multiplies with `mean(x^2) + eps`, not its inverse root (a switch)",
        "never on by itself",
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
        "half of the cube's rows computed and thrown away",
        "`tuned_attention`",
    ),
    (
        "`add(acc, matmul(a, b))` where `matmul_acc` is meant",
        "`optimised`",
    ),
    (
        "tensors in global memory that one task writes and only the next one reads",
        "`tuned_mlp`, `tuned_attention`",
    ),
    (
        "gate and up load the same rows, each for itself",
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
{now.tasks} tasks, {now.latency} us each on average. The MLP, which is most of the work, is also
where most of the time goes: every block of it is added to the output in global memory.""",
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
Attention in 64 tasks. What is left are the projections, above all on the a5 with its newer
runtime. That treats a loop written with `pl.range` as ordered: the tasks in it that write blocks
of one tensor run one after the other, {now.a5} us in all. `pl.parallel` says that they need
not.""",
            HIDDEN_8192,
        ),
        Step(
            "optimised",
            "and the exchanged scope 1",
            """\
The tuned version of every scope, {now.tasks} tasks in all. Each works on windows of its own, so
that tasks that do not need each other overlap across the borders of scopes. {now.us} us is
{bound_ratio} times the bound, and {total_gain} less than the baseline.""",
            HIDDEN_8192,
        ),
        Step(
            "fused_qk_rope",
            "or: RoPE where the projection is",
            """\
The other way to arrange it: the tasks that project queries and keys rotate them too and write
the caches, so that no tensor of plain projections exists. The public version of this fails its
golden in 83,472 of 131,072 elements; this one passes in all. It moves less between the scopes,
but its blocks are one head, 128 columns, wide, half of the optimised ones: {now.us} us to
{was.us}.""",
            HIDDEN_8192,
        ),
    ),
)

PREFILL = Section(
    "prefill",
    "Prefill: all tokens of a prompt",
    """\
The same layer for whole prompts: two sequences here, of 256 and 65 tokens. A weight that is
loaded could now serve many rows.""",
    (
        Step(
            "april",
            "four tokens at a time",
            """\
In the style of April 2026: tiles of four tokens go through the three scopes of the decode layer,
and each token attends by itself, four tasks per block of context. All weights are loaded for
every four tokens, {now.gm} in all, and the cube works on four rows of sixteen.""",
            TWO_SEQUENCES,
        ),
        Step(
            "tuned",
            "stage by stage, attention on tiles",
            """\
Each stage runs over all tokens of a span before the next one starts, on tiles of 128 tokens, so
that a block of a weight is loaded for all of them while the device's cache still has it.
Attention works on tiles of 8 tokens with all query heads of a K/V head, against whole blocks of
keys: only the last block, where the diagonal passes, needs the causal mask. {was.tasks} tasks
become {now.tasks}.""",
            TWO_SEQUENCES,
        ),
    ),
)

SECTIONS = (SCOPE1, SCOPE2, SCOPE3, DECODE, PREFILL)

COLUMNS = (
    ("tasks", "kernels handed to the device"),
    ("GM", "bytes moved between global memory and the cores, by all tasks"),
    (
        "a2a3, a5",
        "modelled microseconds on one die; no board was used ([how](adr/0003-device-model.md))",
    ),
    ("published", "microseconds that were measured for the same program on an a2a3"),
    ("CPU", "milliseconds of the native engine; handing out a task costs a CPU next to nothing"),
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
One layer of Qwen3-32B, in the shapes that the public programs of April 2026 use: hidden 8192, 64
query and 8 K/V heads of 128, MLP 25600, batch 16, contexts up to 4096. Here it is written
several times over: first the way somebody new to tile programs writes it, then better, step by
step. Every version computes the same numbers. Each was compared with a reference in double, all
outputs and K/V caches, when this page was made. What changes is how often data crosses global
memory, and how many tasks the device is handed.

This page is generated: `make walkthrough` builds, models, runs and compares every program, and
fills in all figures. `tilelet walkthrough --check` says whether the modelled ones are still what
the code gives.

{columns}

Any two can be compared in detail, for example `tilelet compare qwen3/scope3:refactored
qwen3/scope3:tuned`; `tilelet list` names them all.

In the language of April 2026 are {april}; the others are in that of August 2026. `tilelet export`
writes each of them for a public release ([how](portability.md))."""
