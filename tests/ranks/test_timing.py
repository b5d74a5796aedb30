"""Modelled time of several ranks: transfers, links, waits, and the tasks between them."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.ranks.programs import ring, rows, world

from tilelet.cli.main import main
from tilelet.cli.ranks_profile import ranks_tables, write_trace
from tilelet.device.machine.description import load_machine
from tilelet.diag.catalogue.ranks import NoLinks
from tilelet.diag.tables import Table
from tilelet.ranks.host import Plan, plan_of
from tilelet.ranks.timing import RanksSimulation, RanksTimeline, model_ranks
from tilelet.report.columns import unpack
from tilelet.runtime.programs import jit_call
from tilelet.tasks.arguments import bind_arguments

# A public table of TGET by one core between two NPUs of A2/A3: bytes, ticks of 20 ns.
TICKS = {4096: 36, 16384: 150, 65536: 580, 262144: 2410, 1 << 20: 9318, 4 << 20: 37924}


def modelled(ranks: int, **links: float) -> RanksTimeline:
    machine = load_machine("a2a3")
    assert machine.links is not None
    machine = dataclasses.replace(machine, links=dataclasses.replace(machine.links, **links))
    x = rows(ranks)
    y = np.zeros_like(x)
    program = jit_call.compile(ring, (x, y), world(ranks)).program
    plan = plan_of(program, bind_arguments(program, {"x": x, "y": y}, execute=True), ranks)
    (timeline,) = model_ranks("ring", program, plan, [machine])
    assert np.array_equal(y, np.roll(x, 1, axis=0))
    return timeline


@pytest.mark.parametrize("nbytes", TICKS)
def test_the_published_transfers(nbytes: int) -> None:
    machine = load_machine("a2a3")
    pricing = RanksSimulation(RanksTimeline("", "", 2), machine, Plan(2), [], [])
    published = TICKS[nbytes] * 0.02
    assert pricing._transfer(0, 1, nbytes, 0.0) == pytest.approx(published, rel=0.07)


def test_a_link_serves_one_transfer_after_the_other() -> None:
    pricing = RanksSimulation(RanksTimeline("", "", 2), load_machine("a2a3"), Plan(2), [], [])
    alone = pricing._transfer(0, 1, 1 << 20, 0.0)
    # Six cores at 5.5 GB/s are more than a link of 30 GB/s.
    together = [pricing._transfer(2, 3, 1 << 20, 0.0) for _ in range(6)]
    assert together[0] == alone
    assert together[-1] == pytest.approx(6 * (1 << 20) / 30e3)


def test_ranks_wait_for_the_one_that_starts_last() -> None:
    timeline = modelled(4, start_skew_us=90.0)
    assert [timeline.begins[r] for r in range(4)] == [0.0, 30.0, 60.0, 90.0]
    (wait,) = timeline.waits
    assert (wait.rank, wait.source) == (0, 3)
    assert wait.end - wait.start == pytest.approx(90.0, abs=2.0)
    together = modelled(4, start_skew_us=0.0)
    assert together.total_us < timeline.total_us - 80.0


def test_a_slower_signal_delays_every_rank() -> None:
    quick, slow = modelled(2, start_skew_us=0.0), modelled(2, start_skew_us=0.0, signal_us=50.0)
    assert slow.total_us == pytest.approx(quick.total_us + 50.0, abs=1.0)
    assert slow.waited_us(1) == pytest.approx(50.0, abs=1.0)


def test_tables_and_lanes(tmp_path: Path) -> None:
    timeline = modelled(2)
    ranks, waits = ranks_tables(timeline)
    assert isinstance(ranks, Table)
    assert isinstance(waits, Table)
    assert [row[0] for row in ranks.rows] == ["0", "1"]
    assert waits.rows[0][:2] == ("0", "push_step")
    write_trace(timeline, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    flows = [e for e in events if e["ph"] in "sf"]
    assert {(e["ph"], e["pid"]) for e in flows} == {("s", 0), ("f", 1), ("s", 1), ("f", 0)}


def test_a_machine_without_links() -> None:
    machine = dataclasses.replace(load_machine("a2a3"), links=None)
    with pytest.raises(NoLinks, match=r"`a2a3` has no links"):
        model_ranks("ring", None, None, [machine])


SCRIPT = """
import numpy as np
from tests.ranks.programs import ring, rows, world

x = rows(2)
ring(x, np.zeros_like(x), config=world(2))
"""


def test_profile_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT, encoding="utf-8")
    assert main(["profile", "--format", "json", "--build-dir", str(tmp_path), str(file)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [r["rank"] for r in document["ranks"][0]["ranks"]] == [0, 1]
    assert len(document["ranks"][0]["messages"]) == 4


def test_a_page_with_ranks(tmp_path: Path) -> None:
    file, page = tmp_path / "script.py", tmp_path / "page.html"
    file.write_text(SCRIPT, encoding="utf-8")
    options = ("--build-dir", str(tmp_path), "--html", str(page))
    assert main(["profile", *options, str(file)]) == 0
    text = re.search(r'id="data"[^>]*>([^<]*)<', page.read_text(encoding="utf-8"))
    assert text is not None
    header, _ = unpack(base64.b64decode(text[1]))
    run = header["runs"][0]
    assert run["machine"] == "2 x a2a3"
    assert {span["rank"] for span in run["ranks"]["spans"]} == {0, 1}
    assert {(m["source"], m["target"]) for m in run["ranks"]["messages"]} == {(0, 1), (1, 0)}


def test_tasks_of_all_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.replace("(2)", "(3)"), encoding="utf-8")
    assert main(["tasks", str(file)]) == 0
    assert "push_step      3" in capsys.readouterr().out
