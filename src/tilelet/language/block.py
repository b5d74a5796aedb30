"""`pl.block`: the early name of `pl.tile`, with the ops that have been renamed since."""

# ruff: noqa: F403
from tilelet.language.tile import *
from tilelet.syntax import markers as _markers

l0c_store = _markers.l0c_store
view = _markers.view
