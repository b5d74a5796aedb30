"""The page in a real browser: it loads from a file, requests nothing, and its views are linked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.device.recording import chain, elementwise
from tests.report.browser import Watched, chromium, no_browser
from tests.report.runs import SLOW, device_run
from tests.report.test_run_data import VERDICT

import tilelet.language as pl
from tilelet.cli.main import main
from tilelet.report.columns import repack, unpack
from tilelet.report.document import (
    check_document,
    compare_document,
    numbers_document,
    profile_document,
)
from tilelet.report.html import page_html
from tilelet.report.server import PageServer, ServedPage

REASON = no_browser()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON or "there is one")

VIEWS = ["timeline", "source", "kernels", "memory", "graph", "numbers", "model", "compare"]

# fmt: off
NASTY = "<img src=x onerror=window.hacked=1></script><script>window.hacked=1</script>"
# fmt: on


@pl.program
class TwoStages:
    """Some tasks write what others read."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        x: pl.Tensor[[128, 128], pl.FP32],
        y: pl.Out[pl.Tensor[[128, 128], pl.FP32]],
    ):
        middle = pl.create_tensor([128, 128], dtype=pl.FP32)
        for i in pl.parallel(8):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="stage_one"):
                middle = pl.assemble(
                    middle, pl.exp(pl.slice(x, [16, 128], [i * 16, 0])), [i * 16, 0]
                )
        for j in pl.parallel(8):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="stage_two"):
                part = pl.slice(middle, [16, 128], [j * 16, 0])  # <b>markup</b> in a comment
                y = pl.assemble(y, pl.mul(part, part), [j * 16, 0])
        return y


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All pages of these tests."""
    run = device_run(TwoStages, name=NASTY)
    plain = profile_document([run])
    numbers = {
        "outputs": [
            {
                "name": NASTY,
                "ok": False,
                "total": 16,
                "mismatched": 4,
                "map": {"rows": 2, "columns": 2, "cells": [0, 1, 0, 0]},
                "histogram": {"first": -1, "counts": [12, 0, 4]},
                "regions": [{"text": "rows 0:1", "place": [0, 40], "task": 1}],
            }
        ]
    }
    header, columns = unpack(plain)
    documents = {
        "profile": plain,
        "numbers": repack({**header, "numbers": numbers}, columns),
        "failed": numbers_document("failed", numbers),
        "compare": compare_document([device_run(chain(8)), device_run(chain(4))]),
        "saved": compare_document([device_run(chain(8)).profile, device_run(chain(4)).profile]),
        "check": check_document([(run, VERDICT)]),
        "damaged": plain[: len(plain) // 2],
        "old": b"TLPAGE00" + plain[8:],
        "strange": repack({**header, "runs": [{"name": "no profile"}]}, columns),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, data in documents.items():
        (folder / f"{name}.html").write_text(page_html(NASTY, data))
    return {name: folder / f"{name}.html" for name in documents}


@pytest.fixture(scope="module")
def watched(browser: Any, files: dict[str, Path]) -> Iterator[Watched]:
    found = Watched(browser).open(files["profile"])
    yield found
    found.close()


@pytest.fixture(autouse=True)
def fresh(request: pytest.FixtureRequest) -> None:
    """Every test begins with the timeline and no selection."""
    if "watched" in request.fixturenames:
        page = request.getfixturevalue("watched").page
        page.evaluate("() => window.tileletPage.state.set({view: 'timeline'})")
        page.evaluate("() => window.tileletPage.state.clear()")
        page.evaluate("() => document.activeElement.blur()")


def test_it_loads_from_a_file_and_asks_for_nothing(watched: Watched) -> None:
    for view in ("source", "kernels", "memory", "graph", "numbers", "model", "compare"):
        watched.view(view)
    assert watched.said == []
    assert [url.partition("#")[0] for url in watched.asked] == [watched.page.url.partition("#")[0]]


def test_it_cannot_reach_the_network(browser: Any, files: dict[str, Path]) -> None:
    found = Watched(browser).open(files["profile"])
    blocked = found.page.evaluate(
        "() => fetch('http://127.0.0.1:9/').then(() => 'reached', (e) => String(e))"
    )
    assert "reached" not in blocked
    assert any("Content Security Policy" in text for text in found.said)
    added = found.page.evaluate(
        """() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 2';
        document.body.append(s); return window.hacked ?? null; }"""
    )
    assert added is None
    found.close()


def test_markup_is_text(watched: Watched) -> None:
    watched.page.keyboard.press("2")
    assert "<b>markup</b>" in watched.page.inner_text("table.code")
    assert NASTY[:20] in watched.page.inner_text("header")
    assert watched.page.evaluate("() => window.hacked ?? null") is None
    assert watched.page.query_selector("main img, header img, main b b") is None


def test_a_click_on_a_bar_chooses_its_task(watched: Watched) -> None:
    place = watched.page.evaluate(
        """() => { const { timeline, state } = window.tileletPage, run = state.run;
        timeline.fit(); timeline.layout();
        const record = run.records(9)[0], box = timeline.canvas.getBoundingClientRect();
        return [box.x + timeline.x((run.start[record] + run.end[record]) / 2),
                box.y + timeline.center(record)]; }"""
    )
    watched.page.mouse.click(*place)
    assert watched.choice()["task"] == 9
    assert "Task 9" in watched.details()
    assert "stage_two" in watched.details()
    assert "waiting for task " in watched.details()
    assert "Waits for (8)" in watched.details()


def test_from_a_task_to_its_line_and_back(watched: Watched) -> None:
    watched.page.evaluate("() => window.tileletPage.state.chooseTask(3)")
    watched.page.click(".details dd button.link >> nth=1")
    assert watched.choice()["view"] == "source"
    row = watched.page.locator("table.code tr.chosen")
    assert 'name_hint="stage_one"' in row.inner_text()
    other = watched.page.locator("table.code tr[tabindex]", has_text='name_hint="stage_two"')
    other.click()
    assert watched.choice()["task"] is None
    kernel = watched.choice()["kernel"]
    name = watched.page.evaluate("(k) => window.tileletPage.state.run.kernels[k].name", kernel)
    assert "stage_two" in name
    watched.view("timeline")
    shown = watched.page.evaluate("() => [...window.tileletPage.timeline.filter]")
    assert shown == [0] * 8 + [1] * 8


def test_from_a_kernel_to_its_lines(watched: Watched) -> None:
    watched.view("kernels")
    watched.page.click("table.data tr:has-text('stage_one')")
    assert "stage_one" in watched.details()
    assert watched.page.locator("tr.chosen").count() == 1
    watched.view("source")
    inside = watched.page.locator("table.code tr.inside")
    assert "pl.exp" in " ".join(inside.all_inner_texts())


def test_from_a_tensor_to_its_tasks(watched: Watched) -> None:
    watched.view("memory")
    watched.page.click("table.data tr:has-text('middle')")
    assert "reads" in watched.details()
    watched.view("timeline")
    assert sum(watched.page.evaluate("() => [...window.tileletPage.timeline.filter]")) == 16


def test_zoom_to_a_single_task(watched: Watched) -> None:
    page = watched.page
    page.keyboard.press("ArrowRight")
    first = watched.choice()["task"]
    assert first is not None
    page.keyboard.press("Enter")
    low, high, dispatch, start, end = page.evaluate(
        """() => { const { timeline, state } = window.tileletPage, run = state.run;
        const record = run.records(state.choice.task)[0];
        const at = [run.dispatch[record], run.start[record], run.end[record]];
        return [...timeline.range, ...at.map((ticks) => run.us(ticks))]; }"""
    )
    assert low < dispatch < start < end < high
    # A core's first task may wait longer than it runs.
    assert high - low < 12 * (end - dispatch)
    pipes = page.evaluate("() => window.tileletPage.timeline.lanes.flatMap((l) => l.pipes)")
    assert "AIV.VEC" in pipes
    before = page.evaluate("() => window.tileletPage.timeline.range")
    for key in ("w", "s", "a", "d"):
        page.keyboard.press(key)
    page.keyboard.press("f")
    after = page.evaluate("() => window.tileletPage.timeline.range")
    assert after[1] - after[0] > before[1] - before[0]
    page.keyboard.press("ArrowUp")
    assert watched.choice()["task"] is not None


def test_what_is_drawn_is_what_ran(watched: Watched) -> None:
    """The color in the middle of a bar is its kernel's."""
    watched.page.evaluate(
        """() => { const t = window.tileletPage.timeline; t.showPath = false; t.fit(); }"""
    )
    got, want = watched.page.evaluate(
        """async () => { const { timeline, state } = window.tileletPage, run = state.run;
        await new Promise((done) => setTimeout(done, 120));
        const record = run.records(2)[0], ratio = window.devicePixelRatio;
        const x = timeline.x((run.start[record] + run.end[record]) / 2) * ratio;
        const y = timeline.center(record) * ratio;
        const pixel = [...timeline.canvas.getContext('2d').getImageData(x, y, 1, 1).data];
        const button = document.querySelectorAll('.legend button i')[run.rank[run.kernelOfTask[2]]];
        timeline.showPath = true;
        return [pixel.slice(0, 3), getComputedStyle(button).backgroundColor]; }"""
    )
    assert want == f"rgb({got[0]}, {got[1]}, {got[2]})"


