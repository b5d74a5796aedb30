"""Threads of the BLAS library that NumPy and torch call."""

from __future__ import annotations

import os


def use_one_blas_thread() -> None:
    """Limit BLAS to one thread; call this before NumPy is imported.

    Goldens use threads themselves. BLAS threads synchronize in every small product, which takes ten
    times as long when the cores have other work.
    """
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
