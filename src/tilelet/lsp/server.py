"""The server: documents, one analysis at a time, and the requests of an editor."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from tilelet import __version__
from tilelet.dataclasses import dataclass
from tilelet.diag.json_types import JsonObject
from tilelet.lsp import features
from tilelet.lsp.analysis import Analysis, AnalysisStoppedError, Analyzer

_DELAY = 0.03
"""Seconds without a change before a text is analyzed."""
_SWITCH_INTERVAL = 0.0005
"""Seconds after which the analysis yields to requests, which wait for its thread."""
_IDLE = 1.0
"""Seconds without a change before garbage is collected, during which no request is answered."""
_FULL_COLLECTION = 100
"""Collections of the middle generation before a full one that does not wait for an idle time."""
_SECONDS_FOR_VALUES = 60
A = TypeVar("A")


@dataclass
class _Document:
    """A file that the editor shows: the version of its text, and the last analysis with values."""

    version: int = 0
    latest: Analysis | None = None


class Server(LanguageServer):
    """Answers from the last finished analysis; a change stops the one that is running."""

    def __init__(self) -> None:
        super().__init__("tilelet", __version__)  # pyright: ignore[reportUnknownMemberType]
        self.analyzer = Analyzer()
        self.documents: dict[str, _Document] = {}
        self.pool = ThreadPoolExecutor(1, "analysis")

    def change(self, uri: str) -> None:
        document = self.documents.setdefault(uri, _Document())
        document.version += 1
        version = document.version
        loop = asyncio.get_running_loop()
        loop.call_later(_DELAY, self._start, uri, version, loop)
        loop.call_later(_IDLE, self._collect, uri, version)

    def _collect(self, uri: str, version: int) -> None:
        """Collect garbage after the analysis of a text that nobody has changed since."""
        document = self.documents.get(uri)
        if document is not None and document.version == version:
            self.pool.submit(gc.collect)

    def _start(self, uri: str, version: int, loop: asyncio.AbstractEventLoop) -> None:
        document = self.documents.get(uri)
        path = to_fs_path(uri)
        if document is None or document.version != version or path is None:
            return
        text = self.text(uri)
        others = {
            Path(p): d.source
            for d in self.workspace.text_documents.values()
            if (p := to_fs_path(d.uri)) is not None and d.uri != uri
        }

        def stop() -> bool:
            return document.version != version

        def publish(found: Analysis) -> None:
            loop.call_soon_threadsafe(self._publish, uri, version, found)

        def analyze() -> None:
            try:
                publish(self.analyzer.analyze(text, path, stop, others, publish))
            except AnalysisStoppedError:
                pass
            except Exception:  # a bug: the editor keeps what was known before
                traceback.print_exc(file=sys.stderr)

        self.pool.submit(analyze)

    def _publish(self, uri: str, version: int, found: Analysis) -> None:
        document = self.documents.get(uri)
        if document is None or document.version != version:
            return
        if found.module is not None or document.latest is None:
            document.latest = found
        params = lsp.PublishDiagnosticsParams(uri, features.to_diagnostics(found))
        self.text_document_publish_diagnostics(params)
        for refresh, supported in (
            (self.workspace_code_lens_refresh, "code_lens"),
            (self.workspace_inlay_hint_refresh, "inlay_hint"),
        ):
            workspace = self.client_capabilities.workspace
            wanted = getattr(workspace, supported, None) if workspace else None
            if wanted is not None and wanted.refresh_support:
                refresh(None)

    def stop(self) -> None:
        """Stop the analysis that is running: nobody waits for it."""
        for document in self.documents.values():
            document.version += 1
        self.pool.shutdown(wait=False, cancel_futures=True)

    def ask(self, uri: str, answer: Callable[[Analysis], A]) -> A:
        """Answer from the last analysis of a file; before the first one, from an empty one."""
        document = self.documents.get(uri)
        if document is not None and document.latest is not None:
            return answer(document.latest)
        return answer(Analysis(to_fs_path(uri) or "", self.text(uri)))

    def text(self, uri: str) -> str:
        """Return the text as it stands in the editor."""
        return self.workspace.get_text_document(uri).source


def make_server() -> Server:
    """Return a server with all requests that it answers."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.set_threshold(*gc.get_threshold()[:2], _FULL_COLLECTION)
    server = Server()
    _follow_documents(server)
    _answer_requests(server)
    _offer_commands(server)
    return server


def _follow_documents(server: Server) -> None:
    feature = server.feature

    @feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        server.change(params.text_document.uri)

    @feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        server.change(params.text_document.uri)

    @feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        document = server.documents.pop(params.text_document.uri, None)
        if document is not None:
            document.version += 1
        server.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(params.text_document.uri, [])
        )

    @feature(lsp.SHUTDOWN)
    def shut_down(_: None) -> None:
        server.stop()


def _answer_requests(server: Server) -> None:
    feature = server.feature

    @feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        uri, at = params.text_document.uri, params.position
        return server.ask(uri, lambda a: features.hover(a, server.text(uri), at))

    @feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    def lenses(params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        return server.ask(params.text_document.uri, features.code_lenses)

    @feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    def hints(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        wanted = params.range
        uri = params.text_document.uri
        return server.ask(uri, lambda a: features.inlay_hints(a, wanted))

    @feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["."]))
    def complete(params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        return features.completion(server.text(params.text_document.uri), params.position)

    @feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def define(params: lsp.DefinitionParams) -> lsp.Location | None:
        uri, at = params.text_document.uri, params.position
        return server.ask(uri, lambda a: features.definition(a, server.text(uri), at))

    @feature(lsp.TEXT_DOCUMENT_CODE_ACTION)
    def actions(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri, wanted = params.text_document.uri, params.range
        return server.ask(uri, lambda a: list(features.code_actions(a, wanted, uri)))


def _offer_commands(server: Server) -> None:
    @server.command(features.OPEN_PAGE)
    async def open_page(uri: str, line: int) -> str | None:
        found = server.ask(uri, lambda a: features.page_of(a, line + 1))
        if found is None:
            return None
        text, choice = found
        with tempfile.NamedTemporaryFile(
            "w", suffix=".html", prefix="tilelet-", delete=False, encoding="utf-8"
        ) as page:
            page.write(text)
        address = Path(page.name).as_uri() + choice
        window = server.client_capabilities.window
        if window is not None and window.show_document is not None:
            await server.window_show_document_async(lsp.ShowDocumentParams(address, external=True))
        return address

    @server.command(features.RUN_FOR_VALUES)
    async def run_for_values(uri: str) -> JsonObject:
        path = to_fs_path(uri) or ""
        values = await asyncio.to_thread(values_of_run, path)
        server.analyzer.known[path] = values
        server.change(uri)
        return values


def values_of_run(path: str) -> JsonObject:
    """Execute a script in a process of its own; return the plain values of its module.

    This is the only place where the server lets Python execute a script, and only by command.
    """
    command = [sys.executable, "-m", "tilelet.lsp.values", path]
    try:
        ran = subprocess.run(  # noqa: S603 - the user asked for it
            command, capture_output=True, text=True, timeout=_SECONDS_FOR_VALUES, check=False
        )
        return json.loads(ran.stdout.splitlines()[-1]) if ran.returncode == 0 else {}
    except (subprocess.TimeoutExpired, IndexError, json.JSONDecodeError):
        return {}
