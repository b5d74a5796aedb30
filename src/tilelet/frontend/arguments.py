"""Arguments of a call, read from its text before anything is evaluated."""

from __future__ import annotations

import ast

from tilelet.ir.spec import OpSpec
from tilelet.ops import spellings


def argument_of(spec: OpSpec, call: ast.Call, position: int = 0) -> ast.expr | None:
    """Return the argument for the parameter at `position` of an op, by position or by name."""
    if position < len(call.args):
        return call.args[position]
    param = list(spec.signature.parameters)[position]
    named = (k for k in call.keywords if k.arg and spellings.spelled(spec, k.arg) == param)
    return next((k.value for k in named), None)
