"""The cache runs nothing that another user could have put there."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tilelet.native import cache, private
from tilelet.native.toolchain import find_compiler

MARK = "mark.txt"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache, which is trusted."""
    monkeypatch.setenv("TILELET_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TILELET_NO_CACHE", raising=False)
    return private.make_folder(tmp_path / "cache" / "cpu")


def build(folder: Path) -> None:
    (folder / MARK).write_text("ours")


def text_of(entry: cache.Entry) -> str:
    return private.contents(entry.files[MARK]).decode()


def used(key: str = "k" * 40) -> str:
    return cache.use(key, build, text_of)


def never(_: Path) -> None:
    raise AssertionError("it is in the cache")


def refused(path: Path) -> str:
    """Return why a folder is not trusted; nothing about the folder may have changed."""
    before = path.lstat()
    with pytest.raises(private.NotPrivateError) as caught:
        private.make_folder(path)
    assert path.lstat().st_mode == before.st_mode
    assert cache.cache_root() is None
    assert used() == "ours"
    assert not (path / ("k" * 40)).exists()
    return str(caught.value)


def test_what_is_made_is_private_whatever_the_mask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        made = private.make_folder(tmp_path / "a" / "b" / "c")
        private.key_of(made)
    finally:
        os.umask(old)
    for folder in (made, made.parent, made.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((made / private.KEY).stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722, 0o1777])
def test_a_folder_that_others_may_write_to(
    root: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "_is_for_one", lambda _: False)
    root.chmod(mode)
    assert "others may write" in refused(root)


@pytest.mark.parametrize("depth", [0, 1])
def test_a_parent_that_others_may_write_to(root: Path, depth: int) -> None:
    root.parents[depth].chmod(0o777)
    assert str(root.parents[depth]) in refused(root)


def test_a_parent_where_only_owners_may_move_things(root: Path) -> None:
    root.parent.chmod(0o1777)
    assert private.make_folder(root) == root


