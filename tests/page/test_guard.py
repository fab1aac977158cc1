"""What is refused before anything is computed: foreign names and origins, large bodies, odd addresses, odd JSON."""

from __future__ import annotations

import http.client
import re
from pathlib import Path

import pytest

from latflow.page.guard import HEADERS, JSON_BYTES, LOOPBACK, MIDI_BYTES, named

SURPRISE = {"model": "pydoc", "text": "The value"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8022", "localhost:1", "LOCALHOST", "[::1]:8022", "[::1]"]
)
def test_the_names_of_loopback_are_answered(ask, host):
    assert named(host.lower()) in LOOPBACK
    assert ask.client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8022", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1",
     "127.0.0.1:8022@evil.example:1", "[::1]evil.example:8022x", "0.0.0.0:8022", "10.0.0.1"],
)  # fmt: skip
def test_any_other_name_is_refused(ask, host):
    for path in ("/", "/api/about", "/static/main.js"):
        answer = ask.client.get(path, headers={"Host": host})
        assert answer.status_code == 421
        assert "it answers to 127.0.0.1, [::1], localhost" in answer.json()["error"]


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:8023", "http://127.0.0.1", "http://localhost:8022", "file://",
     "http://127.0.0.1:8022.evil.example", ""],
)  # fmt: skip
def test_an_origin_elsewhere_is_refused(ask, origin):
    answer = ask.post("text/surprise", SURPRISE, Origin=origin)
    assert answer.status_code == 403
    assert "its own page only" in answer.json()["error"]


def test_the_page_itself_may_ask(ask):
    assert ask.post("text/surprise", SURPRISE, Origin="http://127.0.0.1:8022").status_code == 200


