"""What `tilelet COMMAND --help` says after its options."""

from __future__ import annotations

TILELET = """\
examples:
  tilelet run kernel.py -p a2a3sim          run a script, its own options after its name
  tilelet run --dump-passes kernel.py       and write the program after every pass
  tilelet tasks kernel.py                   count its tasks without executing them
  tilelet profile kernel.py -p a2a3         what an NPU would do with it, modelled
  tilelet check kernel.py -p a2a3           races, undefined memory, tiles that do not fit
  tilelet compare before.py after.py        two programs, and why one is faster
  tilelet verdict kernel.py --json          is it right, does it fit, what does it take
  tilelet export kernel.py -o out.py        the program as one script for PyPTO
  tilelet view kernel.py --open             see it run: timeline, source, memory
  tilelet examples --copy .                 twelve small kernels to start from
  tilelet generate Qwen3-0.6B --prompt Hi   a checkpoint, by tile programs
  tilelet demo                              a Qwen3 layer before and after, checked
  tilelet list                              programs that can be run by name
  tilelet run qwen3/scope3 --variant tuned  one of them, with its own options
  tilelet doctor                            whether native runs have what they need here
  tilelet bench                             how fast they are here
  tilelet explain E0203                     what an error code means

exit codes: 0 passed, 1 mismatch or finding, 2 wrong usage, 3 could not run
"""

RUN = """\
examples:
  tilelet run kernel.py
  tilelet run kernel.py -p a2a3sim --max-seq
  tilelet run -m kernels.softmax            a module of a package, as `python -m` takes it
  tilelet run --engine interp --dump-passes kernel.py
  tilelet run --keep-c kernel.py            and keep the C text it was compiled to
  tilelet run --format json kernel.py > report.json

Options of Tilelet may stand before or after SCRIPT. Other options after SCRIPT go to the script if
it parses its arguments; after SCRIPT, an option that both declare goes to both. Everything after
`--` goes to the script alone. An option that nobody reads is an error (exit code 2).

The environment sets options too: TILELET_ENGINE, TILELET_FORMAT, TILELET_SEED,
TILELET_DUMP_PASSES=1, TILELET_NO_CACHE=1, TILELET_BUILD_DIR, TILELET_CACHE_DIR.

Programs are compiled to C; without a C compiler they are interpreted, which is slow.
TILELET_THREADS sets the number of threads, TILELET_ISA=sse, avx2 or avx512 keeps to these
instructions, and TILELET_SANITIZE=1 compiles with address and undefined-behaviour sanitizers.

A script that runs nothing and prints SKIPPED has decided so: exit code 0.
"""

TASKS = """\
examples:
  tilelet tasks kernel.py
  tilelet tasks --format json kernel.py --batch 16

The script runs as usual, but its kernels are only counted: results stay as they were. With
--as-runtime the figures are those of a swimlane: allocations of tensors are tasks, and mixed
kernels have a cube half and a vector half.
"""

PROFILE = """\
examples:
  tilelet profile kernel.py -p a2a3
  tilelet profile kernel.py -p my.toml --period 2026-06
  tilelet profile --platforms a2a3,a5 kernel.py --max-seq 4096
  tilelet profile --format json qwen3/scope3:baseline > profile.json
  tilelet profile kernel.py --html kernel.html      a page to look at and to send

Nothing runs on a device, and no kernel runs here: the control program does, its tasks are recorded,
and a model of the machine plays them. All figures are modelled. The run directory gets
profile.json, report/ (memory plan, budget, hints) and dfx_outputs/ (a trace for Perfetto, records,
dependencies). Exit code 1: the machine would refuse the program, see the errors.
"""

CHECK = """\
examples:
  tilelet check kernel.py -p a2a3
  tilelet check kernel.py --only capacity,alignment
  tilelet check --memory kernel.py -p a5      with every tile's place and budget
  tilelet check kernel.py --format json       findings with their places, for programs
  tilelet check --portable 2026-08 kernel.py  what that release of PyPTO would not take

Each part says how far its answer reaches: `proved` for all sizes and inputs, `found` (with what
shows it), `this run` for the sizes and inputs of the script, or `not checked` and why. Kernels are
not executed unless a check needs it; docs/checks.md describes them all. Exit code 1: there are
findings.
"""

EXPORT = """\
examples:
  tilelet export kernel.py -o portable.py
  tilelet export qwen3/decode:optimised --dialect 2026-08 -o layer.py
  tilelet export qwen3/scope3:tuned --hidden 1024 --intermediate 2048 -o small.py

The script holds the kernels with all helpers spliced in, inputs, golden and a comparison; it
imports pypto and torch, and runs here as well as there: `tilelet run layer.py`. Options of the
program itself stand after its name. Exit code 1: something in it is not taken there, see the
messages. docs/portability.md has the rules.
"""

