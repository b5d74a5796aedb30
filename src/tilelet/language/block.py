"""`pl.block`: what is `pl.tile` now, with the ops that were renamed since."""

# ruff: noqa: F403
from tilelet.language.tile import *
from tilelet.syntax import markers as _markers

l0c_store = _markers.l0c_store
view = _markers.view
