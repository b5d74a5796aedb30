"""The cache is used if and only if nothing changed; a bad disk never stops a run."""

from __future__ import annotations

import dataclasses
import importlib
import math
import os
import stat
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilelet.native.cache import user_folder
from tilelet.runtime.data.array_files import save_arrays
from tilelet.runtime.validation import golden_cache
from tilelet.runtime.validation.golden_cache import GoldenCache

SCALE = 2.0
X = np.arange(3, dtype=np.float32)


def helper(x: np.ndarray) -> np.ndarray:
    return x * SCALE


def golden(tensors: dict[str, np.ndarray]) -> None:
    tensors["out"][:] = helper(tensors["x"])


def key_of(function: Callable[..., Any], x: np.ndarray = X) -> str | None:
    return GoldenCache().key(function, {"x": x}, {}, ("out",), use_torch=False)


def made(text: str, tmp_path: Path, **names: Any) -> Callable[..., Any]:
    """A golden from source text, in a file of its own."""
    path = tmp_path / f"golden_{len(list(tmp_path.iterdir()))}.py"
    path.write_text(text)
    module = types.ModuleType("user_golden")
    module.__dict__.update(names)
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module.__dict__["golden"]


def test_the_key_changes_with_inputs_helpers_and_constants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = key_of(golden)
    assert first is not None
    assert key_of(golden) == first
    assert key_of(golden, X + 1) != first
    assert key_of(golden, X.astype(np.float16)) != first
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert key_of(golden) != first
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert key_of(golden) == first
    monkeypatch.setitem(globals(), "helper", math.sqrt)
    assert key_of(golden) != first


def test_the_key_changes_with_the_source_and_with_closures(tmp_path: Path) -> None:
    one = made("def golden(t):\n    t['out'][:] = 1\n", tmp_path)
    two = made("def golden(t):\n    t['out'][:] = 2\n", tmp_path)
    assert key_of(one) != key_of(two)

    def builder(n: int) -> Callable[..., None]:
        def inner(t: dict[str, np.ndarray]) -> None:
            t["out"][:] = n

        return inner

    assert key_of(builder(1)) != key_of(builder(2))
    assert key_of(builder(1)) == key_of(builder(1))


@dataclasses.dataclass(frozen=True)
class Shape:
    rows: int

    def half(self) -> int:
        return self.rows // 2


def test_configuration_objects_are_hashed_by_their_fields() -> None:
    def of(shape: Shape) -> Callable[..., None]:
        def inner(t: dict[str, np.ndarray]) -> None:
            t["out"][:] = shape.half()

        return inner

    assert key_of(of(Shape(4))) is not None
    assert key_of(of(Shape(4))) == key_of(of(Shape(4)))
    assert key_of(of(Shape(4))) != key_of(of(Shape(6)))


def test_modules_count_with_their_text_their_constants_and_their_own_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "cache_test_sizes.py").write_text("from typing import Any\nROWS = 4\n")
    (tmp_path / "cache_test_maths.py").write_text(
        "from __future__ import annotations\nimport cache_test_sizes\n"
        "def go(t):\n    t['out'][:] = cache_test_sizes.ROWS\n"
    )
    maths = importlib.import_module("cache_test_maths")
    sizes = importlib.import_module("cache_test_sizes")
    golden = made("def golden(t):\n    maths.go(t)\n", tmp_path, maths=maths)
    first = key_of(golden)
    assert first is not None
    monkeypatch.setattr(sizes, "ROWS", 5)
    assert key_of(golden) not in (first, None)
    monkeypatch.setattr(sizes, "ROWS", 4)
    assert key_of(golden) == first
    (tmp_path / "cache_test_sizes.py").write_text("from typing import Any\nROWS = 4  # still\n")
    assert key_of(golden) not in (first, None)
    for name in ("cache_test_maths", "cache_test_sizes"):
        monkeypatch.delitem(sys.modules, name)


def test_what_cannot_be_hashed_is_not_cached(tmp_path: Path) -> None:
    strange = made("def golden(t):\n    t['out'][:] = thing.value()\n", tmp_path, thing=object())
    assert key_of(strange) is None
    local = made("def golden(t):\n    import my_helpers\n    my_helpers.go(t)\n", tmp_path)
    assert key_of(local) is None
    library = made("def golden(t):\n    import torch\n    t['out'][:] = 1\n", tmp_path)
    assert key_of(library) is not None


def test_round_trip_with_private_files(tmp_path: Path) -> None:
    cache = GoldenCache(tmp_path / "cache")
    arrays = {"out": np.array([1.5, 2.5], ml_dtypes.bfloat16), "file": np.array([[True, False]])}
    cache.store("k", arrays)
    loaded = cache.load("k")
    assert loaded is not None
    assert loaded["out"].dtype == ml_dtypes.bfloat16
    assert loaded["out"].tolist() == [1.5, 2.5]
    assert loaded["file"].tolist() == [[True, False]]
    folder = tmp_path / "cache" / "golden"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "k.npz").stat().st_mode) == 0o600
    assert sorted(p.name for p in folder.iterdir()) == ["k.npz", "key"]


