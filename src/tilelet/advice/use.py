"""Helpers of rules about machine use."""

from __future__ import annotations

from pathlib import PurePath

from tilelet.advice.core import Subject
from tilelet.device.report.profile import KernelRow, Profile
from tilelet.diag.core import Loc

# Minimum share of the time that is worth reporting.
MIN_SHARE = 0.05


def cores_of(profile: Profile, kernel: KernelRow) -> int:
    kind = "AIC" if "AIC" in kernel.cores else kernel.cores
    return profile.cores.get(kind, 0)


def place_of(subject: Subject, kernel: KernelRow) -> Loc:
    file, _, line = kernel.where.rpartition(":")
    name = PurePath(subject.source.path).name
    path = subject.source.path if PurePath(file).name == name else file
    return Loc(path, int(line) if line.isdecimal() else 0)
