"""What the programs say is taken for what it is, and for nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.jobs.archives.program_messages import read_lines


@pytest.mark.parametrize(
    ("line", "kind", "dump_id", "desc", "schema", "tag"),
    [
        ('pg_dump: dumping contents of table "public.parent"', "start", None, "TABLE DATA", "public", "parent"),
        ("pg_dump: finished item 2660 TABLE DATA parent", "done", 2660, "TABLE DATA", None, "parent"),
        ('pg_dump: saving large objects "16454..16455"', "start", None, "BLOBS", None, "16454..16455"),
        ("pg_dump: saving large objects", "start", None, "BLOBS", None, ""),
        ("pg_restore: processing BLOBS", "start", None, "BLOBS", None, ""),
        ("pg_restore: launching item 2481 CONSTRAINT child pk", "launch", 2481, "CONSTRAINT", None, "child pk"),
        ("pg_restore: processing item 6 SCHEMA Weird", "launch", 6, "SCHEMA", None, "Weird"),
        ("pg_restore: processing missed item 7 ACL t", "launch", 7, "ACL", None, "t"),
        ("pg_restore: skipping item 9 ACL t", "skip", 9, "ACL", None, "t"),
        ('pg_restore: creating FK CONSTRAINT "public.c c_fkey"', "start", None, "FK CONSTRAINT", "public", "c c_fkey"),
        ('pg_restore: creating SCHEMA "a.b"', "start", None, "SCHEMA", None, "a.b"),
        ('pg_restore: processing data for table "s.t"', "start", None, "TABLE DATA", "s", "t"),
        ("pg_restore: executing SEQUENCE SET s1", "start", None, "SEQUENCE SET", None, "s1"),
        ("pg_restore: from TOC entry 6; 2615 16384 SCHEMA Weird postgres", "other", 6, "SCHEMA", None, ""),
        ("pg_restore: entering main parallel loop", "phase", None, None, None, ""),
        ("pg_dump: reading triggers", "phase", None, None, None, ""),
        ('/usr/bin/pg_restore: creating INDEX "public.i"', "start", None, "INDEX", "public", "i"),
        ("pg_restore: executing SELECT pg_catalog.set_config('search_path', '', false);", "other", *[None] * 3, ""),
        ('pg_restore: erstelle INDEX "public.i"', "other", None, None, None, ""),
        ('INFO:  analyzing "public.parent"', "start", None, "ANALYZE", "public", "parent"),
    ],
)
def test_a_line_is_parsed_into_object_and_state(
    line: str, kind: str, dump_id: int | None, desc: str | None, schema: str | None, tag: str
) -> None:
    message = read_lines(line)[0]
    assert (message.kind, message.dump_id, message.desc, message.schema, message.tag) == (
        kind,
        dump_id,
        desc,
        schema,
        tag,
    )


def test_errors_and_ignored_errors_are_distinguished() -> None:
    error = read_lines('pg_restore: error: could not execute query: ERROR:  relation "t" already exists')[0]
    assert (error.kind, error.program) == ("error", "pg_restore")
    assert error.text == 'could not execute query: ERROR:  relation "t" already exists'
    ignored = read_lines("pg_restore: warning: errors ignored on restore: 39")[0]
    assert (ignored.kind, ignored.count) == ("errors_ignored", 39)
    warning = read_lines("pg_dump: warning: there are circular foreign-key constraints on this table:")[0]
    assert warning.kind == "other"


@pytest.mark.parametrize(
    ("line", "kind", "desc", "count"),
    [
        ("COPY 1000", "done", "TABLE DATA", 1000),
        ("CREATE INDEX", "done", "INDEX", None),
        ("ALTER TABLE", "done", None, None),
        ("SET", "done", None, None),
        ('psql:/tmp/plain.sql:28: ERROR:  schema "s" already exists', "error", None, None),
        ('ERROR:  relation "t" already exists', "error", None, None),
        ("psql:<stdin>:3: error: backslash commands are restricted", "error", None, None),
        ("psql:<stdin>:28: FEHLER:  Schema »s« existiert bereits", "error", None, None),
        ("psql:<stdin>:29: ОШИБКА:  отношение уже существует", "error", None, None),
        ("psql:<stdin>:30: HINWEIS:  Tabelle wird übersprungen", "other", None, None),
        ("COPY that with care", "other", None, None),
        ("(1 row)", "other", None, None),
    ],
)
def test_a_psql_statement_ends_with_its_tag_and_errors_with_their_line(
    line: str, kind: str, desc: str | None, count: int | None
) -> None:
    message = read_lines(line)[0]
    assert (message.kind, message.desc, message.count) == (kind, desc, count)


def test_two_processes_on_one_line_are_two_messages() -> None:
    message = read_lines("pg_restore: pg_restore: finished item 3 INDEX ipg_restore: launching item 4 INDEX j")
    assert [(one.kind, one.dump_id, one.tag) for one in message] == [("done", 3, "i"), ("launch", 4, "j")]


@pytest.mark.parametrize(
    ("line", "kind", "dump_id", "name"),
    [
        (" finished item 3264 INDEX ATTACH part2_pkey", "done", 3264, "part2_pkey"),
        ("finished item 3264 INDEX ATTACH part2_pkey", "done", 3264, "part2_pkey"),
        ('dumping contents of table "public.t"', "start", None, "public.t"),
        (" from TOC entry 6; 2615 16384 SCHEMA s postgres", "other", 6, "s postgres"),
        ("error: could not execute query: ERROR:  no", "error", None, ""),
        ("could not execute query: ERROR:  no", "error", None, ""),
    ],
)
def test_a_line_end_split_off_by_another_process_is_still_read(
    line: str, kind: str, dump_id: int | None, name: str
) -> None:
    message = read_lines(line)[0]
    assert (message.kind, message.dump_id, message.name) == (kind, dump_id, name)


def test_a_program_named_inside_quotes_is_part_of_the_name() -> None:
    message = read_lines('pg_restore: creating TABLE "public.x pg_restore: finished item 3 INDEX y"')
    assert [(one.kind, one.tag) for one in message] == [("start", "x pg_restore: finished item 3 INDEX y")]


@given(st.text(max_size=300))
def test_any_line_is_parsed(line: str) -> None:
    for start in ("", "pg_restore: ", "pg_dump: finished item "):
        for message in read_lines(start + line):
            assert message.kind
