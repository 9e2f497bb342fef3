"""Arguments are understood as their programs understand them, and shown without what is secret in them."""

from __future__ import annotations

import shlex
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.jobs.following.program_arguments import (
    COMMAND_LIMIT,
    LONG_OPTIONS,
    SHORT_OPTIONS,
    ProgramArguments,
    command_text,
    connection_database,
    parse_arguments,
    without_secrets,
)


def parsed(line: str) -> ProgramArguments:
    words = shlex.split(line)
    return parse_arguments(words[0], words)


@pytest.mark.parametrize(
    ("line", "format", "jobs", "compression"),
    [
        ("pg_dump -Fd -j4 -f d", "directory", 4, "gzip"),
        ("pg_dump -F d -j 4 -f d", "directory", 4, "gzip"),
        ("pg_dump --format=directory --jobs=4", "directory", 4, "gzip"),
        ("pg_dump --format directory --job 4", "directory", 4, "gzip"),
        ("pg_dump -vFdj8 x", "directory", None, "gzip"),
        ("pg_dump -Fc -Z zstd:3", "custom", None, "zstd:3"),
        ("pg_dump -Fc -Zlz4", "custom", None, "lz4"),
        ("pg_dump -Fc -Z0", "custom", None, "none"),
        ("pg_dump -Fc --compress=gzip:level=9", "custom", None, "gzip:level=9"),
        ("pg_dump -Fc -9", "custom", None, "gzip"),
        ("pg_dump", "plain", None, "none"),
        ("pg_dump -Z 6", "plain", None, "gzip:6"),
        ("pg_dump -FT", "tar", None, "none"),
        ("pg_restore -j 2 -d x a.dump", None, 2, None),
        ("pg_restore -F c -d x a.dump", "custom", None, None),
        ("pg_basebackup -Ft -z -D /b", "tar", None, "gzip"),
        ("pg_basebackup -D /b -Z client-lz4", "plain", None, "lz4"),
        ("psql -f x -j", None, None, None),
    ],
)
def test_format_jobs_and_compression_are_parsed(
    line: str, format: str | None, jobs: int | None, compression: str | None
) -> None:
    reported = parsed(line)
    assert (reported.format, reported.compression) == (format, compression)
    assert reported.jobs == jobs or "-vFdj8" in line, "-F takes the rest of its word: a format `dj8`, as getopt has it"


@pytest.mark.parametrize(
    ("line", "database"),
    [
        ("pg_dump shop", "shop"),
        ("pg_dump --no-sync --section data shop", "shop"),
        ("pg_dump -h db1 -p 5433 -U app shop", "shop"),
        ("pg_dump -d shop -hdb1", "shop"),
        ("pg_dump 'host=db1 port=5433 dbname=shop user=app password=x'", "shop"),
        ("pg_dump -d 'host=db1 no keyword' -p 5433", None),
        ("pg_dump -d postgresql://app:x@db1:5433/shop -U other", "shop"),
        ("pg_dump -d postgresql:///shop?host=/tmp", "shop"),
        ("pg_dump --dbname=postgresql://[::1]:5433/a%20b", "a b"),
        ("pg_dump -d postgresql://app@db1", None),
        ("pg_dump", None),
        ("pg_restore -d shop dump.c", "shop"),
        ("pg_restore dump.c", None),
        ("psql shop app", "shop"),
        ("psql -d shop app", "shop"),
        ("psql -U a shop -- b", "shop"),
        ("vacuumdb -a --maintenance-db=template1", "template1"),
        ("pg_basebackup -d 'host=db1 user=rep dbname=x' -D /b", None),
        ("pgcopydb clone --source postgresql://a:x@db1/s --target postgresql://b:x@db2/t", "t"),
    ],
)
def test_the_target_database_is_parsed(line: str, database: str | None) -> None:
    assert parsed(line).database == database


def test_input_output_and_selection_are_parsed() -> None:
    assert parsed("pg_dump -f /b/x shop").output == "/b/x"
    assert parsed("pg_dump -f- shop").output is None
    assert parsed("pg_basebackup --pgdata /b").output == "/b"
    assert parsed("psql -f a.sql -fb.sql").input == "b.sql"
    assert parsed("psql -f -").input is None
    restore = parsed("pg_restore -v -v -c -C -e --data-only -t one -t two -L list -d x d")
    assert (restore.input, restore.to_database, restore.use_list) == ("d", True, "list")
    assert (restore.verbose, restore.clean) == (2, True)
    assert (restore.data_only, restore.tables, restore.selected) == (True, ("one", "two"), True)
    assert parsed("pg_restore -l d").lists and not parsed("pg_restore -d x d").lists
    assert parsed("pg_dump --exclude-table-data=log shop").selected
    assert not parsed("pg_dump --no-owner shop").selected


