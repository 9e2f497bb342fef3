"""Names of OIDs: queried again each minute, and texts built from them are out of date only after a change."""

from __future__ import annotations

import pytest

from dba_console.watch.probes.postgres.binary_results import ResultRows, Row
from dba_console.watch.probes.postgres.oid_names import KEEP_US, OidNames
from dba_console.watch.sessions.decoder import COLUMNS, ActivityDecoder

ROLE, DATABASE, TABLE = 10, 5, 16385


def answer(role: bytes = b"app") -> list[Row]:
    return [
        (b"role", ROLE, role, None, None, None, None),
        (b"database", DATABASE, b"shop", None, b"UTF8", None, None),
        (b"relation", TABLE, b"public", b"orders", None, 7, 1),
    ]


def known_names() -> OidNames:
    names = OidNames(DATABASE, b"shop", "UTF8")
    names.forget_old(0)
    assert (names.role(ROLE), names.database(DATABASE), names.relation(DATABASE, TABLE)) == (None, None, "shop/16385")
    names.store(answer())
    assert (names.role(ROLE), names.database(DATABASE)) == ("app", "shop")
    assert names.relation(DATABASE, TABLE) == "public.orders"
    return names


def test_a_rename_is_visible_after_a_minute_and_the_old_name_is_shown_until_the_answer() -> None:
    names = known_names()
    version, due = names.version, []
    for now_us in (KEEP_US - 1, KEEP_US):
        names.forget_old(now_us)
        due.append(names.has_unknown)
    assert due == [False, True] and names.role(ROLE) == "app"
    names.store(answer(b"app_2")[:2])
    assert names.role(ROLE) == "app_2" and names.version > version


def test_unchanged_names_do_not_invalidate_texts() -> None:
    names = known_names()
    version = names.version
    names.forget_old(KEEP_US)
    names.store(answer()[:2])
    assert names.version == version
    assert names.relation(DATABASE, TABLE) == "shop/16385"  # requested again only if a row refers to it
    names.store(answer()[2:])
    assert names.version > version


def test_a_dropped_role_loses_its_name_and_unreadable_names_are_not_stored() -> None:
    names = known_names()
    names.forget_old(KEEP_US)
    names.store(answer()[1:2])
    assert names.role(ROLE) is None and names.database(DATABASE) == "shop"
    version = names.version
    names.forget_old(2 * KEEP_US)
    names.stop_asking()
    assert names.database(DATABASE) is None and names.version > version


def session(pid: int, *, changed: int, query: bytes = b"END;", state: bytes = b"idle") -> Row:
    return (
        pid, 1, b"client backend", DATABASE, ROLE, b"pool", None, -1, state, None, changed - 1, changed, b"Client",
        b"ClientRead", None, None, None, None, query, len(query),
    )  # fmt: skip


def test_a_session_decoded_gradually_equals_one_decoded_at_once() -> None:
    names = known_names()
    kept = ActivityDecoder(names)
    for rows in (
        [session(1, changed=5), session(2, changed=5)],
        [session(1, changed=9), session(2, changed=5)],
        [session(1, changed=9, query=b"BEGIN", state=b"idle in transaction"), session(2, changed=12)],
        [session(3, changed=20), session(1, changed=21, state=b"active")],
    ):
        read = ResultRows(rows, tuple((name, 0) for name in COLUMNS))
        assert kept.decode(read, 30, 1024) == ActivityDecoder(names).decode(read, 30, 1024)


def test_sessions_with_a_column_inserted_are_not_decoded() -> None:
    read = ResultRows([session(1, changed=5)], tuple((name, 0) for name in ("ssl", *COLUMNS)))
    with pytest.raises(ValueError, match="columns"):
        ActivityDecoder(known_names()).decode(read, 30, 1024)
