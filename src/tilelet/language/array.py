"""`pl.array`: small arrays of the control program."""

from tilelet.ops.tasks import create, get, get_element, set, update_element

__all__ = ["create", "get", "get_element", "set", "update_element"]
