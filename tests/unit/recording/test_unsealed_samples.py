"""The newest samples, row by row."""

from __future__ import annotations

import pytest

from dba_console.recording.block_format import Damaged
from dba_console.recording.unsealed_samples import TailWriter, read_head, unpack
from dba_console.watch.samples.sample import encode_sample
from tests.unit.recording.recordings import ticks


def test_rows_come_back_with_the_first_of_their_block() -> None:
    encoded = [encode_sample(sample) for sample in ticks(3)]
    writer = TailWriter()
    rows = [writer.pack(seq, seq * 10, data) for seq, data in enumerate(encoded, start=7)]
    assert unpack(rows[0], None) == encoded[0]
    assert [unpack(row, encoded[0]) for row in rows[1:]] == encoded[1:]
    assert read_head(rows[2]) == (9, 90, 7)


def test_a_later_row_is_much_smaller_than_the_first() -> None:
    encoded = [encode_sample(sample) for sample in ticks(3, sessions=200)]
    writer = TailWriter()
    rows = [writer.pack(seq, seq, data) for seq, data in enumerate(encoded)]
    assert len(rows[1]) < len(encoded[1]) / 10


def test_a_row_cut_short_or_changed_is_refused() -> None:
    row = TailWriter().pack(1, 1, encode_sample(ticks(1)[0]))
    for at in range(0, len(row), 17):
        with pytest.raises(Damaged):
            unpack(row[:at], None)
        with pytest.raises(Damaged):
            unpack(row[:at] + bytes([row[at] ^ 1]) + row[at + 1 :], None)