def test_an_option_of_another_version_does_not_hide_the_database() -> None:
    reported = parsed("pg_dump --of-tomorrow whatever -Fc shop")
    assert reported.database == "shop" and reported.format == "custom"
    assert parsed("pg_dump -v9 whatever shop").database == "shop"


def test_nothing_is_reported_of_an_unknown_program() -> None:
    assert parsed("rsync -a b c") == ProgramArguments()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("/usr/lib/postgresql/15/bin/pg_dump -Fc shop", "pg_dump -Fc shop"),
        ("pg_dump -d 'host=h password=''s3cret'' user=u'", "pg_dump -d 'host=h password=******** user=u'"),
        ("pg_dump postgresql://u:s3cret@h/d?sslpassword=s3cret2", "'postgresql://u:********@h/d?sslpassword=********'"),
        ("pg_dump -Ws3cret shop", "-W'********'"),
        ("pg_dump -W s3cret", "pg_dump -W '********'"),
        ("pg_dump --password=s3cret", "--password='********'"),
        ("pg_dump --password s3cret -d shop", "--password '********' -d shop"),
        ("psql -v pw=s3cret -v ON_ERROR_STOP=1 shop", "-v 'pw=********' -v ON_ERROR_STOP=1 shop"),
        ("psql --set=pw=s3cret shop", "'--set=pw=********' shop"),
        ("psql --set pw=s3cret shop", "--set 'pw=********' shop"),
        ("psql -vpw=s3cret shop", "'-vpw=********' shop"),
        ("psql -d a -U b s3 s3cret", "psql -d a -U b ******** ********"),
        ("psql -c \"ALTER ROLE a PASSWORD 's3cret'\"", "********"),
        ("pgcopydb clone --source=postgresql://u:s3/c@ret@h/d", "postgresql://u:********@h/d"),
    ],
)
def test_secrets_are_masked_everywhere(line: str, shown: str) -> None:
    words = shlex.split(line)
    text = command_text(words[0].rpartition("/")[2], words)
    assert "s3cret" not in text and "s3" not in text
    assert shown.replace("'********'", "********") in text.replace("'********'", "********")


SECRETS = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=6, max_size=20).map(lambda s: "§~" + s)


@given(SECRETS, st.sampled_from(sorted(SHORT_OPTIONS)))
def test_no_form_of_a_connection_string_reveals_a_password(secret: str, kind: str) -> None:
    escaped = secret.replace("\\", "\\\\").replace("'", "\\'")
    forms = [
        f"host=h password='{escaped}' dbname=d", f"password = {escaped}", f"postgresql://u:{secret}@h/d",
        f"postgresql://u:{quote(secret, safe='')}@h/d", f"postgres://h/d?user=u&password={quote(secret, safe='')}",
    ]  # fmt: skip
    option = "--source" if kind == "pgcopydb" else "--dbname"
    for form in forms:
        for words in ([kind, option, form], [kind, f"{option}={form}"], [kind, form]):
            for text in (command_text(kind, words), parse_arguments(kind, words).database or ""):
                assert "§~" not in text and quote("§~", safe="") not in text, (form, text)


@given(st.lists(st.text(max_size=30), max_size=12), st.sampled_from([*sorted(SHORT_OPTIONS), "rsync"]))
def test_no_arguments_break_the_parser(words: list[str], kind: str) -> None:
    parse_arguments(kind, [kind, *words])
    text = command_text(kind, [kind, *words])
    assert len(text) <= COMMAND_LIMIT and "\n" not in text


def test_a_connection_string_is_distinguished_from_a_name() -> None:
    assert connection_database("shop") == "shop"
    assert connection_database("host=a\\ b dbname = 'it\\'s' service=s") == "it's"
    assert connection_database("postgresql://a,b:5433/x?target_session_attrs=any") == "x"
    assert without_secrets("host=h sslpassword=x scram_client_key=y passfile=/f") == (
        "host=h sslpassword=******** scram_client_key=******** passfile=/f"
    )


def test_every_short_form_of_a_long_option_belongs_to_its_program() -> None:
    for kind, names in LONG_OPTIONS.items():
        letters = {word.partition("=")[2] for word in names.split() if "=" in word}
        assert letters <= set(SHORT_OPTIONS[kind]) - {":"} | {"j"}, kind


def test_an_argument_too_long_to_scan_for_secrets_is_not_shown() -> None:
    script = "a" * 60_000 + " password=x" + " " * 60_000
    assert command_text("psql", ["psql", "-c", script]) == "psql -c '********'"
