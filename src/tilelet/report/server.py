"""`tilelet view`: serve the page on 127.0.0.1 and update it when the script is saved.

Only this machine can connect, on a port that the system chooses, and only with the token in the
printed address. The `Host` header is checked to prevent DNS rebinding.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.page import CannotServe
from tilelet.diag.json_types import JsonObject

HOST = "127.0.0.1"
MAX_MESSAGE = 20_000
MAX_CONNECTIONS = 32
SECONDS = 10.0
"""Time limit of a request; then its connection is closed."""


@dataclass
class ServedPage:
    """The served contents; another thread replaces them by `renew`.

    page, trace  created on request
    state        a few words for the page's corner
    message      output of the script if it failed
    asked        set when the page requests a new run
    """

    page: Callable[[], str]
    trace: Callable[[], str]
    state: str = "live"
    message: str = ""
    perfetto: str = ""
    version: int = 1
    asked: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def renew(self, page: Callable[[], str], trace: Callable[[], str]) -> None:
        with self.lock:
            self.page, self.trace, self.state, self.message = page, trace, "live", ""
            self.version += 1

    def say(self, state: str) -> None:
        with self.lock:
            self.state = state

    def fail(self, message: str) -> None:
        with self.lock:
            self.state, self.message = "the script fails", message[-MAX_MESSAGE:]


class PageServer(ThreadingHTTPServer):
    """Serves one page to clients with its token."""

    daemon_threads = True

    def __init__(self, shown: ServedPage, token: str | None = None) -> None:
        self.shown = shown
        self.token = token or secrets.token_urlsafe(24)
        try:
            super().__init__((HOST, 0), _Handler)
        except OSError as error:
            raise CannotServe(error.strerror or str(error)) from None
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a request in its own thread, for at most `SECONDS`, up to `MAX_CONNECTIONS`."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # A socket timeout would restart with every byte.
        late = threading.Timer(SECONDS, _hang_up, (request,))
        late.daemon = True
        late.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            late.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore closed connections."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/?token={self.token}"


def _hang_up(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server_version = "tilelet"
    sys_version = ""

    @property
    def pages(self) -> PageServer:
        assert isinstance(self.server, PageServer)
        return self.server

    def do_GET(self) -> None:
        self._checked(self._serve)

    def do_POST(self) -> None:
        self._checked(self._accept)

    def _checked(self, serve: Callable[[str], None]) -> None:
        """Serve a path, if the request is from this machine and has the token."""
        try:
            asked = urlsplit(self.path)
            token = parse_qs(asked.query).get("token", [""])[0]
        except ValueError:
            self._answer(400, "text/plain", "this is not an address")
            return
        if self.headers.get("Host") not in self._hosts():
            self._answer(403, "text/plain", "this address has another name")
        elif not hmac.compare_digest(token.encode(), self.pages.token.encode()):
            self._answer(403, "text/plain", "use the whole address that `tilelet view` printed")
        else:
            serve(asked.path)

    def _accept(self, path: str) -> None:
        if path == "/again":
            self.pages.shown.asked.set()
            self._answer(200, "text/plain", "profiling again")
        else:
            self._answer(404, "text/plain", "there is one page here")

    def _hosts(self) -> tuple[str, ...]:
        port = self.pages.port
        return f"{HOST}:{port}", f"localhost:{port}"

    def _serve(self, path: str) -> None:
        shown = self.pages.shown
        with shown.lock:
            page, trace, version = shown.page, shown.trace, shown.version
            state: JsonObject = {
                "version": str(version),
                "state": shown.state,
                "message": shown.message,
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

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: a page that polls every second would fill the terminal."""
