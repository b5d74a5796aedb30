"""Cache of golden results: a golden runs again only if its source or inputs changed.

An entry's name is a hash over the golden's source, everything the source refers to (helper
functions, constants, the user's own modules), the versions of the libraries it uses, and all input
data. A golden that refers to anything unhashable is not cached. Entries are private files with a
digest; a modified entry is computed again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import enum
import hashlib
import importlib.util
import inspect
import os
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from tilelet import __version__
from tilelet.dtypes import Array
from tilelet.native import cache, private
from tilelet.runtime.data.array_files import BadFileError, Seal, load_arrays, save_arrays
from tilelet.runtime.data.arrays import as_array, is_array, is_dtype, loaded_torch, raw

MAX_BYTES = 2 << 30  # bytes kept; the oldest entries go first
# Objects of these packages in a module's namespace are determined by its text.
_STATELESS = ("__future__", "logging", "re", "tilelet", "types", "typing")
_PLAIN = (int, float, bool, str, bytes, complex, type(None), type(...), range, slice)


class GoldenCache:
    """The cache entries in one folder. A disk error disables the cache only."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def key(
        self,
        golden: Callable[..., object],
        arrays: Mapping[str, Array],
        scalars: Mapping[str, np.generic],
        outputs: tuple[str, ...],
        use_torch: bool,
        seed: int = 0,
        digests: Mapping[str, bytes] | None = None,
    ) -> str | None:
        """The name of the entry, or None if this golden cannot be cached.

        digests  of arrays whose contents need not be read again
        """
        versions = [getattr(m, "__version__", "") for m in (np, loaded_torch()) if m]
        digest = hashlib.sha256(repr((__version__, versions, seed, use_torch, outputs)).encode())
        try:
            _Hasher(digest).add(golden)
        except _NotHashable:
            return None
        for name, array in arrays.items():
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            known = (digests or {}).get(name)
            digest.update(known or raw(np.ascontiguousarray(array)).data)
        for name, value in scalars.items():
            digest.update(f"{name} {value.dtype} {value!r}".encode())
        return digest.hexdigest()

    def load(self, key: str) -> dict[str, Array] | None:
        """Return the entry's arrays; None if it is missing or was modified."""
        try:
            folder = self._trusted()
            entry, seal = _entry(folder, key), _seal(folder, key)
        except OSError:
            return None
        try:
            with os.fdopen(private.open_file(entry), "rb") as file:
                arrays = load_arrays(file, seal)
        except OSError:
            return None
        except BadFileError:
            with contextlib.suppress(OSError):
                entry.unlink()
            return None
        with contextlib.suppress(OSError):  # a read-only folder
            os.utime(entry)
        return arrays

    def store(self, key: str, arrays: Mapping[str, Array]) -> None:
        with contextlib.suppress(OSError):
            folder = self._trusted()
            save_arrays(_entry(folder, key), arrays, mode=0o600, seal=_seal(folder, key))
            self._prune(folder)

    def _trusted(self) -> Path:
        """Return the folder; raise `OSError` unless only this user can write to it."""
        try:
            return private.make_folder((self._folder or cache.user_folder()) / "golden")
        except (RuntimeError, ValueError) as error:  # no home directory; a path with a null byte
            raise NotADirectoryError(str(error)) from None

    @staticmethod
    def _prune(folder: Path) -> None:
        entries = [(path, path.stat()) for path in folder.glob("*.npz")]
        total = sum(found.st_size for _, found in entries)
        for path, found in sorted(entries, key=lambda entry: entry[1].st_mtime):
            if total <= MAX_BYTES:
                return
            path.unlink(missing_ok=True)
            total -= found.st_size


def _entry(folder: Path, key: str) -> Path:
    return folder / f"{key}.npz"


def _seal(folder: Path, key: str) -> Seal:
    """Return a keyed digest of the entry `key`, with the secret of the folder."""
    secret = private.key_of(folder)

    def seal(arrays: Mapping[str, Array]) -> str:
        parts: list[Any] = [key.encode()]
        for name, array in sorted(arrays.items()):
            parts.append(f"{name} {array.dtype} {array.shape}".encode())
            parts.append(raw(np.ascontiguousarray(array)).data)
        return private.digest(secret, parts)

    return seal


class _NotHashable(Exception):  # noqa: N818
    """The golden refers to something whose contents cannot be hashed."""


