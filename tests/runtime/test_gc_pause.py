"""Imports without Python's collector."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from tilelet.runtime.gc_pause import no_garbage


def failing_import() -> None:
    with no_garbage(again=True):
        assert not gc.isenabled()
        raise ImportError("x")


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before_even_after_an_error(enabled: bool) -> None:
    was, was_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ImportError):
            failing_import()
        assert gc.isenabled() is enabled
    finally:
        if not was_frozen:
            gc.unfreeze()
        (gc.enable if was else gc.disable)()


def test_a_script_that_imports_torch_has_it_seeded_and_frozen() -> None:
    pytest.importorskip("torch")
    text = (
        "import gc, tilelet.runtime.torch_scripts.repeatable as s\n"
        "with s.repeatable(1):\n"
        "    import torch\n"
        "    print(gc.get_freeze_count() > 10_000, gc.isenabled())\n"
        "    print(torch.initial_seed() < 1 << 32)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True"]