def test_keys(watched: Watched) -> None:
    page = watched.page
    for key, name in enumerate(VIEWS, 1):
        page.keyboard.press(str(key))
        assert watched.choice()["view"] == name
    page.keyboard.press("1")
    page.keyboard.press("?")
    assert page.locator("dialog.help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("dialog.help").is_visible()
    page.evaluate("() => window.tileletPage.state.chooseTask(1)")
    page.keyboard.press("Escape")
    assert watched.choice()["task"] is None
    for name in ("Critical path", "Idle causes", "Tall lanes"):
        button = page.get_by_role("button", name=name)
        before = button.get_attribute("aria-pressed")
        page.keyboard.press({"C": "p", "I": "i", "T": "l"}[name[0]])
        assert button.get_attribute("aria-pressed") != before
        button.click()


@pytest.mark.parametrize(
    ("text", "kind", "key"),
    [
        ("stage_t", "kernel", "kernel"),
        ("middle", "tensor", "tensor"),
        ("#12", "task", "task"),
        ("test_browser.py:", "line", "line"),
    ],
)
def test_search(watched: Watched, text: str, kind: str, key: str) -> None:
    watched.page.keyboard.press("/")
    watched.page.keyboard.type(text)
    assert watched.page.inner_text(".hits li:first-child").startswith(kind)
    watched.page.keyboard.press("Enter")
    assert watched.choice()[key] is not None
    watched.page.fill(".search input", "")


def test_the_address_keeps_the_choice(browser: Any, files: dict[str, Path]) -> None:
    found = Watched(browser).open(files["profile"], "#view=source&task=9")
    assert (found.choice()["view"], found.choice()["task"]) == ("source", 9)
    found.close()
    strange = Watched(browser).open(files["profile"], "#view=__proto__&task=1e9&run=-3&kernel=x")
    assert (strange.choice()["view"], strange.choice()["task"]) == ("timeline", None)
    assert strange.said == []
    strange.close()


def test_dark_and_light(browser: Any, files: dict[str, Path]) -> None:
    found = Watched(browser, color_scheme="dark").open(files["profile"])
    back = "() => getComputedStyle(document.body).backgroundColor"
    dark = found.page.evaluate(back)
    found.page.keyboard.press("t")
    light = found.page.evaluate(back)
    assert sum(map(int, dark[4:-1].split(","))) < 200
    assert sum(map(int, light[4:-1].split(","))) > 600
    assert found.said == []
    found.close()


def test_the_graph_opens_and_draws_races(browser: Any, files: dict[str, Path]) -> None:
    found = Watched(browser).open(files["check"])
    found.view("graph")
    assert found.page.locator(".node").count() == 2
    assert found.page.locator(".edge.race").count() == 1
    assert "64" in found.page.locator(".edge:not(.race) text").all_text_contents()
    found.page.locator(".node").first.click()
    assert found.page.locator(".node").count() == 9
    assert "i = 0" in (found.page.locator(".node").first.text_content() or "")
    found.page.locator(".node").first.click()
    assert found.choice()["task"] == 0
    found.page.get_by_role("button", name="Close").click()
    assert found.page.locator(".node").count() == 2
    found.view("model")
    assert "two tasks write one region" in found.page.inner_text("main")
    assert "proved" in found.page.inner_text("main")
    assert found.said == []
    found.close()


RACING = """\
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit


@pl.jit
def racing(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    t = pl.create_tensor([16, 128], dtype=pl.FP32)
    with pl.manual_scope():
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="first"):
            t[:, :] = pl.mul(x[0:16, :], 2.0)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="second"):
            out[:, :] = pl.mul(t[:, :], 3.0)
    return out


specs = [
    TensorSpec("x", [64, 128], pl.FP32, 1.0),
    TensorSpec("out", [16, 128], pl.FP32, is_output=True),
]
run_jit(racing, specs, golden_fn=lambda tensors: tensors["out"].fill(FACTOR))
"""


def page_of(command: str, factor: float, folder: Path) -> Path:
    """The page that a command makes of a script whose tasks race."""
    script, page = folder / "racing.py", folder / f"{command}.html"
    script.write_text(RACING.replace("FACTOR", str(factor)))
    assert main([command, "--html", str(page), str(script)]) == 1
    return page


def test_the_page_begins_with_what_to_change(browser: Any, tmp_path: Path) -> None:
    script, page = tmp_path / "slow.py", tmp_path / "slow.html"
    script.write_text(SLOW)
    assert main(["profile", "--no-files", "--html", str(page), str(script)]) == 0
    found = Watched(browser).open(page)
    assert found.page.locator("aside h2").first.inner_text() == "What to change"
    best = found.page.locator(".advice > li").first
    assert "x faster at slow.py:8" in best.inner_text()
    assert "128 → 64 tasks" in best.inner_text()
    assert "half = pl.create_tensor" in best.locator(".diff .removed").first.inner_text()
    found.page.locator(".advice-chips button").first.click()
    assert found.choice()["view"] == "timeline"
    assert found.choice()["kernel"] is not None
    found.page.keyboard.press("Escape")
    best.get_by_role("button").first.click()
    assert (found.choice()["view"], found.choice()["line"][1]) == ("source", 8)
    assert "x faster" in found.page.locator("tr.advice").first.inner_text()


def test_what_the_race_check_finds_is_drawn(browser: Any, tmp_path: Path) -> None:
    found = Watched(browser).open(page_of("check", 6.0, tmp_path))
    found.view("graph")
    race = found.page.locator(".edge.race")
    assert race.count() == 1
    assert "race on `t`" in (race.locator("title").text_content() or "")
    # From one node to the other, without crossing one of them.
    boxes = [box.bounding_box() for box in found.page.locator(".node").all()]
    line = race.locator("path").bounding_box()
    assert line["y"] >= boxes[0]["y"] + boxes[0]["height"] - 8
    assert line["y"] + line["height"] <= boxes[1]["y"] + 8
    found.page.get_by_role("button", name="1 error").click()
    assert (found.choice()["view"], found.choice()["line"][1]) == ("source", 10)
    text = found.page.inner_text("main")
    assert "race on `t`: nothing orders two accesses" in text
    assert "seed 1 runs tasks 0 and 1 concurrently" in text
    assert found.said == []
    found.close()


def test_the_first_divergence_leads_to_its_line(browser: Any, tmp_path: Path) -> None:
    found = Watched(browser).open(page_of("diverge", 4.0, tmp_path))
    found.view("numbers")
    text = found.page.inner_text("main")
    assert "First divergence" in text
    assert "2,048 of 2,048 elements differ" in text
    assert "2,048 of 2,048 elements written by second are wrong" in text
    line = found.page.locator(".numbers button.link").first
    assert line.inner_text() in ("racing.py:10", "racing.py:12")
    line.click()
    assert found.choice()["line"][1] in (10, 12)
    assert found.said == []
    found.close()


PERFETTO = """<!doctype html><title>stub</title><script>
window.addEventListener("message", (event) => {
  if (event.data === "PING") event.source.postMessage("PONG", event.origin);
  else if (event.data.perfetto)
    document.title = `got ${new TextDecoder().decode(event.data.perfetto.buffer)}`;
});
</script>"""


def test_the_trace_goes_to_a_perfetto_of_this_machine(browser: Any) -> None:
    class Stub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(PERFETTO.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    stub = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    page = page_html("traced", profile_document([device_run(chain(3))]), served=True)
    address = f"http://localhost:{stub.server_address[1]}"
    server = PageServer(ServedPage(lambda: page, lambda: '{"traceEvents":[7]}', perfetto=address))
    threads = [threading.Thread(target=s.serve_forever, args=(0.02,)) for s in (stub, server)]
    for thread in threads:
        thread.start()
    found = Watched(browser)
    try:
        found.page.goto(server.address)
        with found.context.expect_page() as opened:
            found.page.get_by_role("button", name="Open in Perfetto").click()
        other = opened.value
        other.wait_for_function("() => document.title.startsWith('got')")
        assert other.title() == 'got {"traceEvents":[7]}'
        assert found.said == []
    finally:
        found.close()
        for s, thread in zip((stub, server), threads):
            s.shutdown()
            thread.join()
            s.server_close()


def test_wrong_outputs_are_mapped(browser: Any, files: dict[str, Path]) -> None:
    for name in ("numbers", "failed"):
        found = Watched(browser).open(files[name])
        found.view("numbers")
        assert "4 of 16 elements differ" in found.page.inner_text("main")
        assert found.page.locator(".map rect").count() == 1
        assert found.said == []
        found.close()


def test_two_runs(browser: Any, files: dict[str, Path]) -> None:
    found = Watched(browser).open(files["compare"])
    assert found.choice()["view"] == "compare"
    assert "B is" in found.page.inner_text("main")
    assert found.page.locator(".mini canvas").count() == 2
    found.page.select_option("header select", "1")
    found.view("timeline")
    assert found.choice()["run"] == 1
    assert found.said == []
    found.close()


def test_a_saved_profile_says_what_is_missing(browser: Any, files: dict[str, Path]) -> None:
    found = Watched(browser).open(files["saved"])
    for view in ("timeline", "source", "graph", "memory"):
        found.view(view)
        assert "tilelet profile kernel.py --html" in found.page.inner_text("main")
    assert found.said == []
    found.close()


@pytest.mark.parametrize(
    ("name", "text"),
    [("damaged", "cannot be read"), ("old", "version 00"), ("strange", "cannot be read")],
)
def test_data_that_cannot_be_read(
    browser: Any, files: dict[str, Path], name: str, text: str
) -> None:
    found = Watched(browser)
    found.page.goto(files[name].resolve().as_uri())
    found.page.wait_for_selector(".empty")
    assert text in found.page.inner_text("#app")
    found.close()


def test_a_served_page_follows_its_script(browser: Any) -> None:
    def page(links: int) -> str:
        return page_html(
            f"{links} links", profile_document([device_run(chain(links))]), served=True
        )

    server = PageServer(ServedPage(lambda: page(3), lambda: "{}"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    found = Watched(browser)
    try:
        found.page.goto(server.address)
        found.page.wait_for_selector("body[data-ready]")
        found.page.wait_for_function("() => document.querySelector('.live').textContent === 'live'")
        server.shown.renew(lambda: page(5), lambda: "{}")
        found.page.wait_for_function("() => document.title === '5 links'")
        assert {url.partition("?")[0] for url in found.asked} <= {
            f"http://127.0.0.1:{server.port}/",
            f"http://127.0.0.1:{server.port}/state",
        }
    finally:
        found.close()
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_script_that_fails_is_told_in_the_page_until_it_is_mended(browser: Any) -> None:
    page = page_html("shown", profile_document([device_run(chain(3))]), served=True)
    server = PageServer(ServedPage(lambda: page, lambda: "{}"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    found = Watched(browser)
    try:
        found.page.goto(server.address)
        found.page.wait_for_selector("body[data-ready]")
        assert not found.page.locator(".failed").is_visible()
        server.shown.fail(f"error[E0203]: {NASTY}")
        found.page.wait_for_selector(".failed:not([hidden])")
        assert NASTY in found.page.inner_text(".failed pre")
        assert found.page.evaluate("() => window.hacked ?? null") is None
        server.shown.renew(lambda: page, lambda: "{}")
        found.page.wait_for_selector(".failed", state="hidden")
        assert found.said == []
    finally:
        found.close()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("width", [390, 900, 1440])
def test_nothing_is_wider_than_the_window(browser: Any, files: dict[str, Path], width: int) -> None:
    found = Watched(browser)
    found.page.set_viewport_size({"width": width, "height": 700})
    found.open(files["numbers"])
    for view in VIEWS:
        found.view(view)
        wide = found.page.evaluate("() => document.documentElement.scrollWidth")
        assert (view, wide) == (view, width)
    found.view("timeline")
    top = found.page.locator(".lanes").bounding_box()["y"]
    assert top < 400  # lanes can be seen without scrolling
    found.page.evaluate("() => window.tileletPage.state.chooseTask(3)")
    sheet = found.page.locator(".details").bounding_box()
    assert sheet["y"] < 700
    found.page.get_by_role("button", name="select nothing").click()
    assert found.choice()["task"] is None
    found.close()


def test_a_view_begins_at_its_top(browser: Any, files: dict[str, Path]) -> None:
    found = Watched(browser)
    found.page.set_viewport_size({"width": 390, "height": 500})
    found.open(files["numbers"])
    found.view("kernels")
    found.page.mouse.move(200, 400)
    found.page.mouse.wheel(0, 5000)
    found.page.wait_for_timeout(100)
    header = found.page.locator("header").bounding_box()
    assert found.page.locator("main").bounding_box()["y"] < header["height"]
    found.view("compare")
    assert found.page.locator("main").bounding_box()["y"] >= header["height"]
    found.close()


def test_the_empty_run_of_one_task_draws(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "one.html"
    file.write_text(page_html("one", profile_document([device_run(elementwise(tasks=1))])))
    found = Watched(browser).open(file)
    for view in ("source", "kernels", "memory", "graph", "model", "timeline"):
        found.view(view)
    assert found.said == []
    found.close()
