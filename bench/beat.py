"""The heartbeat of a measurement until the console's own is there."""

from __future__ import annotations

import threading
import time

import psycopg

from bench.pair import Pair

EVERY_S = 0.01


class Beat:
    """Writes and reads through the pooler a hundred times a second; `gaps`: longest time without one that came back."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._stop = threading.Event()
        self.gaps = {"write": 0.0, "read": 0.0}
        self.errors = {"write": 0, "read": 0}
        self._threads = [
            threading.Thread(target=self._run, args=("write", b"update public.beat set at = now()"), daemon=True),
            threading.Thread(target=self._run, args=("read", b"select 1"), daemon=True),
        ]

    def __enter__(self) -> Beat:
        with psycopg.connect(self._pair.clients, autocommit=True, prepare_threshold=None) as connection:
            connection.execute(
                "create table if not exists public.beat (at timestamptz);"
                "truncate public.beat; insert into public.beat values (now())"
            )
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)

    def _run(self, kind: str, sql: bytes) -> None:
        connection = None
        last = time.monotonic()
        while not self._stop.is_set():
            try:
                if connection is None:
                    connection = psycopg.connect(
                        self._pair.clients, autocommit=True, prepare_threshold=None, connect_timeout=5
                    )
                connection.execute(sql)
                now = time.monotonic()
                self.gaps[kind] = max(self.gaps[kind], now - last)
                last = now
            except psycopg.Error:
                self.errors[kind] += 1
                if connection is not None:
                    connection.close()
                connection = None
            self._stop.wait(EVERY_S)
        if connection is not None:
            connection.close()
