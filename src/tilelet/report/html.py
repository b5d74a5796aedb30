"""The page: one HTML file with data, script and style, without external resources."""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from pathlib import Path

ASSETS = Path(__file__).parent / "page"


@cache
def asset(name: str) -> str:
    """Read a file that `web/` builds."""
    return (ASSETS / name).read_text(encoding="utf-8")


def _policy(script: str, connect: str) -> str:
    """Return the content security policy: the page's own script, and connections to `connect`."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        f"img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def page_html(title: str, data: bytes, *, served: bool = False) -> str:
    """Return the page of packed data. A served page may request newer data from its server."""
    script = asset("page.js")
    policy = _policy(script, "'self'" if served else "'none'")
    encoded = base64.b64encode(data).decode()
    served_mark = ' data-served="1"' if served else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{html.escape(title)}</title>\n<style>{asset('page.css')}</style>\n</head>\n"
        f'<body{served_mark}>\n<div id="app"><p class="loading">Loading…</p></div>\n'
        "<noscript>This page draws its data by a script of its own; scripts are switched off."
        "</noscript>\n"
        f'<script type="application/octet-stream" id="data">{encoded}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )
