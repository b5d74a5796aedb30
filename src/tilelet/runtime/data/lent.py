"""Large inputs of a case, which exist once: the script, its golden and the program share memory.

Other arrays are copied for the golden, because it may change them. A large input is lent instead:
it is compared with its digest after each call of the golden, and made again if it has changed.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Collection, Mapping

import numpy as np

from tilelet.diag.catalogue.harness import InitValueFailed
from tilelet.dtypes import Array
from tilelet.runtime.data.arrays import raw

MIN_LENT_BYTES = 1 << 26
"""Bytes from which an input is not copied."""


def digest_of(array: Array) -> bytes:
    return hashlib.sha256(raw(np.ascontiguousarray(array)).data).digest()


class LentInputs:
    """The large inputs of a case; `remake` returns fresh data of one, given its spec's name."""

    def __init__(self, remake: Callable[[str], Array]) -> None:
        self._remake = remake
        self._known: dict[str, tuple[weakref.ref[Array], bytes]] = {}

    def add(self, name: str, array: Array) -> None:
        self._known[name] = weakref.ref(array), digest_of(array)

    def sharing(self, array: Array) -> list[str]:
        """Return the inputs whose memory an array shares."""
        known = [(name, ref()) for name, (ref, _) in self._known.items()]
        return [name for name, a in known if a is not None and np.may_share_memory(a, array)]

    def digests(self, arrays: Mapping[str, Array]) -> dict[str, bytes]:
        """Return the digests of the arrays that are lent."""
        found: dict[str, bytes] = {}
        for name, array in arrays.items():
            ref, digest = self._known.get(name, (None, b""))
            own = None if ref is None else ref()
            if own is not None and own.ctypes.data == array.ctypes.data:
                found[name] = digest
        return found

    def copies(self, arrays: Mapping[str, Array], written: Collection[str]) -> dict[str, Array]:
        """Return what a golden that writes some arrays gets: copies, but for lent inputs."""
        kept = self.digests(arrays).keys() - set(written)
        return {name: array if name in kept else array.copy() for name, array in arrays.items()}

    def apart(self, array: Array) -> Array:
        """Return an array that restoring the inputs does not change."""
        return array.copy() if self.sharing(array) else array

    def restore(self) -> None:
        """Restore inputs that were changed since they were made."""
        for name, (ref, digest) in self._known.items():
            array = ref()
            if array is None or digest_of(array) == digest:
                continue
            fresh = self._remake(name)
            if digest_of(fresh) != digest:
                why = "the array that it returned was changed later: let it return a copy"
                raise InitValueFailed(name, why)
            np.copyto(array, fresh)


NONE_LENT = LentInputs(lambda _: np.empty(0))
"""All arrays are copied."""
