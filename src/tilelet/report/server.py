"""`tilelet view`: the page on 127.0.0.1, made again when the script is saved.

Only this machine can ask, on a port that the system chooses, and only whoever has the token of the
address that was printed. The `Host` header is checked, so that no other site's name can stand for
this address in the user's browser.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tilelet.diag.catalogue.page import CannotServe

HOST = "127.0.0.1"


@dataclass
class Shown:
    """What is served; a thread that has something newer changes it by `renew`.

    page, trace  made when they are asked for
    state        a few words for the page's corner
    """

    page: Callable[[], str]
    trace: Callable[[], str]
    state: str = "live"
    perfetto: str = ""
    version: int = 1
    lock: threading.Lock = field(default_factory=threading.Lock)

    def renew(self, page: Callable[[], str], trace: Callable[[], str]) -> None:
        with self.lock:
            self.page, self.trace, self.state = page, trace, "live"
            self.version += 1

    def say(self, state: str) -> None:
        with self.lock:
            self.state = state


class PageServer(ThreadingHTTPServer):
    """Serves one page to whoever knows its token."""

    daemon_threads = True

    def __init__(self, shown: Shown, token: str | None = None) -> None:
        self.shown = shown
        self.token = token or secrets.token_urlsafe(24)
        try:
            super().__init__((HOST, 0), _Handler)
        except OSError as error:
            raise CannotServe(error.strerror or str(error)) from None

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/?token={self.token}"


class _Handler(BaseHTTPRequestHandler):
    server_version = "tilelet"
    sys_version = ""

    @property
    def pages(self) -> PageServer:
        assert isinstance(self.server, PageServer)
        return self.server

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        token = parse_qs(asked.query).get("token", [""])[0]
        if self.headers.get("Host") not in self._hosts():
            self._answer(403, "text/plain", "this address has another name")
        elif not hmac.compare_digest(token.encode(), self.pages.token.encode()):
            self._answer(403, "text/plain", "use the whole address that `tilelet view` printed")
        else:
            self._serve(asked.path)

    def _hosts(self) -> tuple[str, ...]:
        port = self.pages.port
        return f"{HOST}:{port}", f"localhost:{port}"

    def _serve(self, path: str) -> None:
        shown = self.pages.shown
        with shown.lock:
            page, trace, version = shown.page, shown.trace, shown.version
            state: dict[str, Any] = {
                "version": str(version),
                "state": shown.state,
                "perfetto": shown.perfetto,
            }
        if path == "/":
            self._answer(200, "text/html; charset=utf-8", page())
        elif path == "/state":
            self._answer(200, "application/json", json.dumps(state))
        elif path == "/trace":
            self._answer(200, "application/json", trace())
        else:
            self._answer(404, "text/plain", "there is one page here")

    def _answer(self, code: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Quiet: a page that asks every second would fill the terminal."""
