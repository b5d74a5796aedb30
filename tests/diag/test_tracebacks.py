"""Which line a message about no line of a kernel points at."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from tilelet.diag.catalogue.command import NoCompiler
from tilelet.diag.tracebacks import give_place


def test_lines_of_pythons_own_library_are_nobodys() -> None:
    """The exception of a compiler comes out of a future, whose text says nothing to a user."""
    made: Future[None] = Future()
    made.set_exception(NoCompiler())
    with pytest.raises(NoCompiler) as caught:
        made.result()
    give_place(caught.value)
    (label,) = caught.value.diagnostic.labels
    assert label.loc.file == __file__
