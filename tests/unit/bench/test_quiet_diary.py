"""The diary of a quiet hour gives the activities at any moment."""

from __future__ import annotations

from pathlib import Path

from bench.quiet_load.diary import Diary, Line, activities_at, read_diary, spells


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    diary = Diary(tmp_path / "diary.jsonl")
    diary.write("vacuum", "began")
    diary.write("vacuum", "failed", "canceled")
    diary.close()
    lines = read_diary(tmp_path / "diary.jsonl")
    assert [(line.activity, line.did, line.note) for line in lines] == [
        ("vacuum", "began", ""),
        ("vacuum", "failed", "canceled"),
    ]


def test_a_truncated_diary_is_read_up_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "diary.jsonl"
    path.write_text('{"at_us":1,"activity":"dump","did":"began"}\n{"at_us":2,"act')
    assert read_diary(path) == [Line(1, "dump", "began")]


def test_a_run_without_a_diary_has_an_empty_one(tmp_path: Path) -> None:
    assert read_diary(tmp_path / "none") == []


def test_of_two_activities_of_one_name_the_older_ends_first() -> None:
    lines = [
        Line(1, "dump", "began"), Line(2, "dump", "began"), Line(5, "dump", "ended"), Line(9, "dump", "failed"),
    ]  # fmt: skip
    assert [(spell.began_us, spell.ended_us) for spell in spells(lines)] == [(1, 5), (2, 9)]


def test_an_activity_without_an_end_is_active_from_its_start_on() -> None:
    happened = spells([Line(5_000_000, "standby connected", "began")])
    assert activities_at(happened, 4_000_000) == []
    assert activities_at(happened, 6_000_000) == ["standby connected"]


def test_an_activity_that_ended_long_before_explains_nothing() -> None:
    happened = spells([Line(0, "build", "began"), Line(10_000_000, "build", "ended")])
    assert activities_at(happened, 39_000_000) == ["build (ended 29 s before)"]
    assert activities_at(happened, 41_000_000) == []
