"""The server: documents, one analysis at a time, and the requests of an editor."""

from __future__ import annotations

import asyncio
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
from tilelet.lsp.analysis import Analysis, Analyzer, StoppedError

_DELAY = 0.03
"""Seconds without a change before a text is analysed."""
_SWITCH_INTERVAL = 0.0005
"""Seconds after which the analysis yields to requests, which wait for its thread."""
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

    def _start(self, uri: str, version: int, loop: asyncio.AbstractEventLoop) -> None:
        document = self.documents.get(uri)
        path = to_fs_path(uri)
        if document is None or document.version != version or path is None:
            return
        text = self.workspace.get_text_document(uri).source
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
            except StoppedError:
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

    def ask(self, uri: str, answer: Callable[[Analysis], A], otherwise: A) -> A:
        """Answer from the last analysis of a file; `otherwise` if there is none yet."""
        document = self.documents.get(uri)
        return answer(document.latest) if document and document.latest else otherwise


def make_server() -> Server:
    """Return a server with all requests that it answers."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    server = Server()
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

    @feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        at = params.position
        return server.ask(params.text_document.uri, lambda a: features.hover(a, at), None)

    @feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    def lenses(params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        return server.ask(params.text_document.uri, features.code_lenses, [])

    @feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    def hints(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        wanted = params.range
        uri = params.text_document.uri
        return server.ask(uri, lambda a: features.inlay_hints(a, wanted), [])

    @feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["."]))
    def complete(params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        text = server.workspace.get_text_document(params.text_document.uri).source
        return features.completion(text, params.position)

    @feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def define(params: lsp.DefinitionParams) -> lsp.Location | None:
        at = params.position
        return server.ask(params.text_document.uri, lambda a: features.definition(a, at), None)

    @feature(lsp.TEXT_DOCUMENT_CODE_ACTION)
    def actions(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri, wanted = params.text_document.uri, params.range
        return server.ask(uri, lambda a: list(features.code_actions(a, wanted, uri)), [])

    @server.command(features.OPEN_PAGE)
    async def open_page(uri: str, line: int) -> str | None:
        found = server.ask(uri, lambda a: features.page_of(a, line + 1), None)
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

    return server


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
