"""A Chromium for the tests of the page: the installed one, or the reason why there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SIZE = {"width": 1440, "height": 900}


def find_browser() -> str | None:
    """`TILELET_CHROMIUM`, else the first of the usual names on the path."""
    return os.environ.get("TILELET_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def install_browser() -> str | None:
    """Install Debian's package, if this user may; return None otherwise."""
    if os.environ.get("TILELET_NO_INSTALL") or not shutil.which("apt-get") or os.geteuid() != 0:
        return None
    command = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
    try:
        subprocess.run(command, capture_output=True, check=False, timeout=300)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return find_browser()


def no_browser() -> str:
    """Return why there is no browser, or ""."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "no playwright here: pip install playwright"
    if find_browser() or install_browser():
        return ""
    return "no Chromium here: install the package `chromium`, or set TILELET_CHROMIUM"


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


class Watched:
    """A page of the browser that records its messages and requests."""

    def __init__(self, browser: Any, **settings: Any) -> None:
        self.context = browser.new_context(viewport=SIZE, **settings)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda m: self.said.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.said.append(f"error: {e}"))
        self.page.on("request", lambda r: self.asked.append(r.url))

    def open(self, file: Path, hash_: str = "") -> Watched:
        self.page.goto(f"{file.resolve().as_uri()}{hash_}")
        self.page.wait_for_selector("body[data-ready]", timeout=120_000)
        return self

    def view(self, name: str) -> None:
        self.page.click(f"nav button[data-view={name}]")

    def choice(self) -> dict[str, Any]:
        return self.page.evaluate("() => window.tileletPage.state.choice")

    def details(self) -> str:
        return self.page.inner_text(".details")

    def close(self) -> None:
        self.context.close()
