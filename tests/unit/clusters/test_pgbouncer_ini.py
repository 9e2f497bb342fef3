"""pgbouncer.ini led to another host: what names host and port changes, every other byte stays."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dba_console.clusters.pooler_file import change_host
from dba_console.core.errors import ConsoleError

FILE = """\
;; shop = host=old in a comment
[databases]
  shop = host=db1 port=5433 dbname=shop auth_user=ann password='it''s host=db1'
stock=dbname=stock
# stock = host=db1
spare =
other = host=elsewhere
* = host=db1 port=5433

[pgbouncer]
shop = host=db1
listen_port = 6432"""


@pytest.mark.parametrize(
    ("names", "before", "after"),
    [
        (["shop"], "shop = host=db1 port=5433 dbname", "shop = host=db2 port=5434 dbname"),
        (["stock"], "stock=dbname=stock", "stock=dbname=stock host=db2 port=5434"),
        (["spare"], "spare =", "spare =host=db2 port=5434"),
        (["other"], "other = host=elsewhere", "other = host=db2 port=5434"),
        (["not named there"], "* = host=db1 port=5433", "* = host=db2 port=5434"),
    ],
)
def test_only_host_and_port_of_the_named_database_change(names: list[str], before: str, after: str) -> None:
    assert change_host(FILE, names, "db2", "5434") == FILE.replace(before, after, 1)
    changed = change_host(FILE.replace("\n", "\r\n"), names, "db2", "5434")
    assert changed == FILE.replace(before, after, 1).replace("\n", "\r\n")


def test_without_names_all_entries_for_the_old_server_change() -> None:
    expected = FILE.replace("p = host=db1 port=5433", "p = host=db2 port=5434").replace(
        "* = host=db1 port=5433", "* = host=db2 port=5434"
    )
    assert change_host(FILE, [], "db2", "5434", old=("db1", "5433")) == expected
    assert change_host(expected, [], "db2", "5434", old=("db1", "5433")) == expected
    assert "other = host=db2 port=5432" in change_host(FILE, [], "db2", "5432", old=("elsewhere", "5432"))
    assert "stock=dbname=stock host=/run port=5432" in change_host(FILE, [], "/run", "5432", old=("", "5432"))


@pytest.mark.parametrize("written", ["'a b'=host=x", '"a b"=host=x', '"a ""b""" = host=x', "[databases]shop = host=x"])
def test_quoted_names_and_entries_after_a_section_name_are_read(written: str) -> None:
    name = "shop" if "shop" in written else 'a "b"' if '""' in written else "a b"
    assert change_host(f"[databases]\n{written}", [name], "y", "1") == f"[databases]\n{written[:-1]}y port=1"


def test_values_that_need_quotes_get_them_and_spaces_around_the_equals_sign_stay() -> None:
    text = "[databases]\na = host = '/old dir'  port =1\n"
    assert change_host(text, ["a"], "/it's here", "2") == "[databases]\na = host = '/it''s here'  port =2\n"


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        ("%include /etc/shop.ini\n[databases]\na=host=x", ["a"], 'line 1 includes "/etc/shop.ini"'),
        ("[databases]\na = host=x", ["b"], 'no entry for "b" in [databases], and no entry "*"'),
        ("[databases]\na = host=x,y", ["a"], "line 2: \"a\" has several hosts, x,y"),
        ("[databases]\na = host=x\tport=1", ["a"], 'connection string of "a" cannot be read from character 1 on'),
        ("[databases]\na = host='x'port=1", ["a"], "cannot be read"),
        ("[databases]\na = host", ["a"], "cannot be read"),
        ("[databases]\na = password='secret", ["a"], "cannot be read from character 1 on"),
        ("[databases]\nnonsense\n", ["a"], "line 2: PgBouncer cannot read this line"),
        ("[databases]\na = host=x", [], "the databases of the pooler are not configured"),
    ],
)  # fmt: skip
def test_an_unchangeable_entry_is_refused_with_its_line(text: str, names: list[str], message: str) -> None:
    with pytest.raises(ConsoleError, match=re.escape(message)) as refused:
        change_host(text, names, "y", "1")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(("host", "port"), [("", "1"), ("a,b", "1"), ("a\nb", "1"), ("a", "1 user=x"), ("a", "")])
def test_a_host_or_port_that_would_break_the_file_is_refused(host: str, port: str) -> None:
    with pytest.raises(ConsoleError, match="not one host and port"):
        change_host(FILE, ["shop"], host, port)


def test_no_database_with_the_old_server_is_an_error() -> None:
    with pytest.raises(ConsoleError, match="no database connects to db9:1"):
        change_host(FILE, [], "db2", "1", old=("db9", "1"))


_SPACES = st.text(" \t", max_size=2)
_NEWLINE = st.sampled_from(["\n", "\r\n", "\n\n", "\n \t\n"])
_NAME = st.from_regex(r"[a-z0-9_.-]{1,5}", fullmatch=True)
_VALUE = st.one_of(
    st.from_regex(r"[^\s',][^\s,]{0,6}", fullmatch=True).filter(lambda text: "\0" not in text),
    st.text(st.characters(exclude_characters="\n\t\v\f\r\0,"), min_size=1, max_size=6).map(
        lambda text: "'" + text.replace("'", "''") + "'"
    ),
)
_KEY = st.sampled_from(["dbname", "user", "password", "auth_user", "pool_size", "connect_query"])
_PAIRS = st.lists(st.tuples(_KEY, _VALUE), max_size=3)
_COMMENT = st.text(st.characters(exclude_characters="\n\0"), max_size=9).map(
    lambda text: ";[databases] a = host=x" + text
)


@given(
    before=st.lists(st.one_of(_COMMENT, st.just("[databases]"), st.just("[users]\nann = x")), max_size=4),
    name=_NAME, pairs=_PAIRS, after=_PAIRS, host=_VALUE, others=st.lists(st.tuples(_NAME, _PAIRS), max_size=3),
    space=_SPACES, newline=_NEWLINE, tail=st.sampled_from(["", "\n", "\n[pgbouncer]\nlisten_port = 1", "\r\n; end"]),
    to=st.sampled_from(["db2", "/run/it's here", "10.0.0.1"]),
)  # fmt: skip
def test_all_other_bytes_stay_and_a_second_call_changes_nothing(
    before: list[str], name: str, pairs: list[tuple[str, str]], after: list[tuple[str, str]], host: str,
    others: list[tuple[str, list[tuple[str, str]]]], space: str, newline: str, tail: str, to: str,
) -> None:  # fmt: skip
    assume(name not in [other for other, _ in others])
    lines = [*before, "[databases]", *(f"{other}={space}{_joined(found)}" for other, found in others)]
    head = newline.join(lines) + f"{newline}{space}{name}{space}={space}"
    text = f"{head}{_joined([*pairs, ('host', host), *after])}{space}{tail}"
    quoted = "'" + to.replace("'", "''") + "'" if " " in to else to
    changed = change_host(text, [name], to, "5433")
    assert changed == f"{head}{_joined([*pairs, ('host', quoted), *after])} port=5433{space}{tail}"
    assert change_host(changed, [name], to, "5433") == changed


def _joined(pairs: list[tuple[str, str]]) -> str:
    return "  ".join(f"{key}={value}" for key, value in pairs)
