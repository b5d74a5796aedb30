"""`tilelet generate`: generate text from a checkpoint with tile programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

import numpy as np

from tilelet.cli.commands.models import GenerateCommand
from tilelet.dataclasses import asdict, dataclass, field
from tilelet.device.machine.description import load_machine
from tilelet.diag.json_types import JsonObject
from tilelet.diag.tables import Table, show
from tilelet.diag.text import escape_controls, plural, size_text
from tilelet.dtypes import Array
from tilelet.models.qwen3.compare import (
    ExpertChoice,
    ModelComparison,
    ReferenceModel,
    TokenChoice,
    check_reference,
    compare,
)
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.device_pass import DevicePass, PassShape, device_pass
from tilelet.models.qwen3.generate import generate
from tilelet.models.qwen3.int8_error import Int8Error, int8_error
from tilelet.models.qwen3.model import Model, check_tokens, load
from tilelet.models.qwen3.text import TextStream, Tokenizer, stop_tokens
from tilelet.models.sampling import Sampling
from tilelet.runtime import session
from tilelet.runtime.session import Session
from tilelet.scripts import exit_codes

_MIN_CACHE = 256  # positions, so that programs are compiled for a few sizes only


@dataclass(eq=False)
class _Answer:
    """The tokens generated for one prompt, and the time taken."""

    prompt: Array
    stream: TextStream | None
    tokens: list[int] = field(default_factory=list[int])
    text: str = ""
    ended: str = ""


@dataclass
class _Times:
    """Seconds until the first token of each prompt, and for the others."""

    prompts: float = 0.0
    steps: float = 0.0


def generate_command(found: GenerateCommand) -> int:
    """Generate; return 1 if a comparison finds differences that rounding does not explain."""
    if found.ranks:
        return _generate(found, found.ranks, None)
    from tilelet.ranks.launch import end_rank, start_rank

    rank = start_rank()
    exit_codes.ON_EXIT.append(end_rank)
    from tilelet.ranks.ending import COMM

    with session.active(Session(over_mpi=True)):
        return _generate(found, COMM.size, rank)


def _generate(found: GenerateCommand, ranks: int, rank: int | None) -> int:
    """Generate on `ranks` ranks, of which this process has all, or only `rank`."""
    sampling = Sampling(found.temperature, found.top_k, found.top_p, found.seed)
    config = Qwen3Config.read(found.model)
    if found.profile:
        load_machine(found.profile)  # report an unknown machine early
    if found.compare and not found.int8:
        check_reference()
    answers = _prompts(found, config)
    as_json = found.format == "json"
    model = load(
        found.model,
        dtype=found.dtype,
        max_seq=found.max_seq or _positions(config, answers, found.max_new_tokens),
        stream=found.stream,
        weights_cache=found.weights_cache,
        layers=found.layers,
        quantize="int8" if found.int8 else None,
        engine=found.engine,
        ranks=ranks,
        rank=rank,
        tell=_say_memory,
        batch=min(found.batch, len(answers)),
    )
    stop = set[int]() if found.ignore_eos else stop_tokens(found.model)
    times, is_whole = _Times(), True
    try:
        _run(model, answers, found, stop, sampling, times)
    except KeyboardInterrupt:
        is_whole = False
    _end(answers, as_json)
    print(_speed_text(answers, times), file=sys.stderr)
    if any(a.ended == "cache" for a in answers):
        print(_full_text(model), file=sys.stderr)
    if not is_whole and not as_json:
        print("interrupted: what was generated stands above", file=sys.stderr)
    is_compared = found.compare and is_whole
    comparison = _compare(model, found, answers) if is_compared and not found.int8 else None
    narrowed = _int8_error(model, found, answers[0]) if is_compared and found.int8 else None
    passes = _model_passes(model, found.profile, answers) if found.profile and is_whole else []
    if as_json:
        document = _document(model, answers, times, comparison, passes)
        if narrowed:
            document["int8"] = narrowed.to_json()
        print(json.dumps(document, indent=2))
    if comparison and not as_json:
        _show_comparison(comparison)
    if narrowed and not as_json:
        print(f"INT8 beside the weights as they are stored, relative L2\n{narrowed}")
    if passes and not as_json:
        show([_pass_table(found) for found in passes])
    if not is_whole:
        return exit_codes.INTERRUPTED
    return exit_codes.of_findings(comparison is not None and not comparison.agrees)


def _prompts(found: GenerateCommand, config: Qwen3Config) -> list[_Answer]:
    if found.tokens:
        for number, tokens in enumerate(found.tokens):
            # Any integers, before conversion to 64 bits.
            check_tokens(number, tokens, config.vocab_size)
        return [_Answer(np.array(tokens, np.int64), None) for tokens in found.tokens]
    tokenizer = Tokenizer(found.model)
    encode = tokenizer.chat if found.chat else tokenizer.encode
    return [
        _Answer(np.array(encode(text), np.int64), TextStream(tokenizer)) for text in found.prompt
    ]


def _positions(config: Qwen3Config, answers: Sequence[_Answer], new: int) -> int:
    """Return a cache size for this request: a power of two, or the model's maximum."""
    longest = max(len(a.prompt) for a in answers) + new
    return min(max(_MIN_CACHE, 1 << (longest - 1).bit_length()), config.max_position_embeddings)


