"""Small scripts to run on a board: each isolates one effect and runs unmodified under PyPTO.

A script contains one program of several kernels; `board.py` fits a machine to the times of those
kernels and of the whole program. The scripts are in `kit.toml`, what to do with them in `kit.md`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tilelet.dataclasses import dataclass
from tilelet.device.machine.description import parse_toml

_FILE = Path(__file__).with_suffix(".toml")
_KIT = parse_toml(_FILE.read_text(encoding="utf-8"), _FILE.name)


@dataclass(frozen=True)
class Tensor:
    """An argument; `start` is its initializer, as an expression of the script.

    output  "Out", "InOut" if it is also read, or empty
    """

    name: str
    shape: Sequence[int]
    dtype: str = "FP32"
    start: str = "torch.ones"
    output: str = ""

    @property
    def annotation(self) -> str:
        kind = f"pl.Tensor[[{', '.join(map(str, self.shape))}], pl.{self.dtype}]"
        return f"pl.{self.output}[{kind}]" if self.output else kind

    @property
    def spec(self) -> str:
        torch = {"FP32": "float32", "BF16": "bfloat16", "INT32": "int32"}[self.dtype]
        last = ", is_output=True" if self.output else f", init_value={self.start}"
        return f'TensorSpec("{self.name}", {list(self.shape)}, torch.{torch}{last})'


@dataclass(frozen=True)
class KitScript:
    """One script: its effect, its tensors, and the body of its program.

    timed  what is compared: its kernels, or the program as a whole
    """

    name: str
    effect: str
    tensors: tuple[Tensor, ...]
    body: str
    timed: str = "kernels"

    def script(self) -> str:
        frame: str = _KIT["frame"]
        return frame.format(
            effect=self.effect,
            name=self.name,
            parameters="".join(f"    {t.name}: {t.annotation},\n" for t in self.tensors),
            body=textwrap.indent(self.body, "    "),
            outputs=", ".join(t.name for t in self.tensors if t.output),
            specs="".join(f"        {t.spec},\n" for t in self.tensors),
        )


def _columns(each: Mapping[str, Sequence[object]]) -> Iterator[dict[str, object]]:
    """Yield one record per kernel or script from columns of values by name."""
    for values in zip(*each.values(), strict=True) if each else [()]:
        yield dict(zip(each, values, strict=True))


def _scripts() -> Iterator[KitScript]:
    for entry in _KIT["scripts"]:
        tensors = tuple(Tensor(name, **fields) for name, fields in entry["tensors"].items())
        for names in _columns(entry.get("each", {})):
            bodies = [
                kernel["body"].format(**names, **more)
                for kernel in entry["kernels"]
                for more in _columns(kernel.get("each", {}))
            ]
            name, effect = entry["name"].format(**names), entry["effect"].format(**names)
            yield KitScript(name, effect, tensors, "".join(bodies), entry.get("timed", "kernels"))


CASES = tuple(_scripts())


def write_kit(folder: Path) -> list[Path]:
    """Write all scripts and their README; return the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {f"{case.name}.py": case.script() for case in CASES}
    texts["README.md"] = _FILE.with_suffix(".md").read_text(encoding="utf-8")
    written: list[Path] = []
    for name, text in texts.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
