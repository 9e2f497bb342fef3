"""Posting OTLP: accepted, rejected in part, retried, refused, redirected, and an endpoint that never answers."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from dba_console.core.errors import ConnectError, UsageError
from dba_console.recording.recording import Recording
from dba_console.reports.export_formats import whole
from dba_console.reports.otlp import OtlpReader, post_otlp
from dba_console.reports.otlp_client import OtlpClient, parse_endpoint, parse_headers
from tests.background import wait_until
from tests.unit.recording.recordings import record_samples, recorder, ticks


class Reply(NamedTuple):
    status: int
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()


class Receiver(ThreadingHTTPServer):
    """Takes what is posted, and answers with these replies, then always with success."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies = list(replies)
        self.taken: list[tuple[str, dict[str, object], dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.taken.append((self.path, json.loads(body), dict(self.headers)))
        reply = self.server.replies.pop(0) if self.server.replies else Reply(200)
        self.send_response(reply.status)
        for name, value in (("Content-Length", str(len(reply.body))), *reply.headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


@contextmanager
def receiver(*replies: Reply) -> Iterator[Receiver]:
    with Receiver(*replies) as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield made
        finally:
            made.shutdown()


class Posting:
    """A client with the texts it reported and the pauses it made."""

    def __init__(self, url: str, *, patient: bool = False, **headers: str) -> None:
        self.said: list[str] = []
        self.pauses: list[float] = []
        self.client = OtlpClient(url, headers, patient=patient, report=self.said.append, pause=self.pauses.append)

    def post(self) -> None:
        with closing(self.client):
            self.client.post("logs", b'{"resourceLogs":[]}')


def test_a_request_is_posted_as_compressed_json_with_the_headers_of_the_operator() -> None:
    with receiver() as made:
        Posting(f"{made.url}/otlp/", Authorization="Bearer t").post()
    [(path, content, headers)] = made.taken
    assert (path, content) == ("/otlp/v1/logs", {"resourceLogs": []})
    assert (headers["Content-Type"], headers["Content-Encoding"]) == ("application/json", "gzip")
    assert headers["Authorization"] == "Bearer t"


def test_what_the_receiver_rejects_is_reported_and_not_sent_again() -> None:
    body = b'{"partialSuccess": {"rejectedLogRecords": "3\\u001b[2J", "errorMessage": "too\\u001b[2J old"}}'
    with receiver(Reply(200, body)) as made:
        posting = Posting(made.url)
        posting.post()
    assert posting.said == ["the receiver rejected 3␛[2J of the logs: too␛[2J old"]
    assert len(made.taken) == 1


def test_a_busy_receiver_is_asked_again_when_it_says_so() -> None:
    with receiver(Reply(503, headers=(("Retry-After", "7"),)), Reply(429), Reply(200)) as made:
        posting = Posting(made.url)
        posting.post()
    assert len(made.taken) == 3
    assert posting.pauses[0] == 7
    assert 1 <= posting.pauses[1] <= 2
    assert posting.said[0] == f"{made.url}: 503 Service Unavailable {{}}; next attempt in 7 s"


def test_a_receiver_that_stays_busy_is_given_up() -> None:
    with receiver(*[Reply(503)] * 9) as made, pytest.raises(ConnectError, match="after 5 attempts: 503"):
        Posting(made.url).post()
    assert len(made.taken) == 5


@pytest.mark.parametrize("status", [400, 401, 404, 413, 500])
def test_other_refusals_are_final(status: int) -> None:
    refusal = Reply(status, b"no: password=hunter2 \x1b[2J")
    with receiver(refusal) as made, pytest.raises(ConnectError, match=f"did not accept the export: {status}") as raised:
        Posting(made.url, patient=True).post()
    assert len(made.taken) == 1
    assert "hunter2" not in str(raised.value)
    assert "\x1b" not in str(raised.value)


def test_a_redirect_is_not_followed() -> None:
    with receiver() as other:
        away = Reply(307, headers=(("Location", f"{other.url}/v1/logs"),))
        with receiver(away) as made, pytest.raises(ConnectError, match="which is not followed"):
            Posting(made.url).post()
    assert other.taken == []


def test_an_endpoint_that_takes_a_request_and_never_answers_ends_the_export() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        posting = Posting(f"http://127.0.0.1:{silent.getsockname()[1]}")
        posting.client.deadline_s = 0.2
        with pytest.raises(ConnectError, match="no answer within"):
            posting.post()


def test_an_endpoint_that_is_down_ends_an_export_and_not_one_that_follows() -> None:
    with socket.create_server(("127.0.0.1", 0)) as down:
        port = down.getsockname()[1]
    with pytest.raises(ConnectError, match="Connection refused"):
        Posting(f"http://127.0.0.1:{port}").post()
    with pytest.raises(RuntimeError, match="the third pause"):
        following = Posting(f"http://127.0.0.1:{port}", patient=True)
        following.client = OtlpClient(
            f"http://127.0.0.1:{port}", {}, patient=True, report=following.said.append, pause=_stop_at_third(following)
        )
        following.post()
    assert len(following.said) == 3


def _stop_at_third(posting: Posting):  # type: ignore[no-untyped-def]
    def pause(seconds: float) -> None:
        posting.pauses.append(seconds)
        if len(posting.pauses) == 3:
            raise RuntimeError("the third pause")

    return pause


def test_a_live_session_is_followed_until_it_is_closed(tmp_path: Path) -> None:
    made, samples = recorder(tmp_path), ticks(30)
    record_samples(made, samples[:10])
    recording = Recording.open(made.directory)
    with receiver() as taking:
        posting = Posting(taking.url)
        reader = OtlpReader(recording)
        arguments = (whole(recording), posting.client, lambda share: None, reader, 0.02)
        following = threading.Thread(target=post_otlp, args=arguments, daemon=True)
        following.start()
        wait_until(lambda: taking.taken, what="the first samples")
        record_samples(made, samples[10:])
        assert made.close("done")
        following.join(60)
        assert not following.is_alive()
    recording.close()
    times = [
        int(point["timeUnixNano"])
        for path, content, _ in taking.taken
        if path == "/v1/metrics"
        for metric in content["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]  # type: ignore[index]
        if metric["name"] == "dba_console.host_cpus"
        for point in metric["gauge"]["dataPoints"]
    ]
    assert len(times) == len({*times}) == 30


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://collector", "not an http or https URL"),
        ("collector:4318", "not an http or https URL"),
        ("http://", "not an http or https URL"),
        ("http://u:p@collector", "contains credentials"),
        ("http://collector/?a=b", "more than scheme, host, port and path"),
        ("http://collector:99999", "not a URL"),
        ("http://coll ector", "more than scheme, host, port and path"),
    ],
)
def test_only_a_plain_http_url_is_an_endpoint(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        parse_endpoint(url)
    assert ":p@" not in str(raised.value)


def test_headers_that_cannot_be_read_are_refused_without_their_values() -> None:
    for text in ("Authorization", "A=b,=c", "A=b%0d%0aEvil: 1"):
        with pytest.raises(UsageError) as raised:
            parse_headers(text)
        assert "Evil" not in str(raised.value)
