"""What retention removes, and above all what it never does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dba_console.core.errors import SessionError
from dba_console.recording.retention import prune, remove
from dba_console.recording.session_lookup import pin
from tests.unit.recording.recordings import meta, record, record_samples, recorder, ticks

DAY = 86_400.0
NOW_US = 2_000_000_000_000_000


def _session(sessions: Path, *, days_ago: float) -> Path:
    directory = record(sessions, ticks(3))
    at = NOW_US / 1e6 - days_ago * DAY
    for name in ("session.db", "session.samples"):
        os.utime(directory / name, (at, at))
    return directory


def _prune(sessions: Path, *, keep_s: float | None = None, max_bytes: int | None = None) -> set[str]:
    done = prune(sessions, keep_s=keep_s, max_bytes=max_bytes, now_us=NOW_US)
    assert done.failed == []
    return {candidate.path.name for candidate in done.removed}


def test_sessions_older_than_the_maximum_age_are_removed(tmp_path: Path) -> None:
    old, young = _session(tmp_path, days_ago=31), _session(tmp_path, days_ago=29)
    assert _prune(tmp_path, keep_s=30 * DAY) == {old.name}
    assert not old.exists()
    assert young.exists()


def test_without_limits_nothing_is_removed(tmp_path: Path) -> None:
    _session(tmp_path, days_ago=3000)
    assert _prune(tmp_path) == set()


def test_above_the_size_limit_the_oldest_are_removed(tmp_path: Path) -> None:
    abouts = [meta(), meta(), meta()]
    made = []
    for number, about in enumerate(abouts):
        from msgspec.structs import replace

        made.append(record(tmp_path, ticks(3), replace(about, start_wall_us=about.start_wall_us + number * 10**7)))
    from dba_console.recording.session_lookup import size_of

    keep_two = size_of(made[1]) + size_of(made[2])
    assert _prune(tmp_path, max_bytes=keep_two) == {made[0].name}


def test_a_pinned_session_is_never_removed(tmp_path: Path) -> None:
    old = _session(tmp_path, days_ago=3000)
    pin(old)
    assert _prune(tmp_path, keep_s=1.0, max_bytes=0) == set()
    with pytest.raises(SessionError, match="pinned"):
        remove(old)
    pin(old, False)
    assert _prune(tmp_path, keep_s=1.0) == {old.name}


def test_a_session_being_written_is_never_removed(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    record_samples(made, ticks(3))
    for name in ("session.db", "session.samples"):
        os.utime(made.directory / name, (1, 1))
    assert _prune(tmp_path, keep_s=1.0, max_bytes=0) == set()
    with pytest.raises(SessionError, match="another process"):
        remove(made.directory)
    made.close("done")


def test_files_not_ours_by_name_or_content_stay(tmp_path: Path) -> None:
    with_a_note = _session(tmp_path, days_ago=3000)
    (with_a_note / "postmortem.md").write_text("do not lose this")
    renamed = _session(tmp_path, days_ago=3000).rename(tmp_path / "the-big-incident")
    foreign = tmp_path / "20200101T000000Z-db1-1a2b3c4d"
    foreign.mkdir()
    (foreign / "session.db").write_bytes(b"SQLite format 3\0" + bytes(200))
    elsewhere = _session(tmp_path / "elsewhere", days_ago=3000)
    (tmp_path / "20200101T000000Z-db1-ffffffff").symlink_to(elsewhere)
    assert _prune(tmp_path, keep_s=1.0, max_bytes=0) == set()
    assert all(path.exists() for path in (with_a_note, renamed, foreign, elsewhere))


def test_files_of_steps_are_removed_with_their_session(tmp_path: Path) -> None:
    old = _session(tmp_path, days_ago=31)
    (old / "out").mkdir()
    (old / "out" / "pg_restore.1.log").write_text("x")
    assert _prune(tmp_path, keep_s=DAY) == {old.name}
