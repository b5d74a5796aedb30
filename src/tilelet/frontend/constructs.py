"""Importing this module enters every construct of the language into the dispatch table."""

from tilelet.frontend import (  # noqa: F401
    barriers,
    calls,
    expressions,
    kernels,
    lanes,
    loops,
    marker_calls,
    pipes,
    scopes,
    statements,
    subscripts,
)
