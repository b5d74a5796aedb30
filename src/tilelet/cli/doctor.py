"""`tilelet doctor`: report what native runs need, and whether it is available."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Iterable

from tilelet import __version__
from tilelet.bench import host
from tilelet.cli.messages import print_text
from tilelet.cpu.run.engine import thread_count
from tilelet.dataclasses import asdict, dataclass, field
from tilelet.diag.core import UserError
from tilelet.diag.json_types import JsonObject
from tilelet.diag.text import escape_controls, near, plural, quoted_names, size_text
from tilelet.native.toolchain import find_compiler, machine_flags
from tilelet.runtime import session
from tilelet.runtime.programs import engines
from tilelet.scripts import exit_codes

OK, NOTE, BROKEN = "ok", "note", "broken"


@dataclass(frozen=True)
class DoctorTopic:
    """One topic: its state, description, remedy, and facts for machines."""

    topic: str
    state: str
    text: str
    helps: tuple[str, ...] = ()
    facts: JsonObject = field(default_factory=JsonObject)


def doctor_command(as_json: bool) -> int:
    """Print all checks; return 1 if something that runs need is broken."""
    checks = [check() for check in _CHECKS]
    is_sound = all(check.state != BROKEN for check in checks)
    if as_json:
        document = {"sound": is_sound, "checks": [asdict(check) for check in checks]}
        print(json.dumps(document, indent=2))
    else:
        print_text(_text(checks))
    return exit_codes.of_findings(not is_sound)


def _text(checks: Iterable[DoctorTopic]) -> str:
    checks = list(checks)
    width = max(len(check.topic) for check in checks)
    lines: list[str] = []
    for check in checks:
        first, *more = check.text.splitlines()
        indent = " " * (len(BROKEN) + width + 4)
        lines.append(f"{check.state:<{len(BROKEN)}}  {check.topic:<{width}}  {first}")
        lines += [f"{indent}{line}" for line in more]
        lines += [f"{indent}help: {text}" for text in check.helps]
    broken = [check.topic for check in checks if check.state == BROKEN]
    verdict = f"broken: {', '.join(broken)}" if broken else "everything that runs need is here"
    return escape_controls("\n".join([*lines, "", verdict]))


def _failed_topic(topic: str, error: UserError) -> DoctorTopic:
    found = error.diagnostic
    return DoctorTopic(
        topic,
        BROKEN,
        "\n".join([found.message, *found.notes]),
        found.helps,
        {"code": found.code},
    )


def _versions() -> DoctorTopic:
    text = (
        f"tilelet {__version__}, Python {platform.python_version()} ({sys.executable}), "
        f"{platform.system()} {platform.machine()}"
    )
    facts = {
        "tilelet": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": platform.system(),
        "machine": platform.machine(),
    }
    return DoctorTopic("versions", OK, text, facts=facts)


def _compiler() -> DoctorTopic:
    """Return which compiler is found, and whether its programs run here."""
    try:
        compiler = find_compiler()
        target = host.probe_compiler(compiler)
    except UserError as error:
        return _failed_topic("compiler", error)
    flags = " ".join(machine_flags()) or "no flags for this CPU"
    fma = "FMA" if target.has_fma else "no FMA"
    text = (
        f"{compiler.name}: {compiler.version}\n"
        f"works; builds for {target.isa}, {fma}, vectors of {target.vector_bytes} bytes ({flags})"
    )
    facts = {"command": list(compiler.command), "version": compiler.version, **asdict(target)}
    widest = host.cpu_isas()[:1]
    if widest and widest[0] != target.isa:
        return DoctorTopic("compiler", NOTE, f"{text}\nthis CPU has {widest[0]}", facts=facts)
    return DoctorTopic("compiler", OK, text, facts=facts)


def _cpu() -> DoctorTopic:
    isas = host.cpu_isas()
    text = f"{host.cpu_name()}: {', '.join(isas) or 'vector instructions unknown'}"
    return DoctorTopic("CPU", OK, text, facts={"name": host.cpu_name(), "isas": isas})


def _cores() -> DoctorTopic:
    found = host.cores()
    try:
        threads = thread_count()
    except UserError as error:
        return _failed_topic("cores", error)
    text = f"{found.usable} usable of {found.present}; {plural(threads, 'thread')}"
    facts = {**asdict(found), "threads": threads}
    limit = found.usable if found.quota is None else min(found.usable, found.quota)
    if threads > limit:
        text += f", more than the {limit:g} cores this process gets"
        helps = (f"`TILELET_THREADS={max(1, int(limit))}` may be faster",)
        return DoctorTopic("cores", NOTE, text, helps, facts)
    return DoctorTopic("cores", OK, text, facts=facts)


def _engine() -> DoctorTopic:
    known = engines.engine_names()
    chosen = session.Session().chosen_engine or session.DEFAULT_ENGINE
    if chosen not in known:
        text = f"`TILELET_ENGINE` is `{chosen}`, which does not exist"
        return DoctorTopic("engine", BROKEN, text, (f"engines are {quoted_names(known, 'and')}",))
    return DoctorTopic(
        "engine", OK, f"{chosen} by default", facts={"default": chosen, "known": known}
    )


def _environment() -> DoctorTopic:
    found = host.settings()
    lines = [f"{name}={value}" for name, value in found.items()]
    odd = [name for name in found if name.startswith("TILELET_") and name not in host.VARIABLES]
    helps: list[str] = []
    for name in odd:
        close = near(name, host.VARIABLES)
        meant = f": did you mean `{close[0]}`?" if close else ""
        helps.append(f"`{name}` means nothing{meant}")
    text = "\n".join(lines) or "no variable of Tilelet's is set"
    return DoctorTopic("environment", NOTE if odd else OK, text, tuple(helps), {"variables": found})


def _cache() -> DoctorTopic:
    found = host.cache_facts()
    facts = {**asdict(found), "folder": str(found.folder) if found.folder else None}
    helps = ("programs are compiled again in every run; set `TILELET_CACHE_DIR`",)
    if found.folder is None:
        return DoctorTopic("cache", NOTE, f"none: {found.why}", helps, facts)
    text = (
        f"{found.folder} ({found.mode})\n{plural(found.entries, 'entry', 'entries')}, "
        f"{size_text(found.size)} of {size_text(found.cap)}"
    )
    if not found.is_writable:
        return DoctorTopic("cache", NOTE, f"{text}; not writable", helps, facts)
    return DoctorTopic("cache", OK, f"{text}; writable", facts=facts)


def _packages() -> DoctorTopic:
    found = host.package_versions()
    there = [f"{name} {version}" for name, version in found.items() if version]
    missing = [name for name, version in found.items() if not version]
    text = ", ".join(there)
    if missing:
        text += f"\nnot installed, and not needed: {', '.join(missing)}"
    return DoctorTopic("packages", OK, text, facts={"versions": found})


def _huge_pages() -> DoctorTopic:
    setting = host.huge_pages()
    facts = {"setting": setting}
    if setting in ("always", "madvise"):
        return DoctorTopic("huge pages", OK, f"transparent, `{setting}`", facts=facts)
    if setting == "never":
        text = "transparent huge pages are off: large weights are read more slowly"
        return DoctorTopic("huge pages", NOTE, text, facts=facts)
    return DoctorTopic("huge pages", OK, "this system does not say", facts=facts)


_CHECKS: tuple[Callable[[], DoctorTopic], ...] = (
    _versions,
    _compiler,
    _cpu,
    _cores,
    _engine,
    _environment,
    _cache,
    _packages,
    _huge_pages,
)
