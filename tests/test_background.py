"""The suite itself as a background job, whose shell ignores SIGINT on its behalf."""

from __future__ import annotations

import signal

import pytest
from tests.conftest import heed_ctrl_c


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.default_int_handler])
def test_ctrl_c_reaches_tests(before: signal.Handlers) -> None:
    found = signal.signal(signal.SIGINT, before)
    try:
        heed_ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, found)
