"""Pages: `--html` of several commands, and `tilelet report`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tilelet.cli.options import DeviceOptions, PageOptions
from tilelet.diag.files import write_text
from tilelet.diag.text import escape_controls
from tilelet.runtime.output.run_directory import build_root
from tilelet.runtime.progress import progress
from tilelet.scripts import exit_codes

PAGE = ("report", "page.html")


def wants_page(options: DeviceOptions) -> bool:
    return options.html is not None or options.open


def write_page(options: DeviceOptions, title: str, make: Callable[[], bytes]) -> None:
    """Write the requested page to the named file or under `build_output`."""
    from tilelet.report.html import page_html

    with progress("making the page"):
        text = page_html(title, make())
    target = options.html or (options.build_dir or build_root()) / "page.html"
    save_page(text, target, show=options.open)


def save_page(text: str, target: Path, *, show: bool) -> None:
    write_text(target, text)
    print(escape_controls(f"note: page in {target}"), file=sys.stderr)
    if show:
        open_address(target.resolve().as_uri(), str(target))


def open_address(address: str, name: str) -> None:
    """Open an address in the user's browser; without one, print it."""
    import webbrowser

    try:
        opened = webbrowser.open(address)
    except webbrowser.Error:
        opened = False
    if not opened:
        print(escape_controls(f"note: no browser here: open {name} yourself"), file=sys.stderr)


# report


def report_command(options: PageOptions) -> int:
    """Write the page of a run directory."""
    from tilelet.report.html import page_html
    from tilelet.report.run_directory import read_data

    directory = Path(options.directory)
    with progress("making the page"):
        text = page_html(directory.name or "run", read_data(directory))
    save_page(text, options.html or directory.joinpath(*PAGE), show=options.open)
    return exit_codes.PASSED
