"""A recording in memory and a feed whose samples the test gives, both made of real samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dba_console.tui.feed import (
    AgentConnectionChanged,
    ChartPoint,
    FindingOrRunRequest,
    Mailbox,
    SampleArrived,
    Session,
)
from dba_console.tui.recording_reader import RecordingReader
from dba_console.watch.frames.chart_points import point_of
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.postgres import Activity, Sessions
from dba_console.watch.samples.sample import Sample, encode_sample
from tests import build

S = 1_000_000
START_US = build.NOW_US
BOOT = "boot-1"


def tick(number: int, *, sessions: int = 3, query: str = "select 1") -> Sample:
    """The sample of second `number`, with that many sessions, their pids from 100 on."""
    now_us = START_US + number * S
    rows = [
        Activity(
            100 + place, START_US - 9 * S, "client backend", "app", "alice", "psql", "[local]", "active",
            now_us - place * S, now_us - place * S, now_us, None, None, None, None, None, None, query,
        )
        for place in range(sessions)
    ]  # fmt: skip
    part = build.part("pg.activity", Sessions(now_us, rows), at_s=1000 + number)
    return build.sample(part, at_s=1000 + number, seq=number + 1, boot=BOOT, wall_us=now_us)


class MemoryRecording:
    """A recording in memory, with the interface of one on disk."""

    def __init__(self, samples: Sequence[Sample], events: Sequence[Event] = (), damage: str | None = None) -> None:
        self.samples = list(samples)
        self._events = list(events)
        self.damage = damage
        self.closed = False

    @property
    def first_us(self) -> int | None:
        return self.samples[0].wall_us if self.samples else None

    @property
    def last_us(self) -> int | None:
        return self.samples[-1].wall_us if self.samples else None

    def refresh(self) -> None:
        pass

    def _pictures(self) -> list[Picture]:
        pictures, picture = [], Picture()
        for sample in self.samples:
            picture = picture.with_sample(sample)
            pictures.append(picture)
        return pictures

    def picture_at(self, wall_us: int) -> Picture | None:
        return next((picture for picture in reversed(self._pictures()) if picture.wall_us <= wall_us), None)

    def step(self, wall_us: int, direction: int) -> int | None:
        times = [sample.wall_us for sample in self.samples]
        beyond = [at for at in times if (at - wall_us) * direction > 0]
        return min(beyond, key=lambda at: abs(at - wall_us)) if beyond else None

    def points(self, from_us: int, to_us: int) -> list[ChartPoint]:
        return [(one.wall_us, dict(point_of(one))) for one in self._pictures() if from_us <= one.wall_us <= to_us]

    def events(self, from_us: int | None = None, to_us: int | None = None, limit: int | None = None) -> Sequence[Event]:
        found = [
            event
            for event in self._events
            if (from_us is None or event.wall_us >= from_us) and (to_us is None or event.wall_us <= to_us)
        ]
        return found if limit is None else found[-limit:]

    def close(self) -> None:
        self.closed = True


def seconds_after_start(past: object, text: str, now_us: int | None) -> int:
    """`+5s`: seconds after the first sample; enough of TIME for these tests."""
    return START_US + int(text.strip("+s")) * S


class ManualFeed:
    """A feed whose samples the test gives. With `past`, its recording answers from there."""

    hosts: Sequence[Session] = ()

    def __init__(self, past: MemoryRecording | None = None, *, can_go_live: bool = True) -> None:
        self.can_go_live = can_go_live
        self.mailbox = Mailbox()
        self.session = Session("db2", "db2", START_US, 1.0, 600.0)
        self.recording = None if past is None else RecordingReader(lambda: past, self.mailbox, seconds_after_start)
        self.refusal: str | None = None if can_go_live else "this is a recording: nothing can be added"
        self.sent: list[tuple[str, str, int | None]] = []
        self.asked: list[FindingOrRunRequest] = []
        self._picture = Picture()

    def start(self) -> None:
        self.mailbox.put(AgentConnectionChanged("attached" if self.can_go_live else "recording"))

    def give(self, *samples: Sample) -> None:
        for sample in samples:
            self._picture = self._picture.with_sample(sample)
            self.mailbox.put(SampleArrived(encode_sample(sample), point_of(self._picture)))

    def send(self, kind: Literal["mark", "note"], text: str, occurred_us: int | None) -> str | None:
        self.sent.append((kind, text, occurred_us))
        return self.refusal

    def send_request(self, request: FindingOrRunRequest) -> str | None:
        self.asked.append(request)
        return self.refusal

    def close(self) -> None:
        if self.recording is not None:
            self.recording.close()
