"""Import aliases: `pypto…` and `golden…` are Tilelet's own modules under other names.

A finder before Python's own resolves these names lazily; a real `pypto` on the path is not loaded.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path

# An alias is a module of ours, or a namespace with names from our modules.
REAL = {"pypto.language": "tilelet.language"}

Contents = dict[str, str]  # home module: names, separated by spaces

_RUNTIME: Contents = {
    "tilelet.runtime": (
        "RunConfig RunResult TensorSpec ScalarSpec CompiledProgram compile_program run"
    ),
    "tilelet.compat.bench": "BenchmarkStats benchmark",
    "tilelet.compat.surface": "configure_log pto_isa_include_dir",
    "tilelet.compat.worker": "ChipWorker RegistrationHandle",
    "tilelet.runtime.programs.ranks_worker": (
        "DistributedRunHandle DistributedWorker StackedDeviceTensor"
    ),
}
_SPECS: Contents = {"tilelet.runtime": "TensorSpec ScalarSpec"}
_VALIDATION: Contents = {
    "tilelet.runtime": (
        "validate_golden ratio_allclose ratio_reldiff topk_pair_compare topk_set_compare"
        " bf16_allclose_or_ulp data_compare input_prefix_ratio_allclose mapped_pool_ratio_allclose"
        " mapped_pool_ratio_reldiff error_distribution"
    )
}
_GOLDEN_RUNNER: Contents = {
    "tilelet.runtime": "RunConfig RunResult run run_jit",
    "tilelet.compat.surface": "_Stage",
}
_PASS_MANAGER: Contents = {"tilelet.compat.surface": "OptimizationStrategy PassManager"}
_GOLDEN = [group["tilelet.runtime"] for group in (_GOLDEN_RUNNER, _SPECS, _VALIDATION)]

NAMESPACES: dict[str, Contents] = {
    "pypto": {"tilelet.compat.surface": "DataType LogLevel set_log_level __version__"},
    "pypto.runtime": _RUNTIME,
    "pypto.runtime.runner": {
        **_RUNTIME,
        "tilelet.compat.surface": "_SWIMLANE_CLI_HELP _SWIMLANE_FULL_LEVEL _SWIMLANE_MAX_LEVEL",
    },
    "pypto.runtime.distributed_runner": {
        "tilelet.compat.ranks": "_tensor_from_continuous",
        "tilelet.runtime.programs.ranks_worker": "DistributedWorker",
    },
    "pypto.runtime.worker": {"tilelet.compat.worker": "ChipWorker RegistrationHandle"},
    "simpler.worker": {"tilelet.compat.worker": "Worker"},
    "pypto.pypto_core": {
        "tilelet.compat.surface": "LogLevel _clear_thread_log_level _set_thread_log_level"
    },
    "pypto.pypto_core.passes": {"tilelet.compat.surface": "MemoryPlanner"},
    "pypto.runtime.tensor_spec": _SPECS,
    "pypto.pypto_core.ir": {
        "tilelet.compat.building": "Program Span",
        "tilelet.compat.chip": "CoreType",
        "tilelet.ir.core": "Function",
    },
    "pypto.backend": {
        "tilelet.compat.chip": "Backend910B",
        "tilelet.compat.surface": (
            "BackendType get_backend_type is_backend_configured reset_for_testing set_backend_type"
        ),
    },
    "pypto.backend.pto_backend": {"tilelet.compat.surface": "PartialCodegenError"},
    "pypto.ir": {
        "tilelet.compat.surface": (
            "compile python_print serialize deserialize CodegenBackend OptimizationStrategy"
            " PassManager"
        ),
        "tilelet.runtime": "CompiledProgram",
        "tilelet.compat.building": "Program Span",
        "tilelet.ir.core": "Function",
        "tilelet.language": "FunctionType",
    },
    "pypto.ir.distributed_compiled_program": {
        "tilelet.ranks.config": "DistributedConfig",
        "tilelet.compat.ranks": "DistributedCompiledProgram",
    },
    "pypto.ir.pass_manager": _PASS_MANAGER,
    "pypto.ir.printer": {"tilelet.compat.surface": "python_print"},
    "pypto.ir.compiled_program": {"tilelet.runtime": "CompiledProgram"},
    "pypto.jit": {"tilelet.language": "jit"},
    "golden": {"tilelet.runtime": " ".join(_GOLDEN)},
    "golden.runner": _GOLDEN_RUNNER,
    "golden.spec": _SPECS,
    "golden.tensor_spec": _SPECS,
    "golden.validation": _VALIDATION,
}

ROOTS = ("pypto", "golden")


def names_of(module: str) -> list[str]:
    """Return the names in an alias module, for suggestions."""
    contents = NAMESPACES.get(module, {})
    parts = [n.rpartition(".") for n in (*NAMESPACES, *REAL)]
    children = [name for parent, _, name in parts if parent == module]
    return sorted({*children, *" ".join(contents.values()).split()})


class AliasFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of the chosen roots."""

    def __init__(
        self,
        roots: Sequence[str],
        on_import: Callable[[str], None],
        absent: Callable[[str], object] | None = None,
    ) -> None:
        """`on_import` is called with the name of a root when a script first imports it.

        absent: creates placeholders for names that Tilelet lacks; None: importing them fails
        """
        self._roots = tuple(roots)
        self._on_import = on_import
        self._absent = absent

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: types.ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self._roots:
            return None
        if fullname in self._roots:
            self._on_import(fullname)
        if fullname not in NAMESPACES and not _real_name(fullname) and self._absent is None:
            # Not None: Python would search the folders of the aliased module.
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        has_children = any(n.startswith(f"{fullname}.") for n in (*NAMESPACES, *REAL))
        is_package = has_children or self._absent is not None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=is_package)

    def exec_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        real = _real_name(name)
        if real:
            # The import system uses the entry of `sys.modules` when this returns.
            sys.modules[name] = importlib.import_module(real)
            return
        module.__doc__ = f"Tilelet's stand-in for `{name}`."
        if name == "golden":
            module.__dict__["__all__"] = names_of(name)
        module.__dict__["__getattr__"] = _lookup(name, self._absent)


