"""Blocks of samples: what goes in comes out, whatever it is, and damage never passes for data."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dba_console.core.errors import Damaged
from dba_console.recording.sample_block import (
    HEAD_SIZE,
    BlockWriter,
    SampleBlock,
    SampleRecord,
    key_sample,
    scan_records,
)
from dba_console.watch.samples.sample import Part, Sample, encode_sample
from tests.unit.recording.recordings import live_pictures, same_picture, ticks

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=6),
)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=12,
)
parts = st.tuples(
    st.sampled_from(["pg.activity", "host.cpu", "of another version"]),
    st.sampled_from(["ok", "denied", "error"]),
    st.one_of(st.none(), st.text(max_size=10)),
    st.integers(0, 1 << 50),
    st.integers(0, 1 << 30),
    st.one_of(st.just("none"), st.lists(trees, max_size=5)),
)
sample_specs = st.lists(
    st.tuples(
        st.integers(0, 1 << 40),
        st.integers(0, 1 << 55),
        st.integers(0, 1 << 50),
        st.lists(parts, max_size=4),
        st.sampled_from(["", "run1", "run2"]),
    ),
    min_size=1,
    max_size=6,
)


def _sample(spec: tuple[Any, ...]) -> Sample:
    seq, wall_us, mono_us, given_parts, boot = spec
    made = [
        Part(name, status, note, at_us, took_us, None if tree == "none" else Raw(msgspec.msgpack.encode(tree)))
        for name, status, note, at_us, took_us, tree in given_parts
    ]
    return Sample(seq, wall_us, mono_us, made, boot)


def _plain(samples: list[Sample]) -> list[Any]:
    return [msgspec.msgpack.decode(encode_sample(sample), strict=False) for sample in samples]


def _records(samples: list[Sample], *, keyed: bool = False) -> list[bytes]:
    writer, records = BlockWriter(), []
    for number, (sample, picture) in enumerate(zip(samples, live_pictures(samples), strict=True)):
        key = keyed and number == 0
        encoded = encode_sample(key_sample(sample, picture) if key else sample)
        records.append(writer.add(sample.seq, sample.wall_us, encoded))
    return records


def _block(samples: list[Sample], *, keyed: bool = False) -> SampleBlock:
    return SampleBlock(b"".join(_records(samples, keyed=keyed)))


@given(sample_specs)
def test_a_block_returns_every_stored_sample(specs: list[tuple[Any, ...]]) -> None:
    samples = [_sample(spec) for spec in specs]
    assert _plain(_block(samples).samples()) == _plain(samples)


def test_two_minutes_of_a_busy_server_are_read_back_unchanged() -> None:
    samples = ticks(120, sessions=50)
    assert _plain(_block(samples).samples()) == _plain(samples)


def test_an_idle_tick_costs_only_what_changed() -> None:
    records = _records(ticks(60, sessions=200))
    assert sum(map(len, records[30:])) < 30 * 700


def test_an_unfinished_block_is_read_like_a_full_one() -> None:
    samples = ticks(7)
    first, *others = _records(samples)
    block = SampleBlock(first)
    for number, record in enumerate(others, start=2):
        block.append(SampleRecord.read(record))
        assert _plain(block.samples()) == _plain(samples[:number])
    assert block.span == (1, 7, samples[0].wall_us, samples[-1].wall_us)


def test_frames_start_again_where_the_agent_was_restarted() -> None:
    samples = ticks(5) + ticks(5, first=6, boot="run2")
    block = _block(samples)
    assert same_picture(block.picture(6), live_pictures(samples)[6])
    assert "pg.server" not in block.picture(6).current


def test_the_tick_at_a_time_is_the_last_one_not_after_it() -> None:
    samples = ticks(70)
    block = _block(samples)
    assert block.index_at(samples[3].wall_us + 999_999) == 3
    assert block.index_at(samples[0].wall_us - 1) == -1
    assert block.index_at(samples[69].wall_us + 10**9) == 69
    assert [block.index_at(sample.wall_us) for sample in samples] == list(range(70))


@given(st.data())
def test_a_damaged_or_truncated_block_is_read_up_to_the_damage(data: st.DataObject) -> None:
    block = bytearray(b"".join(_SMALL))
    at = data.draw(st.integers(0, len(block) - 1))
    if data.draw(st.booleans()):
        block[at] ^= data.draw(st.integers(1, 255))
    else:
        del block[at:]
    ends = [sum(map(len, _SMALL[: number + 1])) for number in range(len(_SMALL))]
    left = sum(end <= at for end in ends)
    if left == 0:
        with pytest.raises(Damaged):
            SampleBlock(bytes(block))
        return
    found = SampleBlock(bytes(block))
    assert _plain(found.samples()) == _plain(ticks(left, sessions=2))
    assert (found.damage is None) == (len(block) == ends[left - 1])


def test_a_record_is_not_read_without_the_previous_ones() -> None:
    first, second, third = _SMALL
    other = _records(ticks(3, first=20))
    with pytest.raises(Damaged):
        SampleBlock(second)
    for stranger in (third, other[1]):
        block = SampleBlock(first)
        with pytest.raises(Damaged, match="missing"):
            block.append(SampleRecord.read(stranger))
        assert len(block) == 1


@given(st.binary(max_size=200), st.integers(0, 1 << 31))
def test_invalid_data_with_a_valid_checksum_is_refused(packed: bytes, size: int) -> None:
    import struct
    import zlib

    head = struct.pack("<4sQQqIII", b"DBS1", 1, 1, 5, 0, size, len(packed))
    record = head + struct.pack("<I", zlib.crc32(packed, zlib.crc32(head))) + packed
    assert len(record) == HEAD_SIZE + len(packed)
    with pytest.raises(Damaged):
        SampleBlock(record).samples()


def test_records_between_damaged_parts_are_found() -> None:
    data = b"DBS1 not a record" + _SMALL[0] + _SMALL[1][:-1] + b"x" + _SMALL[2]
    assert [record.seq for _, record in scan_records(data)] == [1, 3]


_SMALL = _records(ticks(3, sessions=2))