DIVERGE = """\
examples:
  tilelet diverge kernel.py                  against its golden, and against double
  tilelet diverge kernel.py --budget 60s     try repairs for longer
  tilelet diverge kernel.py --html wrong.html  a page: timeline, wrong outputs, where they begin
  tilelet diverge before.py after.py         against another program, tile by tile
  tilelet diverge qwen3/scope3 --variant tuned --hidden 256 --intermediate 384 --batch 4 ...

The program is interpreted at the sizes that the script asks for: choose small ones. Its tiles are
compared with the arrays that the golden computes; what lies between the last that agrees and the
first that does not is changed, op by op, until the outputs match. docs/diverge.md tells how. Exit
code 1: something was found; 3: there was nothing to compare with.
"""

COMPARE = """\
examples:
  tilelet compare before.py after.py
  tilelet compare qwen3/scope3:baseline qwen3/scope3:tuned -p a2a3
  tilelet compare "kernel.py --tile 64" "kernel.py --tile 128"
  tilelet compare kernel.py --platforms a2a3,a5      the same as kernel.py@a2a3 kernel.py@a5
  tilelet compare old/profile.json new/profile.json
  tilelet compare before.py after.py --html difference.html
"""

REPORT = """\
examples:
  tilelet report build_output/Softmax_20261116_101500
  tilelet report build_output/Softmax_20261116_101500 --html softmax.html --open

One HTML file, by default report/page.html in the run directory: it opens offline, without a server,
and can be attached or sent. docs/page.md walks through it. A run that failed its comparison shows
where its outputs are wrong.
"""

VIEW = """\
examples:
  tilelet view kernel.py --open                 profile it, and again whenever it is saved
  tilelet view build_output/Softmax_20261116_101500
  tilelet view kernel.py --perfetto http://localhost:10000

Serves the page on 127.0.0.1, on a port that the system chooses; the address that is printed has a
token without which nothing is served. Every file of Python beside the script is watched.
"""

VERDICT = """\
examples:
  tilelet verdict kernel.py -p a2a3
  tilelet verdict kernel.py --json               for programs: docs/answers.md has the layout
  tilelet verdict kernel.py --strength 20s       and try whether its golden notices wrong ops
  tilelet verdict qwen3/scope3:tuned --platforms a2a3,a5

The script runs once on this CPU. The answer: whether its outputs match its golden, the first wrong
statement if they do not, what the checks find, whether all tiles fit on chip, tasks, bytes, and the
modelled time with the interval in which nine of ten boards lie. Exit code 0: right, and no finding;
1: wrong, or a finding; 3: it could not run.
"""

ADVISE = """\
examples:
  tilelet advise kernel.py -p a2a3
  tilelet advise kernel.py --fix                 the ladder of rewritings, and the diff
  tilelet advise kernel.py --fix --in-place      write it to the script
  tilelet advise kernel.py --fix --unproved      also what holds only for the inputs tried
  tilelet advise kernel.py --format json
  tilelet advise qwen3/scope3 --variant baseline --fix -p a2a3

A finding has its lines, what it costs now, and, where the fault can be rewritten, what the
rewritten program takes: it is checked, run on this CPU, compared with the outputs of the script as
it stands, and modelled. Rewritings that do not hold, or do not help, are not proposed. `--fix`
applies what is proved for all inputs. Where inputs decide lengths, branches or offsets, these are
varied; what holds for the inputs tried is applied with `--unproved` only. Without `--in-place`
nothing is written. Comments and layout are kept. A program that ships is taken as the one file that
`tilelet export` makes of it; findings name the original lines, and the diff is that of the file.
Exit code 1: there is advice.
"""

LAYER = """\
examples:
  tilelet layer Qwen3-32B --layer 17                        random states, 17 positions
  tilelet layer Qwen3-32B --layer 17 --capture              what 17 layers make of random tokens
  tilelet layer Qwen3-0.6B --layer 3 --capture --tokens "9707 11 1879"
  tilelet layer Qwen3-30B-A3B --layer 0 --int8              experts, weights in INT8
  tilelet layer Qwen3-0.6B --layer 3 --capture --save layer3.safetensors

Loads one layer of a Qwen3 or Qwen3-MoE checkpoint, whatever the size of the whole, and runs it: all
positions but the last as a prompt, the last as a step of decode. The golden is computed in double
from the same files. With --capture the states are those that tokens have after the layers before,
which are loaded one after the other. --save writes `states`, `out` and `golden`, for
`TensorSpec(..., from_checkpoint="states", checkpoint="layer3.safetensors")` in scripts of your own.
Exit code 1: the layer differs by more than rounding explains.
"""