def _real_name(alias: str) -> str | None:
    """Return the module of an alias (`pypto.language.types`: `tilelet.syntax.types`), or None."""
    for prefix, real in REAL.items():
        if alias == prefix or alias.startswith(f"{prefix}."):
            name = real + alias.removeprefix(prefix)
            return name if importlib.util.find_spec(name) else None
    return None


def _lookup(module: str, absent: Callable[[str], object] | None = None) -> Callable[[str], object]:
    """Return a module `__getattr__` that imports names on first use."""
    contents = NAMESPACES.get(module, {})
    homes = {name: home for home, names in contents.items() for name in names.split()}

    def find(name: str) -> object:
        if name in homes:
            value = getattr(importlib.import_module(homes[name]), name)
        elif f"{module}.{name}" in NAMESPACES or f"{module}.{name}" in REAL:
            value = importlib.import_module(f"{module}.{name}")
        elif absent is not None and not name.startswith("__"):
            value = absent(f"{module}.{name}")
        else:
            found = sys.modules[module]
            text = f"module {module!r} has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=found)
        setattr(sys.modules[module], name, value)
        return value

    return find


def install(
    roots: Sequence[str] = ROOTS,
    on_import: Callable[[str], None] = lambda _: None,
    absent: Callable[[str], object] | None = None,
) -> None:
    """Alias `roots` (`pypto`, `golden`) to Tilelet's modules; see `AliasFinder`."""
    if any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        return
    foreign = [root for root in roots if root in sys.modules and not is_alias(root)]
    if foreign:
        raise ImportError(f"another `{foreign[0]}` is already imported in this process")
    sys.meta_path.insert(0, AliasFinder(roots, on_import, absent))


def uninstall() -> None:
    """Undo `install`, for several scripts in one process."""
    sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, AliasFinder)]
    for name in [n for n in sys.modules if is_alias(n) or _is_real_alias(n)]:
        del sys.modules[name]


def is_alias(module: str) -> bool:
    """Whether a loaded module is an alias."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return isinstance(getattr(spec, "loader", None), AliasFinder)


def _is_real_alias(module: str) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in REAL)


def find_other(root: str) -> str | None:
    """Return the location of a real package `root` on Python's path, or None."""
    spec = importlib.machinery.PathFinder.find_spec(root, sys.path)
    if spec is None:
        return None
    if spec.origin:
        return spec.origin
    # A folder without `__init__.py` is a package only if it contains code.
    for place in spec.submodule_search_locations or ():
        if any(Path(place).glob("*.py")):
            return place
    return None
