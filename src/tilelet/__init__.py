"""Tilelet: run, check and profile tile kernels written in the `pl` language, on any CPU.

Kernels import `tilelet.language as pl`; nothing heavy is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilelet.advice.verdict import verdict as verdict
    from tilelet.oracle.judgement import judge as judge
    from tilelet.runtime.inspection.check import check as check
    from tilelet.runtime.inspection.diverge import diverge as diverge
    from tilelet.runtime.inspection.profile import profile as profile
    from tilelet.tuning import tune as tune

__version__ = "0.3.0"


def __getattr__(name: str) -> Any:
    """Import names of the Python API on first use."""
    if name == "check":
        from tilelet.runtime.inspection.check import check

        return check
    if name == "diverge":
        from tilelet.runtime.inspection.diverge import diverge

        return diverge
    if name == "judge":
        from tilelet.oracle.judgement import judge

        return judge
    if name == "profile":
        from tilelet.runtime.inspection.profile import profile

        return profile
    if name == "tune":
        from tilelet.tuning import tune

        return tune
    if name == "verdict":
        from tilelet.advice.verdict import verdict

        return verdict
    raise AttributeError(f"module 'tilelet' has no attribute {name!r}")