class _Hasher:
    """Adds a function and everything its code refers to to a digest."""

    def __init__(self, digest: Any) -> None:
        self._digest = digest
        # By id; the objects are kept alive, so that ids stay unique.
        self._seen: dict[int, object] = {}

    def add(self, value: Any) -> None:
        self._digest.update(type(value).__qualname__.encode())
        if isinstance(value, _PLAIN) or is_dtype(value):
            self._digest.update(repr(cast("object", value)).encode())
        elif is_array(value):
            try:
                array = np.ascontiguousarray(as_array(value))
            except TypeError:  # a tensor without plain memory
                raise _NotHashable from None
            self._digest.update(f"{array.dtype} {array.shape}".encode())
            self._digest.update(raw(array).data)
        elif id(value) not in self._seen:
            self._seen[id(value)] = value
            self._add_object(value)

    def _add_object(self, value: Any) -> None:
        if isinstance(value, tuple | list):
            for item in cast("Sequence[Any]", value):
                self.add(item)
        elif isinstance(value, dict):
            self.add(list(cast("dict[Any, Any]", value).items()))
        elif isinstance(value, types.ModuleType):
            self._add_module(value)
        elif _is_library(getattr(value, "__module__", None)) and hasattr(value, "__qualname__"):
            self._digest.update(f"{value.__module__}.{value.__qualname__}".encode())
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, type):
            self._add_class(value)
        elif dataclasses.is_dataclass(value) or isinstance(value, types.SimpleNamespace):
            self.add(type(value))
            self.add(vars(value))
        elif isinstance(value, enum.Enum):
            self.add(type(value))
            self.add(value.name)
        else:
            raise _NotHashable

    def _add_function(self, function: types.FunctionType) -> None:
        code = function.__code__
        self._add_source(function)
        self.add(function.__defaults__ or ())
        self.add(function.__kwdefaults__ or {})
        try:
            self.add([cell.cell_contents for cell in function.__closure__ or ()])
        except ValueError:
            raise _NotHashable from None  # a cell that is not filled yet
        if any(not _is_library(name) for name in _imports(code)):
            raise _NotHashable  # a module of the user that may not be loaded yet
        for name in sorted(_names(code)):
            if name in function.__globals__:
                self._digest.update(name.encode())
                self.add(function.__globals__[name])

    def _add_class(self, cls: type) -> None:
        self._add_source(cls)
        for member in vars(cls).values():
            code = getattr(member, "__code__", None)
            # Methods that a decorator generated come from elsewhere; the class's text decides them.
            if code is not None and code.co_filename == inspect.getfile(cls):
                self.add(member)

    def _add_source(self, thing: Any) -> None:
        try:
            self._digest.update(inspect.getsource(thing).encode())
        except (OSError, TypeError):
            raise _NotHashable from None

    def _add_module(self, module: types.ModuleType) -> None:
        self._digest.update(module.__name__.encode())
        if _is_library(module.__name__):
            self._digest.update(str(getattr(module, "__version__", "")).encode())
            return
        try:
            self._digest.update(Path(module.__file__ or "").read_bytes())
        except OSError:
            raise _NotHashable from None
        # The text is not enough: it may use other modules, and a script may change its constants.
        for name, value in vars(module).items():
            home = getattr(value, "__module__", None)
            if name.startswith("__") or type(value).__module__.partition(".")[0] in _STATELESS:
                continue
            if isinstance(value, types.FunctionType | type) and home in sys.modules:
                self.add(sys.modules[home])
            else:
                self._digest.update(name.encode())
                self.add(value)


def _names(code: types.CodeType) -> set[str]:
    """Return every name that the code, and functions defined in it, look up."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _imports(code: types.CodeType) -> set[str]:
    """Return modules that the code, and functions defined in it, import when run."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname == "IMPORT_NAME"}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _imports(constant)
    return found


def _is_library(module: str | None) -> bool:
    """Whether a module is Python's or an installed package's, identified by its version."""
    top, _, inside = (module or "").partition(".")
    if top == "tilelet":
        return not inside.startswith("models")  # shipped programs have goldens, too
    if top in sys.stdlib_module_names:
        return True
    loaded = sys.modules.get(top)
    spec = getattr(loaded, "__spec__", None) if loaded else _find(top)
    origin = getattr(spec, "origin", None)
    return bool(origin) and any(Path(origin).is_relative_to(f) for f in _library_folders())


def _find(module: str) -> object | None:
    try:
        return importlib.util.find_spec(module) if module else None
    except (ImportError, ValueError):
        return None


def _library_folders() -> list[str]:
    paths = sysconfig.get_paths()
    return [
        paths["purelib"],
        paths["platlib"],
        *site.getsitepackages(),
        site.getusersitepackages(),
    ]