def _say_memory(parts: dict[str, int]) -> None:
    each = ", ".join(f"{name} {size_text(size)}" for name, size in parts.items())
    print(f"memory: {size_text(sum(parts.values()))} at the most ({each})", file=sys.stderr)


def _run(
    model: Model,
    answers: Sequence[_Answer],
    found: GenerateCommand,
    stop: set[int],
    sampling: Sampling,
    times: _Times,
) -> None:
    """Generate; show a single text as it grows, several texts when they are complete."""
    is_shown = len(answers) == 1 and found.format != "json"
    before = time.perf_counter()
    for new in generate(
        model,
        [a.prompt for a in answers],
        max_new_tokens=found.max_new_tokens,
        stop=stop,
        sampling=sampling,
    ):
        now = time.perf_counter()
        if new.number == 0:
            times.prompts += now - before
        else:
            times.steps += now - before
        answer = answers[new.sequence]
        answer.tokens.append(new.token)
        answer.ended = new.ended
        piece = answer.stream.push(new.token) if answer.stream else f"{new.token} "
        answer.text += piece
        if is_shown:
            print(piece if answer.stream is None else escape_controls(piece), end="", flush=True)
        before = time.perf_counter()


def _end(answers: Sequence[_Answer], as_json: bool) -> None:
    """Print the rest of the text; with several prompts, each whole text."""
    for number, answer in enumerate(answers):
        rest = answer.stream.rest() if answer.stream else ""
        answer.text += rest
        if as_json:
            continue
        if len(answers) == 1:
            print(escape_controls(rest))
        else:
            print(f"--- {number + 1} of {len(answers)}\n{escape_controls(answer.text)}", flush=True)


def _full_text(model: Model) -> str:
    """Return why a text ends before the requested length."""
    longest = plural(model.longest, "position")
    if model.longest < model.config.max_position_embeddings:
        return f"ended at {longest}, where the cache is full: `--max-seq` makes it larger"
    return f"ended at {longest}: the model has no more"


def _speed_text(answers: Sequence[_Answer], times: _Times) -> str:
    given = sum(len(a.prompt) for a in answers if a.tokens)
    new = sum(max(0, len(a.tokens) - 1) for a in answers)
    parts = [f"{plural(given, 'prompt token')} in {times.prompts:.2f} s"]
    if new and times.steps > 0:
        rate = f"{new / times.steps:.1f} a second"
        parts.append(f"{plural(new, 'token')} after that in {times.steps:.2f} s, {rate}")
    return "; ".join(parts)


# --- comparison -----------------------------------------------------------------------------------


def _compare(model: Model, found: GenerateCommand, answers: Sequence[_Answer]) -> ModelComparison:
    reference = ReferenceModel(found.model, model.dtype, model.config.num_hidden_layers)
    return compare(model, reference, [a.prompt for a in answers], [a.tokens for a in answers])


def _int8_error(model: Model, found: GenerateCommand, answer: _Answer) -> Int8Error:
    """Return the effect of INT8 on the first prompt."""
    return int8_error(
        found.model,
        answer.prompt,
        dtype=found.dtype,
        layers=found.layers,
        engine=found.engine,
        max_seq=model.sizes.max_seq,
        batch=1,
    )


def _show_comparison(found: ModelComparison) -> None:
    rows = [
        (str(d.layer), f"{d.distance:.2e}", f"{d.bound:.2e}", "" if d.is_near else "too far")
        for d in found.layers
    ]
    heads = ("layer", "relative L2", "rounding", "")
    tables: list[Table | str] = [Table("hidden states beside the reference", heads, [*rows])]
    if found.routed:
        tables.append(_experts_text(found))
    show([*tables, _tokens_text(found)])


def _experts_text(found: ModelComparison) -> str:
    differ, all_of_them = len(found.experts), plural(found.routed, "choice")
    lines = [f"{found.routed - differ} of {all_of_them} of experts as the reference makes them"]
    for c in found.experts:
        place = f"sequence {c.sequence}, position {c.position}, layer {c.layer}"
        names = (", ".join(map(str, experts)) for experts in (c.ours, c.theirs))
        lines.append(
            f"  {place}: experts {' here, '.join(names)} there, the router's logits {c.margin:.3g} "
            f"apart, {_near(c)}"
        )
    return "\n".join(lines)


