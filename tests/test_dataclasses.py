"""The lean decorator behaves like the standard one."""

from __future__ import annotations

import builtins
import copy
import dataclasses as standard
import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tilelet import dataclasses as lean

Decorate = Callable[..., Any]


def point(dataclass: Decorate, **options: Any) -> Any:
    class Point:
        x: int
        y: int = 2
        names: list[str] = standard.field(default_factory=list[str])
        note: str = standard.field(default="", compare=False, repr=False)
        kind: ClassVar[str] = "point"

    return dataclass(**options)(Point)


def derived(dataclass: Decorate, **options: Any) -> Any:
    class Derived(point(dataclass, **options)):
        z: int = 3
        total: int = standard.field(init=False, default=0)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + self.y + self.z)

    return dataclass(**options)(Derived)


def own_methods(dataclass: Decorate, **options: Any) -> Any:
    class Own:  # noqa: PLW1641
        x: int
        y: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    return dataclass(**options)(Own)


def single(dataclass: Decorate, **options: Any) -> Any:
    class Single:
        x: Any

    return dataclass(**options)(Single)


def empty(dataclass: Decorate, **options: Any) -> Any:
    class Empty:
        pass

    return dataclass(**options)(Empty)


OPTIONS = [
    {},
    {"frozen": True},
    {"eq": False},
    {"repr": False},
    {"frozen": True, "slots": True},
    {"slots": True},
    {"frozen": True, "eq": False},
    {"kw_only": True, "frozen": True},
]
CLASSES = [point, derived, own_methods, single, empty]
CALLS = [
    ((1,), {}),
    ((1, 2), {}),
    ((), {"x": 1}),
    ((), {"x": 1, "y": 5}),
    ((), {}),
    ((1, 2, [], "", 4, 5), {}),
]


def answer(question: Callable[[], Any]) -> Any:
    """Return the result, or the type of the error."""
    try:
        return question()
    except Exception as error:
        return type(error)


def seen(cls: Any) -> list[Any]:
    """Return what a user of the class can see of it."""
    found: list[Any] = [[f.name for f in standard.fields(cls)], cls.__match_args__]
    found.append([(p.name, p.kind) for p in inspect.signature(cls).parameters.values()])
    records = [answer(lambda a=a, k=k: cls(*a, **k)) for a, k in CALLS]
    for record in records:
        if isinstance(record, type):
            found.append(record)
            continue
        text = answer(lambda r=record: repr(r))
        found.append(text if "object at" not in text else "the default repr")
        found += [answer(lambda r=record, o=other: r == o) for other in records]
        found.append(answer(lambda r=record: hash(r) == hash(copy.copy(r))))
        found.append(answer(lambda r=record: standard.asdict(r)))
        found.append(answer(lambda r=record: standard.asdict(standard.replace(r, x=9))))
        # Refused or not: with slots some Pythons raise a `TypeError` by mistake.
        found.append(answer(lambda r=record: delattr(r, "x")) is None)
        found += [answer(lambda r=record, n=n: setattr(r, n, 7)) is None for n in ("x", "unknown")]
        found.append(hasattr(record, "__dict__"))
    return found


@pytest.mark.parametrize("make", CLASSES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_is_seen_as_the_standard_one(make: Callable[..., Any], options: dict[str, bool]) -> None:
    assert seen(make(lean.dataclass, **options)) == seen(make(standard.dataclass, **options))


def test_each_record_has_its_own_default_list() -> None:
    cls = point(lean.dataclass)
    cls(1).names.append("a")
    assert cls(1).names == []


@lean.dataclass(frozen=True, slots=True)
class Stored:
    x: int
    y: tuple[int, ...] = ()


def test_a_frozen_record_with_slots_can_be_copied_and_sent() -> None:
    record = Stored(1, (2, 3))
    assert copy.deepcopy(record) == record
    assert pickle.loads(pickle.dumps(record)) == record


def test_a_record_that_contains_itself_has_a_repr() -> None:
    record = single(lean.dataclass)(None)
    record.x = record
    assert "..." in repr(record)


def compiled_only(run: Any) -> Any:
    """Return `exec` that refuses text."""

    def execute(code: Any, names: dict[str, Any]) -> None:
        assert not isinstance(code, str)
        run(code, names)

    return execute


def test_only_the_constructor_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilation dominates the cost of the standard decorator."""
    compiled: list[str] = []
    make = builtins.compile

    def compile_text(text: str, file: str, mode: str) -> Any:
        compiled.append(text.partition("(")[0])
        return make(text, file, mode)

    monkeypatch.setattr(builtins, "compile", compile_text)
    monkeypatch.setattr(builtins, "exec", compiled_only(builtins.exec))
    point(lean.dataclass, frozen=True, slots=True)
    assert compiled == ["def __init__"]


def test_the_package_uses_it() -> None:
    """Programs of models and the gym are texts of their own, and keep the standard decorator."""
    source = Path(lean.__file__).parent
    apart = {source / "models", source / "gym", source / "dataclasses.py"}
    wrong = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if not apart & {path, *path.parents}
        and re.search(
            r"^from dataclasses import .*\bdataclass\b", path.read_text("utf-8"), re.MULTILINE
        )
    ]
    assert wrong == []
