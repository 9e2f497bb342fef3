"""Blocks: what goes in comes out, whatever it is, and damage never passes for data."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dba_console.recording.block_format import Damaged
from dba_console.recording.block_reader import BlockReader
from dba_console.recording.block_writer import BlockWriter
from dba_console.recording.unsealed_samples import key_sample
from dba_console.watch.samples.sample import Part, Sample, encode_sample
from tests.unit.recording.recordings import live_pictures, same_picture, ticks

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.integers(0, 100).map(lambda n: n * 1024),
    st.integers(1_795_000_000_000_000, 1_795_000_000_000_500),
    st.floats(allow_nan=False),
    st.integers(0, 10_000).map(lambda n: n / 100),
    st.text(max_size=8),
    st.sampled_from(["idle", "active", "select 1"]),
    st.binary(max_size=6),
)
rows = st.lists(st.lists(scalars, max_size=4), max_size=5)
keyed_rows = st.lists(st.tuples(st.integers(1, 6), scalars, scalars).map(list), max_size=6)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
        st.dictionaries(st.integers(0, 3), inner, max_size=3),
        rows,
        keyed_rows,
    ),
    max_leaves=12,
)
readings = st.one_of(st.lists(trees, max_size=5), trees)
parts = st.tuples(
    st.sampled_from(["pg.activity", "host.cpu", "of another version"]),
    st.sampled_from(["ok", "denied", "error"]),
    st.one_of(st.none(), st.text(max_size=10)),
    st.integers(0, 1 << 50),
    st.integers(0, 1 << 30),
    st.one_of(st.just("none"), readings),
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


def _plain(sample: Sample) -> Any:
    return msgspec.msgpack.decode(encode_sample(sample), strict=False)


def _sealed(samples: list[Sample], *, keyed: bool = False) -> bytes:
    writer = BlockWriter()
    for sample, picture in zip(samples, live_pictures(samples), strict=True):
        writer.add(key_sample(sample, picture) if keyed and writer.wants_key else sample)
    return writer.seal()


@given(sample_specs)
def test_a_block_gives_back_every_sample_put_into_it(specs: list[tuple[Any, ...]]) -> None:
    samples = [_sample(spec) for spec in specs]
    back = BlockReader(_sealed(samples)).samples()
    assert [_plain(sample) for sample in back] == [_plain(sample) for sample in samples]


def test_a_minute_of_a_busy_server_comes_back_as_it_was() -> None:
    samples = ticks(60, sessions=50)
    back = BlockReader(_sealed(samples)).samples()
    assert [_plain(sample) for sample in back] == [_plain(sample) for sample in samples]


def test_an_idle_tick_costs_only_what_changed() -> None:
    short, long = _sealed(ticks(30, sessions=200)), _sealed(ticks(60, sessions=200))
    assert len(long) - len(short) < 30 * 400


def test_every_picture_of_a_block_is_the_one_seen_live() -> None:
    samples = ticks(70)
    block = BlockReader(_sealed(samples, keyed=True))
    for index, live in enumerate(live_pictures(samples)):
        assert same_picture(block.picture(index), live)


def test_a_picture_starts_anew_where_the_agent_was_restarted() -> None:
    samples = ticks(5) + ticks(5, first=6, boot="run2")
    block = BlockReader(_sealed(samples))
    live = live_pictures(samples)
    assert same_picture(block.picture(6), live[6])
    assert "pg.server" not in block.picture(6).current


def test_the_tick_at_a_time_is_the_last_one_not_after_it() -> None:
    samples = ticks(70)
    block = BlockReader(_sealed(samples))
    assert block.index_at(samples[3].wall_us) == 3
    assert block.index_at(samples[3].wall_us + 999_999) == 3
    assert block.index_at(samples[0].wall_us - 1) == -1
    assert block.index_at(samples[69].wall_us + 10**9) == 69
    assert [block.index_at(sample.wall_us) for sample in samples] == list(range(70))


@given(st.data())
def test_a_block_with_any_byte_changed_or_missing_is_refused(data: st.DataObject) -> None:
    block = bytearray(_SMALL)
    at = data.draw(st.integers(0, len(block) - 1))
    if data.draw(st.booleans()):
        block[at] ^= data.draw(st.integers(1, 255))
    else:
        del block[at:]
    with pytest.raises(Damaged):
        BlockReader(bytes(block))


@given(st.binary(max_size=200))
def test_a_payload_that_is_nonsense_behind_a_good_checksum_is_refused(payload: bytes) -> None:
    from dba_console.recording.block_format import BlockHead, pack

    with pytest.raises(Damaged):
        BlockReader(pack(BlockHead(3, 1, 1, 2), payload)).samples()


_SMALL = _sealed(ticks(3, sessions=2))