def test_a_folder_of_somebody_else(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    with pytest.raises(private.NotPrivateError, match="another user"):
        private.make_folder(root)


def test_a_parent_of_somebody_else(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lstat = Path.lstat

    def strange(path: Path) -> os.stat_result:
        found = lstat(path)
        if path != root.parent:
            return found
        return os.stat_result((*found[:4], 4711, *found[5:]))

    monkeypatch.setattr(Path, "lstat", strange)
    with pytest.raises(private.NotPrivateError, match="another user"):
        private.make_folder(root)


def test_a_folder_that_is_a_link(root: Path) -> None:
    elsewhere = root.with_name("elsewhere")
    root.rename(elsewhere)
    root.symlink_to(elsewhere)
    assert "symbolic link" in refused(root)


def test_a_link_above_is_followed_to_what_it_means(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("cache")
    assert private.make_folder(link / "cpu") == link / "cpu"
    root.parent.chmod(0o777)
    with pytest.raises(private.NotPrivateError, match="others may write"):
        private.make_folder(link / "cpu")


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="a"):
        private.make_folder(tmp_path / "a" / "cache")


def test_the_group_of_one_user_is_no_other(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some systems give every user a group, and new folders to the group."""
    import grp
    import pwd

    name = pwd.getpwuid(os.getuid()).pw_name
    user = pwd.struct_passwd((name, "", os.getuid(), root.stat().st_gid, "", "/", ""))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user)
    for members, trusted in (([], True), ([name], True), (["mallory"], False)):
        group = grp.struct_group((name, "", root.stat().st_gid, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, g=group: g)
        root.chmod(0o770)
        if trusted:
            private.make_folder(root)
        else:
            assert "others may write" in refused(root)


# Entries


def test_an_entry_is_found_again(root: Path) -> None:
    assert used() == "ours"
    assert cache.use("k" * 40, never, text_of) == "ours"
    assert (root / ("k" * 40) / cache.SEAL).exists()


def entry_of(root: Path) -> Path:
    assert used() == "ours"
    return root / ("k" * 40)


def changed(entry: Path) -> None:
    (entry / MARK).write_text("theirs")


def added(entry: Path) -> None:
    (entry / "more").write_text("theirs")


def writable(entry: Path) -> None:
    (entry / MARK).chmod(0o666)


def linked(entry: Path) -> None:
    (entry / MARK).rename(entry.parent / "elsewhere")
    (entry / MARK).symlink_to(entry.parent / "elsewhere")


def a_pipe(entry: Path) -> None:
    (entry / MARK).unlink()
    os.mkfifo(entry / MARK)


def a_seal_that_is_a_pipe(entry: Path) -> None:
    (entry / cache.SEAL).unlink()
    os.mkfifo(entry / cache.SEAL)


def a_pipe_instead(entry: Path) -> None:
    shutil.rmtree(entry)
    os.mkfifo(entry)


def a_link_instead(entry: Path) -> None:
    entry.rename(entry.with_name("elsewhere"))
    entry.symlink_to(entry.with_name("elsewhere"))


def another_key(entry: Path) -> None:
    (entry.parent / private.KEY).unlink()


def half_a_key(entry: Path) -> None:
    (entry.parent / private.KEY).write_bytes(b"12")


@pytest.mark.parametrize(
    "damage",
    [
        *(changed, added, writable, linked, a_pipe, a_seal_that_is_a_pipe, a_pipe_instead),
        *(a_link_instead, another_key, half_a_key),
    ],
)
def test_an_entry_that_is_not_as_it_was_made_is_built_again(root: Path, damage: object) -> None:
    damage(entry_of(root))  # type: ignore[operator]
    assert used() == "ours"
    assert cache.use("k" * 40, never, text_of) == "ours"


def test_an_entry_under_another_name(root: Path) -> None:
    """Both entries belong to this user, but the library is that of another program."""
    shutil.copytree(entry_of(root), root / ("j" * 40))
    with pytest.raises(AssertionError, match="in the cache"):
        cache.use("j" * 40, never, text_of)


def test_what_was_checked_is_what_is_used(root: Path) -> None:
    entry = entry_of(root)

    def late(found: cache.Entry) -> str:
        shutil.rmtree(entry)
        entry.mkdir()
        (entry / MARK).write_text("theirs")
        return text_of(found)

    assert cache.use("k" * 40, never, late) == "ours"


def test_without_the_secret_nobody_makes_a_seal(root: Path) -> None:
    entry = entry_of(root)
    changed(entry)
    with cache._open_files(entry) as found:
        (entry / cache.SEAL).write_text(cache._digest(found, b"guessed", entry.name))
    assert used() == "ours"


# Libraries


def library(number: int) -> cache.Build:
    def compile_it(folder: Path) -> None:
        source = folder / "n.c"
        source.write_text(f"int number(void) {{ return {number}; }}")
        command = [*find_compiler().command, "-shared", "-fPIC", str(source), "-o"]
        subprocess.run([*command, str(folder / "n.so")], check=True)

    return compile_it


def test_each_load_is_a_library_of_its_own(root: Path) -> None:
    """Descriptor numbers are reused, and the loader compares paths."""
    loaded: list[ctypes.CDLL] = [
        cache.use(f"{i}" * 40, library(i), lambda made: made.load("n.so", "number"))
        for i in range(4)
    ]
    assert [found.number() for found in loaded] == [0, 1, 2, 3]
    assert len(list(root.glob("*/n.so"))) == 4


@pytest.mark.parametrize("lasting", [True, False])
def test_a_system_without_names_of_descriptors(
    root: Path, lasting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not lasting:
        monkeypatch.setattr(cache, "_DESCRIPTORS", root / "missing")
    found = cache.use("1" * 40, library(7), lambda made: made.load("n.so", lasting=lasting))
    assert found.number() == 7
    assert Path(found._name).exists()


@pytest.mark.parametrize("garbage", [b"", b"\0" * 4096, b"\x7fELF but not much more"])
def test_a_library_that_loads_as_garbage_is_built_again(root: Path, garbage: bytes) -> None:
    def broken(folder: Path) -> None:
        (folder / "n.so").write_bytes(garbage)

    key = "1" * 40
    with pytest.raises(cache.UnusableError):
        cache.use(key, broken, lambda made: made.load("n.so"))
    assert (root / key).exists()
    assert cache.use(key, library(5), lambda made: made.load("n.so")).number() == 5


def test_a_library_of_another_program_is_built_again(root: Path) -> None:
    key = "1" * 40
    cache.use(key, library(1), lambda made: made.load("n.so"))
    with pytest.raises(cache.UnusableError, match="no `other`"):
        cache.use(key, library(2), lambda made: made.load("n.so", "other"))


@pytest.mark.parametrize("text", ["9" * 5000, "²", "-1", "1e3", "", "٣"])
def test_caps_of_any_kind(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_CACHE_MB", text)
    assert cache.size_cap() >= cache.DEFAULT_CAP