@pytest.mark.parametrize("damage", [b"", b"not a zip file", None])
def test_a_damaged_entry_is_dropped(tmp_path: Path, damage: bytes | None) -> None:
    cache = GoldenCache(tmp_path)
    cache.store("k", {"out": np.arange(1000)})
    path = tmp_path / "golden" / "k.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content) if damage is None else damage)
    assert cache.load("k") is None
    assert not path.exists()


@pytest.mark.parametrize(
    "other",
    [
        {"out": np.arange(3)},  # shape
        {"out": np.arange(4).reshape(2, 2)},
        {"out": np.arange(4, dtype=np.uint64)},  # the same bits, another type
        {"out": np.array([0, 1, 2, 7])},  # contents
        {"other": np.arange(4)},  # name
        {"out": np.arange(4), "more": np.arange(4)},
    ],
)
def test_an_entry_that_was_stored_for_something_else(
    tmp_path: Path, other: dict[str, np.ndarray]
) -> None:
    cache = GoldenCache(tmp_path)
    cache.store("k", {"out": np.arange(4)})
    assert cache.load("k") is not None
    path = tmp_path / "golden" / "k.npz"
    with np.load(path) as stored:
        seal = stored["seal"]
    save_arrays(path, other, mode=0o600, seal=lambda _: str(seal))
    assert cache.load("k") is None
    save_arrays(path, other, mode=0o600)  # as older versions did, without any
    assert cache.load("k") is None


def test_an_entry_under_the_name_of_another(tmp_path: Path) -> None:
    cache = GoldenCache(tmp_path)
    cache.store("k", {"out": np.arange(4)})
    (tmp_path / "golden" / "k.npz").rename(tmp_path / "golden" / "j.npz")
    assert cache.load("j") is None


def test_a_folder_that_can_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = GoldenCache(tmp_path)
    cache.store("k", {"out": np.arange(4)})
    cache.store("bad", {"out": np.arange(4)})
    (tmp_path / "golden" / "bad.npz").write_bytes(b"bad")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(30, "Read-only file system")

    for module, name in ((os, "utime"), (Path, "unlink"), (Path, "mkdir"), (Path, "replace")):
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr("tempfile.mkstemp", refuse)
    found = cache.load("k")
    assert found is not None
    assert found["out"].tolist() == [0, 1, 2, 3]
    assert cache.load("bad") is None
    cache.store("new", {"out": np.arange(4)})
    assert cache.load("new") is None


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def writable(path: Path) -> None:
    path.chmod(0o666)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("change", [a_pipe, a_link, a_folder, writable])
def test_what_is_no_file_of_ours_is_not_read(tmp_path: Path, change: object) -> None:
    cache = GoldenCache(tmp_path)
    cache.store("k", {"out": X})
    change(tmp_path / "golden" / "k.npz")  # type: ignore[operator]
    assert cache.load("k") is None
    cache.store("k", {"out": X})
    assert change is a_folder or cache.load("k") is not None


def test_an_entry_with_objects_is_not_loaded(tmp_path: Path) -> None:
    cache = GoldenCache(tmp_path)
    cache.store("k", {"out": np.arange(3)})
    path = tmp_path / "golden" / "k.npz"
    np.savez(path, **{"bits.out": np.array([{}], object), "dtype.out": np.array("INT64")})
    assert cache.load("k") is None


def test_without_a_place_to_write_there_is_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("TILELET_CACHE_DIR", str(file))
    cache = GoldenCache()
    cache.store("k", {"out": X})
    assert cache.load("k") is None


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_folder_that_others_can_write_to_is_not_trusted(tmp_path: Path) -> None:
    cache = GoldenCache(tmp_path)
    cache.store("k", {"out": X})
    (tmp_path / "golden").chmod(0o777)
    assert cache.load("k") is None


def test_old_entries_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden_cache, "MAX_BYTES", 20_000)
    cache = GoldenCache(tmp_path)
    for i in range(3):
        cache.store(f"k{i}", {"out": np.arange(1000)})
        os.utime(tmp_path / "golden" / f"k{i}.npz", (i + 1, i + 1))
    cache.store("k3", {"out": np.arange(1000)})
    assert sorted(p.stem for p in (tmp_path / "golden").glob("*.npz")) == ["k2", "k3"]


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILELET_CACHE_DIR", str(tmp_path))
    assert user_folder() == tmp_path
    monkeypatch.delenv("TILELET_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_folder() == tmp_path / "tilelet"
