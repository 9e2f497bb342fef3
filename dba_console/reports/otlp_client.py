"""POST OTLP requests to the endpoint that the operator named: never to a default one, and no redirect is followed.

Retried are only the answers that the protocol calls retryable (429, 502, 503, 504), with Retry-After or a growing pause
with jitter. Source: opentelemetry-proto, docs/specification.md, "OTLP/HTTP Response".
"""

from __future__ import annotations

import gzip
import http.client
import random
import re
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from dba_console.core.decoding import from_json
from dba_console.core.errors import ConnectError, UsageError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout

HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
"""`name=value,…`, percent-encoded: as every OpenTelemetry exporter reads it, for access tokens."""
REQUEST_S = 30.0
_CONNECT_S = 10.0
ATTEMPTS = 5
_RETRYABLE = (429, 502, 503, 504)
_LONGEST_PAUSE_S = 60.0
_ANSWER_BYTES = 64 << 10
_SIGNAL_PATH = re.compile(r"/v1/(metrics|logs|traces)/?$")


class OtlpAnswer(NamedTuple):
    status: int
    reason: str
    retry_after: str | None
    location: str | None
    body: bytes


def parse_endpoint(text: str) -> SplitResult:
    """Return the parts of an endpoint's URL. Raises UsageError.

    >>> parse_endpoint("http://collector:4318/v1/metrics").geturl()
    'http://collector:4318'
    """
    hint = "as in http://localhost:4318; /v1/metrics, /v1/logs and /v1/traces are appended"
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise UsageError(f"not a URL: {redact(text)}", hint=hint) from None
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        raise UsageError(f"not an http or https URL: {redact(text)}", hint=hint)
    if url.username is not None or url.password is not None:
        raise UsageError(
            "the URL of the endpoint contains credentials, which every user can see in the list of processes",
            hint=f"set {HEADERS_VARIABLE}, as in Authorization=Basic%20…",
        )
    if url.query or url.fragment or re.search(r"[\s\x00-\x20\x7f]", text):
        raise UsageError(
            f"the URL of the endpoint has more than scheme, host, port and path: {clean(redact(text))}", hint=hint
        )
    return url._replace(path=_SIGNAL_PATH.sub("", url.path).rstrip("/"))


def parse_headers(text: str) -> dict[str, str]:
    """Return the headers of the environment variable. Raises UsageError, without the values.

    >>> parse_headers("Authorization=Basic%20eDp5, X-Scope=a")
    {'Authorization': 'Basic eDp5', 'X-Scope': 'a'}
    """
    headers = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, value = part.partition("=")
        name, value = name.strip(), unquote(value.strip())
        if not equals or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not value.isprintable():
            raise UsageError(f"{HEADERS_VARIABLE} is not a list of name=value pairs")
        headers[name] = value
    return headers


class OtlpClient:
    """Posts to one endpoint, each request over its own connection: a kept one may be closed at any moment."""

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        *,
        patient: bool = False,
        report: Callable[[str], None],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`patient`: an endpoint that does not answer is retried without end, as one that asks to retry."""
        self._url = parse_endpoint(endpoint)
        self._headers = {
            **headers,
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
            "User-Agent": "dba-console",
            "Connection": "close",
        }
        self._patient = patient
        self._report = report
        self._pause = pause
        self.deadline_s = REQUEST_S
        """Of one request, name resolution included."""
        self._lane = Lane("otlp")

    def close(self) -> None:
        self._lane.close()

    def post(self, signal: str, body: bytes) -> None:
        """Post a request and report what the receiver rejected. Raises ConnectError if it was not accepted."""
        path = f"{self._url.path}/v1/{signal}"
        packed = gzip.compress(body, compresslevel=5, mtime=0)
        attempt = 0
        while True:
            attempt += 1
            answer, problem = self._try(path, packed)
            if answer is not None and 200 <= answer.status < 300:
                self._report_partial(signal, answer.body)
                return
            retried = self._patient if answer is None else answer.status in _RETRYABLE
            if not retried or (attempt >= ATTEMPTS and not self._patient):
                tried = f" after {attempt} attempts" if attempt > 1 else ""
                raise ConnectError(f"{self._url.geturl()}/v1/{signal} did not accept the export{tried}: {problem}")
            pause_s = _pause_s(attempt, None if answer is None else answer.retry_after)
            self._report(f"{self._url.geturl()}: {problem}; next attempt in {pause_s:.0f} s")
            self._pause(pause_s)

    def _try(self, path: str, packed: bytes) -> tuple[OtlpAnswer | None, str]:
        """Return the answer, None without one, and the problem in words."""
        try:
            answer = self._lane.call(lambda: self._send(path, packed), self.deadline_s)
        except LaneTimeout:
            return None, f"no answer within {self.deadline_s:g} s"
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return None, clean(redact(str(why)))
        if 300 <= answer.status < 400:
            return answer, f"redirected to {clean(redact(answer.location or '?'))}, which is not followed"
        text = clean(redact(answer.body[:300].decode("utf-8", "replace")))
        return answer, " ".join(filter(None, (str(answer.status), clean(redact(answer.reason)), text)))

    def _send(self, path: str, packed: bytes) -> OtlpAnswer:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=_CONNECT_S)
        try:
            connection.request("POST", path, packed, self._headers)
            answer = connection.getresponse()
            after, location = answer.getheader("Retry-After"), answer.getheader("Location")
            return OtlpAnswer(answer.status, answer.reason, after, location, answer.read(_ANSWER_BYTES))
        finally:
            connection.close()

    def _report_partial(self, signal: str, body: bytes) -> None:
        """Report what the receiver rejected; by the protocol that is final, and not retried."""
        try:
            partial = from_json(body or b"{}", _Accepted).partialSuccess
        except msgspec.MsgspecError:
            return  # accepted; some receivers answer with a text
        count = partial.rejectedDataPoints or partial.rejectedLogRecords or partial.rejectedSpans
        if str(count) != "0" or partial.errorMessage:
            message = clean(redact(partial.errorMessage)) or "no reason given"
            self._report(f"the receiver rejected {clean(str(count))} of the {signal}: {message}")


class _Partial(msgspec.Struct):
    rejectedDataPoints: int | str = 0
    rejectedLogRecords: int | str = 0
    rejectedSpans: int | str = 0
    errorMessage: str = ""


class _Accepted(msgspec.Struct):
    partialSuccess: _Partial = msgspec.field(default_factory=_Partial)


def _pause_s(attempt: int, retry_after: str | None) -> float:
    """Return the seconds before the next attempt: as the receiver asks, else doubling, with jitter."""
    if retry_after is not None and retry_after.strip().isdecimal():
        return min(float(retry_after), _LONGEST_PAUSE_S)
    return min(2.0 ** (attempt - 1), _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)
