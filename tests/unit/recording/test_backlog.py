"""What waits to be written counts as behind only where the disk does not have it yet."""

from __future__ import annotations

import pytest

from dba_console.recording import backlog as backlog_module
from dba_console.recording.backlog import EVENTS, Backlog, BlockEnd, SampleRow
from dba_console.watch.samples.event import Event


def _row(seq: int, base_seq: int = 1) -> SampleRow:
    return SampleRow(seq, base_seq, seq * 1_000_000, seq * 1_000_000, b"row")


def test_a_block_whose_samples_are_written_is_not_pending() -> None:
    backlog = Backlog()
    for seq in range(1, 60):
        backlog.put_sample(_row(seq))
    backlog.written(backlog.take())
    backlog.put_sample(_row(60))
    assert backlog.oldest_mono_us() == 60_000_000
    backlog.written(backlog.take())
    backlog.put_sample(BlockEnd(1, b"points"))
    assert backlog.oldest_mono_us() is None and not backlog.empty()


def test_the_oldest_block_is_dropped_and_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_module, "SAMPLE_BYTES", 20)
    backlog = Backlog()
    for seq in range(1, 4):
        backlog.put_sample(_row(seq))
    batch = backlog.take()
    backlog.written(batch._replace(samples=batch.samples[:1]))
    backlog.put_sample(BlockEnd(1, b"points"))
    for seq in range(4, 20):
        backlog.put_sample(_row(seq, base_seq=4))
    batch = backlog.take()
    assert [item.base_seq for item in batch.samples] == [4] * 16
    assert [(gap.from_us, gap.to_us, gap.samples) for gap in batch.gaps] == [(2_000_000, 3_000_000, 2)]
    assert backlog.dropped == 2


def test_events_beyond_the_limit_are_counted() -> None:
    backlog = Backlog()
    for number in range(EVENTS + 3):
        backlog.put_event(Event(wall_us=number, kind="note", text="x"))
    assert backlog.dropped_events == 3
    assert [event.wall_us for event in backlog.take().events] == list(range(EVENTS))