GENERATE = """\
examples:
  tilelet generate Qwen3-0.6B --prompt "The capital of France is"
  tilelet generate Qwen3-0.6B --chat --prompt "Name three rivers." --temperature 0.7 --seed 3
  tilelet generate Qwen3-0.6B --prompt "One" --prompt "Two" --max-new-tokens 64
  tilelet generate Qwen3-0.6B --prompt "Hello" --compare    beside `transformers`, layer by layer
  tilelet generate Qwen3-0.6B --prompt "Hello" --profile a2a3   modelled time of a token
  tilelet generate Qwen3-0.6B --prompt "Hello" --int8 --compare   what INT8 changes, by layer
  tilelet generate Qwen3-32B --layers 4 --stream --tokens "9707 11"   a part of a large model

MODEL_DIR holds `config.json`, `.safetensors` files and, for text, `tokenizer.json`. Embedding,
layers, output head and the choice of tokens are tile programs. Prompts and new tokens of a sequence
have at most --max-seq positions. Text needs the extra `tilelet[generate]`; tokens go in and come
out without it.

--compare gives the same tokens to `transformers`: relative L2 distance of the hidden states after
every layer, the first token that differs, and how far its logits are apart. A difference that
rounding explains is called a near-tie; exit code 1: there is another.
--int8 converts the matrices of the layers on load, a factor for each output; --compare then shows
how far that is from the weights as they are stored, after every layer and at the logits.
Ctrl-C ends the generation; what was generated stays.
"""

TUNE = """\
examples:
  tilelet tune kernel.py -p a2a3
  tilelet tune kernel.py --vary K_CHUNK=128,256,512 --vary chunk
  tilelet tune qwen3/scope3:refactored --budget 60s
  tilelet tune kernel.py --platforms a2a3,a5            what is best on both
  tilelet tune kernel.py --objective cpu_ms             by time on this CPU
  tilelet tune kernel.py --results k.jsonl              interrupted? the same line goes on
  tilelet tune kernel.py --executor dask://host:8786    candidates on many machines

The script is not edited. Numbers that it names at its top, defaults of its functions' parameters,
`chunk=`, `stage=` and split modes are varied, unless that changes the program's parameters.
Candidates whose tiles do not fit are dropped, the model scores the others, and the best are run on
this CPU against the script's golden. The answer is the change to make, as a diff.
"""

DOCTOR = """\
examples:
  tilelet doctor
  tilelet doctor --format json

Exit code 1: something that native runs need is broken.
"""

BENCH = """\
examples:
  tilelet bench                      all of it: some ten minutes on two cores
  tilelet bench matmul decode        two sections
  tilelet bench --quick              small shapes: does it work?
  tilelet bench --list               the sections
  tilelet bench vector --json v.json
  tilelet bench --against v0.3.0     this checkout and that revision in turn

Everything is measured in one run, the machine's peaks first and then again beside each figure.
Exit code 1: something failed or gave wrong results; a figure out of reach is not an error.
"""

DEMO = """\
examples:
  tilelet demo             the layer at the sizes of Qwen3-32B: a minute, 3 GB of memory
  tilelet demo --quick     the same program at a fraction of the size

One layer of Qwen3-32B, one new token for each of 16 sequences. `baseline` is the program as it was
first written, `optimised` the same computation with its faults taken out. Both run natively, so a C
compiler is needed, and all outputs, K/V caches too, are compared with a reference in double. The
table shows tasks, bytes of global memory, time on the modelled NPU, and time on this CPU. What was
wrong and what it cost, step by step, is told in docs/qwen3.md.
"""

WALKTHROUGH = """\
examples:
  tilelet walkthrough --write                  measure everything, write docs/qwen3.md (minutes)
  tilelet walkthrough --write --keep-cpu       only what is modelled (seconds)
  tilelet walkthrough --check                  are its modelled figures what the code gives?
  tilelet walkthrough --check --only scope1    of one program; several with commas

CPU times differ from run to run, so they are not checked. Exit code 1: the page is not up to date.
"""

CALIBRATE = """\
examples:
  tilelet calibrate kit kit                       write 25 small scripts, to be run on a board
  tilelet calibrate fit results -o my_board.toml  a machine file from what the board measured
  tilelet profile kernel.py -p my_board.toml      and its use
  tilelet calibrate report                        the model against published figures
  tilelet calibrate report --programs public      with public programs, at DIR/REVISION/PATH

`fit` says what each parameter was multiplied by, its standard error, and which parameters the
measurements do not determine; those stay as in the machine of `--like`. docs/calibration.md has the
report, and how to fetch the public programs.
"""

EXPLAIN = """\
examples:
  tilelet explain E0203
  tilelet explain          all codes, one line each
"""

DOCS = """\
examples:
  tilelet docs --write     write docs/ops.md, docs/errors.md and docs/compatibility.md
  tilelet docs --check     exit 1 if they are not up to date
"""

EXAMPLES = """\
examples:
  tilelet examples                      what there is
  tilelet examples --copy .             copy all of them here
  tilelet examples hello softmax --copy kernels
  tilelet run kernels/01_hello.py

A file that exists already is left as it is.
"""

COMPLETION = """\
examples:
  tilelet completion bash > ~/.local/share/bash-completion/completions/tilelet
  tilelet completion zsh > ~/.zfunc/_tilelet     with ~/.zfunc in $fpath before compinit
  tilelet completion fish > ~/.config/fish/completions/tilelet.fish
  source <(tilelet completion bash)              for this shell only

The script holds the names of commands, options and values; generate it again after an upgrade.
"""