def test_another_site_may_link_here_and_nothing_else(ask):
    far = {"Sec-Fetch-Site": "cross-site"}
    assert ask.client.get("/", headers={**far, "Sec-Fetch-Mode": "navigate"}).status_code == 200
    assert ask.client.get("/api/about", headers={**far, "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert ask.client.get("/static/main.js", headers={**far, "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert ask.post("text/surprise", SURPRISE, **{**far, "Sec-Fetch-Mode": "navigate"}).status_code == 403


def test_a_body_that_is_too_large_is_refused(ask):
    assert "at most 262144 are taken" in ask.error("text/surprise", b" " * (JSON_BYTES + 1), 413)

    def pieces():  # no length is told: it is counted as it comes
        for _ in range(1600):
            yield b" " * 65536

    answer = ask.client.post(
        "/api/text/surprise",
        content=pieces(),
        headers={"Content-Type": "application/json", "X-Latflow-Client": "test-client"},
    )
    assert answer.status_code == 413
    answer = ask.client.post(
        "/api/music/read?model=jsb",
        content=b"MThd" + b"x" * MIDI_BYTES,
        headers={"Content-Type": "audio/midi", "X-Latflow-Client": "test-client"},
    )
    assert answer.status_code == 413


@pytest.mark.parametrize("length", ["100000000", "99999999999999999999", "-1", "1e3", "ten"])
def test_a_length_that_is_too_large_is_refused_unread(port, length):
    """A hundred megabytes are announced and none is sent: the answer comes all the same."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest("POST", "/api/text/surprise", skip_accept_encoding=True)
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", length)
    connection.endheaders()
    assert connection.getresponse().status in (400, 413)
    connection.close()
    connection.request("GET", "/api/about")
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/../../etc/passwd", "//etc/passwd",
     "/static/", "/static/main.js/", "/static/main.js%00", "/api", "/api/", "/api/text", "/api/../static/main.js",
     "/index.html", "/%ff", "/static/%c0%ae%c0%ae/app.py", "/?../../etc", "/static/main.js;x", "/static/MAIN.JS"],
)  # fmt: skip
def test_odd_addresses_lead_nowhere(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest("GET", path, skip_accept_encoding=True)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if path.startswith("/?"):
        assert answer.status == 200
    else:
        assert answer.status in (400, 404, 405)
        assert body.startswith(b'{"error": ')
    assert b"root:" not in body
    assert b"import" not in body


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD"])
def test_no_other_methods(ask, method):
    assert ask.client.request(method, "/api/text/surprise").status_code == 405


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"model": "pydoc", "text": NaN}', "NaN in the body; JSON has no such number"),
        (b'{"model": "pydoc", "text": "a", "at": -Infinity}', "-Infinity in the body"),
        (b"", "the body is not JSON"),
        (b"\xff\xfe", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b'{"model": 1' + b"0" * 5000 + b"}", "the body is not JSON (Exceeds the limit"),
        (b"[]", "the body is list; an object with fields is expected"),
        (b'{"model": "pydoc", "model": "jsb", "text": "a"}', "a field stands twice"),
        (b'{"text": "a"}', "model is missing"),
        (b'{"model": "pydoc"}', "text is missing"),
        (b'{"model": "pydoc", "text": 3}', "text must be a string"),
        (b'{"model": "pydoc", "text": "\\ud800"}', "half of a surrogate pair"),
        (b'{"model": "pydoc", "text": "a", "path": "/etc/passwd"}', "unknown field 'path'"),
        (b'{"model": "../../etc", "text": "a"}', "no model called '../../etc'; there are jsb, pydoc, "),
        (b'{"model": "jsb", "text": "a"}', "jsb is a model of music, not of text"),
        (b'{"model": "pydoc", "text": "a", "ended": 1}', "ended is 1; it must be true or false"),
        (b'{"model": "pydoc", "text": "' + b"a" * 1001 + b'"}', "text has 1001 characters; at most 1000"),
        (b'{"model": "pydoc", "text": "\\u00e9"}', "is not among the 90 of this data"),
        (b'{"model": "pydoc", "text": "' + b"a" * 201 + b'"}', "length 201; this model knows lengths from 1 to 200"),
    ],
)  # fmt: skip
def test_odd_json_is_refused_in_words(ask, body, said):
    assert said in ask.error("text/surprise", body)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("temperature", "1e999", "temperature is 'inf'; it must be a number from 0 to 5"),
        ("temperature", "-1", "from 0 to 5"),
        ("temperature", "true", "from 0 to 5"),
        ("temperature", "1" + "0" * 400, "from 0 to 5"),
        ("seed", "1.0", "seed is 1.0; it must be a whole number"),
        ("seed", "-1", "from 0 to 4294967295"),
        ("seed", "1" + "0" * 400, "from 0 to 4294967295"),
        ("n", "9", "from 1 to 8"),
        ("particles", "1000000", "from 1 to 2000"),
        ("length", "0", "from 1 to 1000"),
        ("how", '"delete"', "accepted: continue, fill"),
    ],
)
def test_numbers_have_bounds(ask, field, value, said):
    fields = {"model": '"pydoc"', "text": '"The "', "how": '"continue"', field: value}
    body = ", ".join(f'"{name}": {word}' for name, word in fields.items())
    assert said in ask.error("text/draw", f"{{{body}}}".encode())


def test_a_client_says_who_it_is_and_what_it_sends(ask):
    answer = ask.post("text/surprise", SURPRISE, **{"X-Latflow-Client": "../x"})
    assert (answer.status_code, answer.json()["error"][:27]) == (400, "the header X-Latflow-Client")
    answer = ask.post("text/surprise", SURPRISE, **{"Content-Type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]) == (415, "the body must be application/json")


def test_every_answer_has_the_headers(ask):
    for answer in (
        ask.client.get("/"),
        ask.client.get("/nowhere"),
        ask.client.get("/", headers={"Host": "evil.example"}),
        ask.post("text/surprise", SURPRISE),
    ):
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS


def test_the_page_asks_for_nothing_elsewhere():
    """No address of another host stands in what is served, and nothing that the policy would refuse."""
    static = Path(__file__).parents[2] / "latflow" / "page" / "static"
    for path in static.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn|@import", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|\beval\(|document\.write", text), path
    page = (static / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"\son\w+=|style=|<style|<script(?![^>]*src)", page)
