"""The line that a message points at if it is not about a line of a kernel."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from tilelet.diag.catalogue.command import NoCompiler
from tilelet.diag.tracebacks import give_place


def test_lines_of_pythons_own_library_are_nobodys() -> None:
    """A compiler's exception comes from a future, whose frames mean nothing to a user."""
    made: Future[None] = Future()
    made.set_exception(NoCompiler())
    with pytest.raises(NoCompiler) as caught:
        made.result()
    give_place(caught.value)
    (label,) = caught.value.diagnostic.labels
    assert label.loc.file == __file__