def _near(choice: TokenChoice | ExpertChoice) -> str:
    what = "a near-tie" if choice.is_near_tie else "no near-tie"
    return f"rounding explains {choice.bound:.3g}: {what}"


def _tokens_text(found: ModelComparison) -> str:
    same = sum(c.is_same for c in found.choices)
    closest = min(found.choices, key=lambda c: c.top_two)
    counted = f"{same} of {plural(len(found.choices), 'token')} as the reference chooses them"
    place = f"sequence {closest.sequence}, token {closest.number}"
    lines = [f"{counted}; its best two logits are {closest.top_two:.3g} apart at {place}, or more"]
    if found.first_layer:
        lines.append(
            f"the first layer that differs by more than rounding: {found.first_layer.layer}"
        )
    if found.differences:
        first = found.differences[0]
        lines.append(
            f"the first token that differs: sequence {first.sequence}, token {first.number}: "
            f"{first.ours} here, {first.theirs} there"
        )
    for c in found.differences:
        place = f"sequence {c.sequence}, token {c.number}"
        lines.append(f"  {place}: logits {c.margin:.3g} apart, {_near(c)}")
    return "\n".join(lines)


# --- modelled machine -----------------------------------------------------------------------------


def _model_passes(model: Model, machine: str, answers: Sequence[_Answer]) -> list[DevicePass]:
    """Model the longest prompt, and a step of all sequences at the longest length reached."""
    longest = max(len(a.prompt) for a in answers)
    reached = max(len(a.prompt) + len(a.tokens) - 1 for a in answers)
    prompt = PassShape(model.config, "prefill", 1, longest, model.dtype)
    step = PassShape(model.config, "decode", len(answers), reached, model.dtype)
    return [device_pass(prompt, machine), device_pass(step, machine)]


def _pass_table(found: DevicePass) -> Table:
    what = "prompt" if found.kind == "prefill" else "step"
    table = Table(
        f"a {what} of {plural(found.tokens, 'token')} on {found.machine}, modelled: "
        f"{found.us_per_token:.1f} us per token",
        ("", "times", "tasks", "us", "MB"),
    )
    for part in found.parts:
        table.rows.append(
            (
                part.name,
                str(part.times),
                str(part.tasks),
                f"{part.us:.1f}",
                _megabytes(part.hbm_bytes),
            )
        )
        table.rows += [
            (f"  {k.name}", "", str(part.times * k.tasks), f"{part.times * k.path_us:.1f}", "")
            for k in part.profile.kernels
        ]
    total = ("in all", "", str(found.tasks), f"{found.us:.1f}", _megabytes(found.hbm_bytes))
    table.rows.append(total)
    table.notes.append("of a kernel: its time on the critical path, which it shares with waiting")
    if any(part.is_drawn for part in found.parts):
        table.notes.append("experts of the tokens: drawn, all equally likely")
    return table


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}"


def _pass_data(found: DevicePass) -> JsonObject:
    return {
        "kind": found.kind,
        "machine": found.machine,
        "tokens": found.tokens,
        "us": found.us,
        "us_per_token": found.us_per_token,
        "tasks": found.tasks,
        "hbm_bytes": found.hbm_bytes,
        "parts": [
            {
                "name": part.name,
                "times": part.times,
                "tasks": part.tasks,
                "us": part.us,
                "kernels": {k.name: part.times * k.path_us for k in part.profile.kernels},
            }
            for part in found.parts
        ],
    }


def _document(
    model: Model,
    answers: Sequence[_Answer],
    times: _Times,
    comparison: ModelComparison | None,
    passes: Sequence[DevicePass],
) -> JsonObject:
    found: JsonObject = {
        "dtype": model.dtype.name,
        "sequences": [
            {
                "prompt": [int(t) for t in a.prompt],
                "tokens": a.tokens,
                "ended": a.ended,
                **({"text": a.text} if a.stream else {}),
            }
            for a in answers
        ],
        "seconds": asdict(times),
    }
    if comparison:
        found["comparison"] = {
            "agrees": comparison.agrees,
            "layers": [{**asdict(d), "is_near": d.is_near} for d in comparison.layers],
            "differences": [
                {**asdict(c), "is_near_tie": c.is_near_tie} for c in comparison.differences
            ],
            "experts": [{**asdict(c), "is_near_tie": c.is_near_tie} for c in comparison.experts],
        }
    if passes:
        found["modelled"] = [_pass_data(p) for p in passes]
    return found
