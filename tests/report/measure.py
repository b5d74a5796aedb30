"""Measures the page in a browser: `python -m tests.report.measure [TASKS ...]` (make page-bench).

Prints, for each number of tasks: bytes of the file, time from the first byte of script to the first
frame, and while panning over the whole run the time between frames and the time of drawing one.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.report.browser import Watched, chromium, no_browser
from tests.report.many_tasks import many_tasks
from tests.report.runs import device_run

from tilelet.report.document import profile_document
from tilelet.report.html import page_html

PAN = """async (frames) => {
  const { timeline } = window.tileletPage;
  const next = () => new Promise((done) => requestAnimationFrame(done));
  timeline.fit();
  timeline.zoom(0.5);
  await next();
  timeline.frames.length = 0;
  const gaps = [];
  let last = performance.now();
  for (let i = 0; i < frames; i++) {
    timeline.pan(i % 40 < 20 ? 0.02 : -0.02);
    await next();
    const now = performance.now();
    gaps.push(now - last);
    last = now;
  }
  const median = (v) => [...v].sort((a, b) => a - b)[v.length >> 1];
  return [median(gaps), median(timeline.frames), Math.min(...timeline.frames)];
}"""


def main(counts: list[int]) -> None:
    reason = no_browser()
    if reason:
        sys.exit(reason)
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        for count in counts:
            run = device_run(many_tasks(count))
            begun = time.process_time()
            run.profile  # noqa: B018
            modelled = time.process_time() - begun
            data = profile_document([run])
            packed = time.process_time() - begun - modelled
            file = Path(folder) / "page.html"
            file.write_text(page_html("measured", data))
            watched = Watched(browser).open(file)
            load = watched.page.evaluate("() => document.body.dataset.ready")
            gap, median, least = watched.page.evaluate(PAN, 120)
            print(
                f"{run.profile.tasks:,} tasks: {file.stat().st_size / 1e6:.2f} MB, packed in "
                f"{packed:.2f} s (after {modelled:.2f} s of modelling), loads in {load} ms; "
                f"panning {1000 / gap:.0f} frames per second, a frame is drawn in {median:.1f} ms "
                f"(at best {least:.1f} ms: what it takes when nothing else runs)",
                flush=True,
            )
            watched.close()


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or [33_411, 351_050])
