"""The texts of a walkthrough: how a question is answered, what a wait shows, how prose is laid out."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from dba_console.recording.plan import Prose
from dba_console.runbooks.parse import markdown_tokens, prose_of
from dba_console.runbooks.run_view import Option, OutputLine, Question, RunTable, WaitView
from dba_console.runbooks.walkthrough_text import (
    how_to_answer,
    output_line,
    prose_lines,
    question_lines,
    values_table,
    waiting_lines,
)
from dba_console.watch.drawing.text_elements import line_text


def text(lines: object) -> list[str]:
    return [line_text(one) for one in lines]  # type: ignore[attr-defined]


def test_every_kind_of_question_shows_what_to_type() -> None:
    def asked(kind: str, **more: object) -> str:
        return how_to_answer(Question(id=1, kind=kind, text="?", **more))  # type: ignore[arg-type]

    assert asked("ack") == "Type `y` to confirm, n to decline."
    assert asked("start") == "Type `yes` to start, no to cancel."
    assert asked("second", expects="db2") == "Type `db2` to confirm."
    assert "recorded as a note" in asked("manual")
    assert asked("input", secret=True) == "Type the value; it is not shown and not recorded."
    options = (Option(key="retry", text="again"), Option(key="skip", text="go on", needs_reason=True))
    assert asked("failed", options=options) == "Type `retry` or `skip`; with a reason: `skip REASON`."


def test_an_option_that_needs_a_reason_says_so() -> None:
    options = (Option(key="skip", text="go on", needs_reason=True),)
    assert "  skip  go on  (with a reason)" in text(
        question_lines(Question(id=1, kind="failed", text="It failed.", options=options), 60)
    )


def test_a_wait_without_a_value_shows_that_it_is_unknown() -> None:
    assert text(waiting_lines(WaitView(text="a = 1", trend=(1.0, 2.0)), 60))[1] == "now ?  ▁▇"


def test_a_wait_shows_how_long_its_condition_has_held_and_its_next_read() -> None:
    reported = text(waiting_lines(WaitView(text="a = 1", holds_s=4, hold_for_s=30, timeout_s=600, left="unknown"), 60))
    assert "condition true for 4.0s of 30s" in reported and "remaining: unknown · timeout 10m" in reported


def test_hidden_rows_are_counted() -> None:
    table = RunTable(columns=("pid", "query"), rows=(("1", "select 1"),), total=212, title="who waits")
    assert text(values_table(table, 60)) == ["who waits", "pid query", "  1 select 1", "… 211 more rows"]


SLOTS = RunTable(
    columns=("slot_name", "slot_type", "inactive_since", "restart_lsn", "retained"),
    rows=tuple((f"old_replica_{at}", "physical", "2026-11-20 14:51:18 UTC", "0/3000148", "78.9 MB") for at in (1, 2)),
)


def test_a_few_rows_that_do_not_fit_are_transposed_and_nothing_is_cut() -> None:
    reported = text(values_table(SLOTS, 40, few=5))
    assert reported[0].startswith("─ 1 of 2 ─")
    assert "slot_name old_replica_1" in reported and "slot_name old_replica_2" in reported
    assert not any("…" in one for one in reported) and max(map(len, reported)) <= 40


def test_rows_that_fit_stay_side_by_side() -> None:
    assert text(values_table(SLOTS, 100, few=5))[0].startswith("slot_name     slot_type inactive_since")


def test_of_many_rows_times_are_dropped_before_identifying_columns_are_cut() -> None:
    head, first, *_, last = text(values_table(SLOTS, 46))
    assert "inactive_since" not in head and first.startswith("old_replica_1")
    assert last == "not shown, no space: inactive_since"


def test_of_many_rows_the_statement_is_cut_before_the_names() -> None:
    row = ("7", "a_role_of_some_length", "select " + "x" * 80)
    table = RunTable(columns=("pid", "usename", "query"), rows=(row,) * 6)
    assert "a_role_of_some_length" in text(values_table(table, 40))[1]


def test_a_time_of_today_is_shown_without_its_date_and_another_with_it() -> None:
    now = datetime.now().astimezone().replace(microsecond=0)
    table = RunTable(
        columns=("pid", "began"), rows=(("1", now.isoformat()), ("2", (now - timedelta(days=2)).isoformat()))
    )
    today, before = (one.split()[1:] for one in text(values_table(table, 60))[1:])
    assert today == [f"{now:%H:%M:%S}"] and before == [f"{now - timedelta(days=2):%m-%d}", f"{now:%H:%M:%S}"]


def test_the_durations_of_a_restore_keep_its_object_names_in_little_space() -> None:
    took = RunTable(
        columns=("of", "what", "took", "sum", "objects", "size", "rate"),
        rows=(("decided", "TABLE DATA public.items_of_orders", "5.9s", "", "", "41.3 MB", "7.0 MB/s"),),
    )
    narrow, wide = text(values_table(took, 52)), text(values_table(took, 100))
    assert "public.items_of_orders" in narrow[1] and "rate" not in narrow[0]
    assert "7.0 MB/s" in wide[1]


def test_progress_messages_of_a_program_are_not_warnings_and_its_errors_are() -> None:
    def style(said: str) -> str:
        return output_line(OutputLine(wall_us=0, tag="PGRESTORE", stream="e", text=said))[-1].style

    assert style('pg_restore: creating INDEX "public.orders_idx"') == ""
    assert style("pg_restore: error: could not execute query") == "warn"
    assert style("pg_restore: warning: errors ignored on restore: 1") == "warn"
    assert style("rsync: something") == "warn"


def prose(markdown: str) -> tuple[Prose, ...]:
    return prose_of(markdown_tokens(markdown))


def test_prose_is_refilled_and_lists_and_code_stay_as_written() -> None:
    markdown = (
        "One\nsentence with **weight**.\n\n- an item\n  that goes on\n  - and on\n\n    and on\n1. first\n\n"
        "```\n$ kept  as is\n```\n<!-- for authors -->\n\n### Heading\n\n| a | b |\n| 1 | 2 |\n\n> quoted\n"
    )
    assert text(prose_lines(prose(markdown), 30)) == [
        "One sentence with weight.", "", "· an item that goes on", "  · and on", "", "    and on", "1. first", "",
        "  $ kept  as is", "", "Heading", "", "| a | b |", "| 1 | 2 |", "", "> quoted",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("a *very* important (*this*) and **that**", "a very important (this) and that"),
        ("**`a*b` in bold** and `count(*)`, _so_", "`a*b` in bold and `count(*)`, so"),
        ("5 * 3 * 2, count(*), sum(*), rm *.gz *.lz4", "5 * 3 * 2, count(*), sum(*), rm *.gz *.lz4"),
        ("pg_dump_all, pg_stat_*, a*b*c, *unclosed", "pg_dump_all, pg_stat_*, a*b*c, *unclosed"),
        (
            "see [the manual](https://x.org/a) or <https://x.org/b>",
            "see the manual (https://x.org/a) or https://x.org/b",
        ),
    ],
)
def test_prose_is_shown_without_emphasis_marks_and_with_all_other_characters(written: str, read: str) -> None:
    assert text(prose_lines(prose(written), 80)) == [read]
