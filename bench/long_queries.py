"""Cost of long queries: 40 sessions with statements of 0.94 MB, which the server keeps in full.

Each session starts another statement of random digits every second: no reading equals the previous one, and they
compress poorly.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.console import own_directories, recording_agent
from bench.figure import Figure
from bench.process import peak_mb
from dba_console.demo.temporary_server import Cluster
from dba_console.recording.recording import Recording

SESSIONS = 40
QUERY_BYTES = 940 << 10
GOAL_MB = 96.0


def run(smoke: bool = False) -> list[Figure]:
    sessions, seconds = (4, 4.0) if smoke else (SESSIONS, 30.0)
    settings: dict[str, str | int] = {"track_activity_query_size": "1MB", "max_connections": SESSIONS + 20}
    with Cluster(settings=settings, durable=False) as cluster, own_directories(), _long_queries(cluster, sessions):
        with recording_agent(cluster.dsn()) as agent:
            time.sleep(seconds)
            peak = peak_mb(agent.pid)
        session = Path(agent.session or "")
        kept = sum(path.stat().st_size for path in session.rglob("*") if path.is_file())
        samples, silence_s = _answered(session)
    load = f"{sessions} sessions, each with a new statement of 0.94 MB every second, {seconds:g} s"
    return [
        Figure("agent resident at its peak, 40 sessions with queries of 0.94 MB", peak, "MB", GOAL_MB, load),
        Figure("the same: recording, per sample", kept / max(1, samples) / 1024, "kB", 128.0, f"{samples} samples"),
        Figure("the same: longest time without an answer about sessions", silence_s, "s", 5.0, ""),
    ]


def _answered(session: Path) -> tuple[int, float]:
    """Return the number of samples, and the longest time in seconds without a reading of the sessions."""
    recording = Recording.open(session)
    samples, read, longest_us = 0, recording.first_us, 0
    try:
        at: int | None = recording.first_us
        while at is not None:
            picture = recording.picture_at(at)
            sessions = None if picture is None else picture.latest.get("pg.activity")
            samples += 1
            longest_us = max(longest_us, at - read)
            if sessions is not None and sessions.part.status == "ok":
                read = at
            at = recording.step(at, +1)
    finally:
        recording.close()
    return samples, longest_us / 1e6


@contextmanager
def _long_queries(cluster: Cluster, sessions: int) -> Iterator[None]:
    stop = threading.Event()

    def work(number: int) -> None:
        with psycopg.connect(cluster.dsn(application_name="long"), autocommit=True) as connection:
            drawn = random.Random(number)
            while not stop.is_set():
                digits = drawn.randbytes(QUERY_BYTES // 2).hex()
                connection.pgconn.exec_(f"select pg_sleep(1), '{digits}'".encode())

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(sessions)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
