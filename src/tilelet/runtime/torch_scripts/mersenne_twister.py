"""A Mersenne Twister (MT19937) that can jump ahead by billions of numbers.

Its words obey a linear recurrence over bits: with the characteristic polynomial `p` of the step
from one word to the next (Matsumoto and Nishimura, 1998), the words from number `n` on are the
exclusive or of those from number `i` on, for every `i` whose power is in `x**n mod p`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

Words = np.ndarray[Any, np.dtype[np.uint32]]

WORDS = 624
_MIDDLE, _MATRIX, _UPPER = 397, 0x9908B0DF, 0x80000000
_DEGREE = 19937
_MIN_JUMP = 1 << 22  # numbers that can be generated in the time of a jump


def state_after(key: Words, position: int, steps: int) -> tuple[Words, int]:
    """Return the state after `steps` numbers: all words, and how many of them were used."""
    if steps < _MIN_JUMP:
        return _step(key, position, steps)
    blocks, position = divmod(position + steps, WORDS)
    if not position:  # new words are generated when the next number is drawn
        blocks, position = blocks - 1, WORDS
    # The first word of an unused generator does not satisfy the recurrence.
    return _jump(_next_block(key), WORDS * (blocks - 1)), position


def _step(key: Words, position: int, steps: int) -> tuple[Words, int]:
    twister: object = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": position}}
    twister.random_raw(steps, output=False)
    state: Any = twister.state["state"]
    return state["key"], state["pos"]


def _jump(block: Words, words: int) -> Words:
    if not words:
        return block
    power = _power(words)
    made = [block]
    while len(made) * WORDS < _DEGREE + WORDS:
        made.append(_next_block(made[-1]))
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate(made), WORDS)
    chosen = np.frombuffer(bin(power)[:1:-1].encode(), np.uint8) == ord("1")
    return np.bitwise_xor.reduce(windows[: len(chosen)][chosen], axis=0)


def _next_block(key: Words) -> Words:
    words = np.concatenate([key, np.empty(WORDS, np.uint32)])
    for start, end in ((0, 227), (227, 454), (454, WORDS)):  # independent of each other
        mixed = words[start:end] & np.uint32(_UPPER)
        mixed |= words[start + 1 : end + 1] & np.uint32(_UPPER - 1)
        mixed = (mixed >> np.uint32(1)) ^ (mixed & np.uint32(1)) * np.uint32(_MATRIX)
        words[WORDS + start : WORDS + end] = words[start + _MIDDLE : end + _MIDDLE] ^ mixed
    return words[WORDS:]


# ---- polynomials over bits, as integers


@functools.cache
def _characteristic() -> int:
    def times(p: int, high: int, low: int) -> int:
        return p << high ^ p << low

    total, power = _MATRIX >> 31 & 1, 1
    for bit in range(30, -1, -1):
        if _MATRIX >> bit & 1:
            total ^= times(power, WORDS, _MIDDLE)
        power = times(power, WORDS - 1, _MIDDLE - 1)
    return total ^ times(power, WORDS, _MIDDLE)


@functools.cache
def _multiples() -> list[int]:
    """Return, for every byte above the degree, the polynomial's multiple with that byte."""
    p = _characteristic()
    rows = [p << shift for shift in range(8)]
    found: list[int] = []
    for byte in range(256):
        multiple = 0
        for bit in range(7, -1, -1):
            if (multiple >> (_DEGREE + bit) ^ byte >> bit) & 1:
                multiple ^= rows[bit]
        found.append(multiple)
    return found


def _power(exponent: int) -> int:
    """Return `x**exponent` modulo the polynomial."""
    result = 1
    for bit in _bits(exponent):
        result = _remainder(int(f"{result:b}", 4) << bit)  # squaring spreads the bits
    return result


def _remainder(value: int) -> int:
    multiples = _multiples()
    for shift in range(max(value.bit_length() - _DEGREE - 1, 0) // 8 * 8, -1, -8):
        value ^= multiples[value >> (_DEGREE + shift)] << shift
    return value


def _bits(value: int) -> Iterator[int]:
    return map(int, f"{value:b}")
