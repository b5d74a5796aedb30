"""Sums and products of FP32 elements regardless of order, for equality up to rounding.

A term is read as an integer modulo a product of three primes. Each prime is small enough for the
products of a matrix product to be exact in double precision. Terms do not cancel, and products do
not distribute over sums: with infinities and NaNs neither holds (`(2 - 1) * inf` is infinite,
`2 * inf - 1 * inf` is not a number).
"""

from __future__ import annotations

import numpy as np

from tilelet.equivalence.terms import Terms, combine, tag

_PRIMES = (1048573, 1048571, 1048559)
MODULUS = np.uint64(_PRIMES[0] * _PRIMES[1] * _PRIMES[2])
_MINUS = np.uint64(739391)
"""An arbitrary factor that represents -1."""
_FACTOR = tag("factor")
_EXACT = 4096
"""Number of residue products that can be summed exactly in double precision."""


def add(a: Terms, b: Terms) -> Terms:
    return (a % MODULUS + b % MODULUS) % MODULUS


def subtract(a: Terms, b: Terms) -> Terms:
    """Return the difference; `x - x` is not 0, because it is NaN if `x` is infinite or NaN."""
    negative = _join_residues(*(b % np.uint64(p) * _MINUS % np.uint64(p) for p in _PRIMES))
    return (a % MODULUS + negative) % MODULUS


def matmul(a: Terms, b: Terms) -> Terms:
    """Return the product of opaque factors; `0 * x` is not 0, because it may be NaN."""
    a, b = (combine(_FACTOR, x % MODULUS) for x in (a, b))
    residues = [_matmul(a, b, prime) for prime in _PRIMES]
    return _join_residues(*residues)


def _matmul(a: Terms, b: Terms, prime: int) -> Terms:
    modulus = np.uint64(prime)
    left, right = ((x % modulus).astype(np.float64) for x in (a, b))
    total = np.zeros((), np.uint64)
    for k in range(0, a.shape[-1], _EXACT):
        part = left[..., k : k + _EXACT] @ right[..., k : k + _EXACT, :]
        total = (total + part.astype(np.uint64)) % modulus
    return np.asarray(total)


def _join_residues(r1: Terms, r2: Terms, r3: Terms) -> Terms:
    """Return the number with these residues (Garner's algorithm)."""
    p1, p2, p3 = map(np.uint64, _PRIMES)
    inverse = np.uint64(pow(_PRIMES[0], -1, _PRIMES[1]))
    v2 = (r2 + p2 - r1 % p2) % p2 * inverse % p2
    so_far = r1 + p1 * v2
    inverse = np.uint64(pow(_PRIMES[0] * _PRIMES[1], -1, _PRIMES[2]))
    v3 = (r3 + p3 - so_far % p3) % p3 * inverse % p3
    return so_far + p1 * p2 * v3
