"""The stand-ins offer the names scripts of all eras import, and only when asked to."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import pytest

from tilelet import dtypes
from tilelet.compat import aliases, chip
from tilelet.compat.aliases import NAMESPACES, REAL


@pytest.fixture
def installed() -> Iterator[None]:
    aliases.install()
    yield
    aliases.uninstall()


def test_nothing_is_there_without_installing() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("pypto")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "module", sorted(n for n in NAMESPACES if n.split(".")[0] in aliases.ROOTS)
)
def test_every_promised_name_exists(module: str) -> None:
    found = importlib.import_module(module)
    for names in NAMESPACES[module].values():
        for name in names.split():
            assert getattr(found, name) is not None


@pytest.mark.usefixtures("installed")
def test_an_alias_of_a_module_is_that_module() -> None:
    import tilelet.language

    name = tilelet.language.__spec__.name  # type: ignore[union-attr]
    assert importlib.import_module("pypto.language") is tilelet.language
    assert tilelet.language.__spec__.name == name == REAL["pypto.language"]  # type: ignore[union-attr]


@pytest.mark.usefixtures("installed")
def test_modules_inside_an_aliased_module_are_not_loaded_twice() -> None:
    import tilelet.language.tile

    assert importlib.import_module("pypto.language.tile") is tilelet.language.tile
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("pypto.language.nothing")
    assert caught.value.name == "pypto.language.nothing"


@pytest.mark.usefixtures("installed")
def test_submodules_are_reached_as_attributes() -> None:
    pypto = importlib.import_module("pypto")
    assert pypto.ir.pass_manager.OptimizationStrategy.Default.name == "Default"
    assert pypto.ir.CodegenBackend.CCE is pypto.backend.BackendType.Ascend910B
    assert pypto.DataType.BF16 is dtypes.BF16
    assert not hasattr(pypto, "nothing")
    with pytest.raises(AttributeError):
        _ = pypto.DataType.FP13


@pytest.mark.usefixtures("installed")
def test_a_star_import_of_golden() -> None:
    names: dict[str, object] = {}
    exec("from golden import *", names)
    assert {"TensorSpec", "run", "run_jit", "ratio_allclose"} <= set(names)


@pytest.mark.usefixtures("installed")
def test_backend_state() -> None:
    backend = importlib.import_module("pypto.backend")
    backend.reset_for_testing()
    assert not backend.is_backend_configured()
    backend.set_backend_type(backend.BackendType.Ascend950)
    assert backend.get_backend_type() is backend.BackendType.Ascend950
    backend.reset_for_testing()


def test_installing_over_a_foreign_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "golden", importlib.import_module("json"))
    with pytest.raises(ImportError, match="another `golden` is already imported"):
        aliases.install()


def test_importing_the_shim_installs() -> None:
    sys.modules.pop("tilelet.compat.pypto", None)
    importlib.import_module("tilelet.compat.pypto")
    try:
        assert importlib.import_module("golden").TensorSpec.__name__ == "TensorSpec"
    finally:
        aliases.uninstall()


def test_scripts_may_count_the_cores_of_a_chip() -> None:
    found = dict.fromkeys(chip.CoreType, 0)
    for die, dies in chip.Backend910B.instance().soc.die_counts.items():
        for cluster, clusters in die.cluster_counts.items():
            for core, cores in cluster.core_counts.items():
                found[core.core_type] += dies * clusters * cores
    assert found == {chip.CoreType.CUBE: 24, chip.CoreType.VECTOR: 48}
