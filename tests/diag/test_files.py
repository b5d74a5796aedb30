"""Scripts are rewritten in their own encoding, or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tilelet.diag.catalogue.command import CannotWrite
from tilelet.diag.files import read_script, rewrite_script

LATIN = "# -*- coding: latin-1 -*-\n# caf\u00e9\nTILE = 16\n"


@pytest.mark.parametrize(
    ("text", "encoding", "newline"),
    [
        (LATIN, "latin-1", "\n"),
        (LATIN, "latin-1", "\r\n"),
        ("# caf\u00e9\nTILE = 16\n", "utf-8-sig", "\r\n"),
        ("# caf\u00e9\nTILE = 16\n", "utf-8", "\n"),
    ],
)
def test_encoding_line_ends_and_mode_stay(
    tmp_path: Path, text: str, encoding: str, newline: str
) -> None:
    path, link = tmp_path / "k.py", tmp_path / "link.py"
    path.write_text(text, encoding=encoding, newline=newline)
    path.chmod(0o750)
    link.symlink_to(path)
    assert read_script(link) == text
    before = path.read_bytes()
    rewrite_script(link, text.replace("16", "32"))
    assert path.read_bytes() == before.replace(b"16", b"32")
    assert path.stat().st_mode & 0o777 == 0o750
    assert link.is_symlink()


def test_a_full_disk_leaves_the_script_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "k.py"
    path.write_text(LATIN, encoding="latin-1")

    def full(self: Path, *_: object, **__: object) -> None:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(CannotWrite, match="No space left"):
            rewrite_script(path, "TILE = 32")
    assert read_script(path) == LATIN
    assert list(tmp_path.iterdir()) == [path]
