"""The hash chain: only the next record fits, and the message says what is wrong."""

from __future__ import annotations

import pytest

from dba_console.recording.hash_chain import ChainError, ChainHead

HEAD = ChainHead.of("a").after_all([b"1", b"2"])


def test_the_next_record_is_accepted() -> None:
    after = HEAD.after(b"3")
    assert after.seq == 3
    assert HEAD.check(b"3", 3, after.hash, "event", "note") == after


@pytest.mark.parametrize(
    ("record", "seq", "hash_", "expected"),
    [
        (b"3", 4, HEAD.after(b"3").hash, "event 3: missing"),
        (b"x", 3, HEAD.after(b"3").hash, r"event 3: changed or inserted.*\(note\)"),
        (b"3", 3, ChainHead.of("b").after_all([b"1", b"2", b"3"]).hash, "event 3: changed or inserted"),
        (b"3", 2, HEAD.after(b"3").hash, "event 3: its number is 2"),
    ],
)
def test_any_other_record_is_refused(record: bytes, seq: int, hash_: str, expected: str) -> None:
    with pytest.raises(ChainError, match=expected):
        HEAD.check(record, seq, hash_, "event", "note")
