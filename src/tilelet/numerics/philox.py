"""Philox4x32: counter-based random words.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilelet.dtypes import Array

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_WORD = 32
_LOW = np.uint64(0xFFFFFFFF)


def philox(key: tuple[int, int], counter: Sequence[int], count: int, rounds: int) -> Array:
    """Return `count` words, four per counter, counting up from `counter` (lowest word first)."""
    blocks = -(-count // 4)
    c = _counters(counter, blocks)
    k0, k1 = (int(word) % 2**_WORD for word in key)
    for _ in range(rounds):
        products = _MULTIPLIERS[0] * c[0], _MULTIPLIERS[1] * c[2]
        (high0, low0), (high1, low1) = ((p >> np.uint64(_WORD), p & _LOW) for p in products)
        c = [high1 ^ c[1] ^ np.uint64(k0), low1, high0 ^ c[3] ^ np.uint64(k1), low0]
        k0, k1 = (k0 + _KEY_STEPS[0]) % 2**_WORD, (k1 + _KEY_STEPS[1]) % 2**_WORD
    return np.stack(c, axis=1).astype(np.uint32).reshape(-1)[:count]


def _counters(start: Sequence[int], blocks: int) -> list[Array]:
    """Return the words of `blocks` consecutive counters, as 64-bit integers."""
    words: list[Array] = []
    carry = np.arange(blocks, dtype=np.uint64)
    for word in start:
        total = carry + np.uint64(int(word) % 2**_WORD)
        words.append(total & _LOW)
        carry = total >> np.uint64(_WORD)
    return words
