"""Which requests the server of `tilelet view` accepts, and its answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from tests.limits import HUNG

from tilelet.report import server as page_server
from tilelet.report.server import PageServer, ServedPage


@pytest.fixture
def server() -> Iterator[PageServer]:
    made = PageServer(ServedPage(lambda: "<p>one</p>", lambda: '{"traceEvents":[]}'))
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def get(server: PageServer, path: str, host: str = "", method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HUNG)
    headers = {"Host": host or f"127.0.0.1:{server.port}"}
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_it_listens_on_this_machine_only(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.address.startswith(f"http://127.0.0.1:{server.port}/?token=")
    assert len(server.token) >= 32


def test_a_page_may_ask_for_a_new_run(server: PageServer) -> None:
    assert get(server, "/again", method="POST")[0] == 403
    assert get(server, f"/again?token={server.token}")[0] == 404
    assert not server.shown.asked.is_set()
    assert get(server, f"/again?token={server.token}", method="POST")[0] == 200
    assert server.shown.asked.is_set()


def test_the_token_and_the_host_are_checked(server: PageServer) -> None:
    ok = f"/?token={server.token}"
    assert get(server, ok) == (200, "<p>one</p>")
    assert get(server, ok, f"localhost:{server.port}")[0] == 200
    for path in (
        "/",
        "/?token=",
        "/?token=x",
        "/state",
        "/trace?token=%C3%A9%FF",
    ):
        assert get(server, path)[0] == 403
    for host in ("example.org", f"example.org:{server.port}", "127.0.0.1", "127.0.0.1:1"):
        assert get(server, ok, host)[0] == 403


def test_there_is_one_page_and_nothing_of_the_disk(server: PageServer) -> None:
    for path in ("/../../etc/passwd", "/etc/passwd", "//etc/passwd", "/index.html"):
        assert get(server, f"{path}?token={server.token}")[0] == 404
    status, text = get(server, f"/trace?token={server.token}")
    assert (status, json.loads(text)) == (200, {"traceEvents": []})


def test_newer_data_has_another_version(server: PageServer) -> None:
    asked = f"/state?token={server.token}"
    before = json.loads(get(server, asked)[1])
    server.shown.say("profiling again …")
    assert json.loads(get(server, asked)[1])["state"] == "profiling again …"
    server.shown.renew(lambda: "<p>two</p>", lambda: "{}")
    after = json.loads(get(server, asked)[1])
    assert after["version"] != before["version"]
    assert after["state"] == "live"
    assert get(server, f"/?token={server.token}")[1] == "<p>two</p>"


def test_a_failure_is_said_until_it_is_mended(server: PageServer) -> None:
    asked = f"/state?token={server.token}"
    server.shown.fail("error: no such op\n" * 9000)
    state = json.loads(get(server, asked)[1])
    assert state["state"] == "the script fails"
    assert state["message"].endswith("error: no such op\n")
    assert len(state["message"]) <= 20_000
    server.shown.renew(lambda: "<p>two</p>", lambda: "{}")
    assert json.loads(get(server, asked)[1])["message"] == ""


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_are_refused(server: PageServer, method: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HUNG)
    connection.request(method, f"/?token={server.token}", body="x")
    assert connection.getresponse().status == 501
    connection.close()


def test_a_request_without_a_host_is_refused(server: PageServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=HUNG) as raw:
        raw.sendall(f"GET /?token={server.token} HTTP/1.0\r\n\r\n".encode())
        assert b" 403 " in raw.recv(100)


def test_slow_askers_are_hung_up_on(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", server.port), timeout=HUNG) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")

        def drip() -> None:  # a byte now and then: the connection is never silent
            with contextlib.suppress(OSError):
                for _ in range(200):
                    slow.sendall(b"X")
                    time.sleep(0.1)

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        with contextlib.suppress(ConnectionError):
            assert slow.recv(1) == b""
        dripping.join(timeout=HUNG)
        assert not dripping.is_alive()
    assert get(server, f"/?token={server.token}")[0] == 200


def test_connections_are_bounded(server: PageServer) -> None:
    idle = [
        socket.create_connection(("127.0.0.1", server.port), timeout=HUNG)
        for _ in range(page_server.MAX_CONNECTIONS)
    ]
    try:
        one_more = socket.create_connection(("127.0.0.1", server.port), timeout=HUNG)
        with one_more:
            assert one_more.recv(1) == b""
    finally:
        for connection in idle:
            connection.close()
    for _ in range(100):  # until the threads have noticed
        try:
            assert get(server, f"/?token={server.token}")[0] == 200
            break
        except OSError:
            time.sleep(0.05)
    else:
        raise AssertionError("it never answers again")
