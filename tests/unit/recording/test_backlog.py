"""What waits to be written counts as behind only where the disk does not have it yet."""

from __future__ import annotations

from dba_console.recording.backlog import EVENTS, Backlog, SealedBlock, TailRow
from dba_console.recording.sample_block import BlockEntry
from dba_console.watch.samples.event import Event


def _row(seq: int) -> TailRow:
    return TailRow(seq, seq * 1_000_000, seq * 1_000_000, b"row")


def _block(last_seq: int) -> SealedBlock:
    return SealedBlock(BlockEntry(1, last_seq, 1_000_000, last_seq * 1_000_000), last_seq, b"block", b"points")


def test_a_sealed_block_of_written_samples_is_not_behind() -> None:
    backlog = Backlog()
    for seq in range(1, 60):
        backlog.put_row(_row(seq))
    backlog.written(backlog.take())
    backlog.put_row(_row(60))
    backlog.put_block(_block(60))
    assert backlog.oldest_mono_us() == 60_000_000


def test_a_sealed_block_of_unwritten_samples_is_behind_since_the_first_of_them() -> None:
    backlog = Backlog()
    for seq in range(1, 4):
        backlog.put_row(_row(seq))
    backlog.put_block(_block(3))
    backlog.put_row(_row(4))
    assert backlog.oldest_mono_us() == 1_000_000
    backlog.written(backlog.take())
    assert backlog.oldest_mono_us() is None


def test_events_beyond_what_is_kept_are_counted() -> None:
    backlog = Backlog()
    for number in range(EVENTS + 3):
        backlog.put_event(Event(wall_us=number, kind="note", text="x"))
    assert backlog.dropped_events == 3
    assert [event.wall_us for event in backlog.take().events] == list(range(EVENTS))
