"""The file itself: no external resources, and no markup from the user's data."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

from tests.device.recording import elementwise
from tests.report.runs import device_run

from tilelet.report.document import profile_document
from tilelet.report.html import asset, page_html

NASTY = "</title></script><script>alert(1)</script><img src=x onerror=alert(2)>"


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.policy = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"] or ""


def test_markup_in_names_is_text() -> None:
    data = profile_document([device_run(elementwise(), name=NASTY)])
    page = Elements()
    page.feed(page_html(NASTY, data))
    assert page.tags.count("script") == 2
    assert "img" not in page.tags


def test_the_policy_allows_our_script_and_no_connection() -> None:
    page = Elements()
    page.feed(page_html("x", b"TLPAGE01"))
    digest = base64.b64encode(hashlib.sha256(asset("page.js").encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.policy
    assert "default-src 'none'" in page.policy
    assert "connect-src 'none'" in page.policy
    served = Elements()
    served.feed(page_html("x", b"TLPAGE01", served=True))
    assert "connect-src 'self'" in served.policy


def test_the_assets_name_no_address() -> None:
    for name in ("page.js", "page.css"):
        found = re.findall(r"https?://[^\s\"'`)]+", asset(name))
        assert set(found) <= {"http://www.w3.org/2000/svg"}
        assert "</script" not in asset(name).lower()
        assert "innerHTML" not in asset(name)
