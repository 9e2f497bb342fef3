"""Make the foreign keys of an archive in a database that has everything else, several at once.

What it says on stderr is worded as `pg_restore -v -j` words it, so that whoever follows a restore can follow this.
A run that was broken off is begun again: keys that are there already are not added twice, only validated.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
from msgspec import Struct

from dba_console.actions.bounded import Bounded
from dba_console.archives.entries import Entry, Plan
from dba_console.archives.place import open_archive
from dba_console.dumping.key_sql import (
    Key,
    after_keys,
    decoded,
    heaviest_first,
    key_of,
    keys_of,
    next_of,
    statements,
)
from dba_console.dumping.programs import find_program
from dba_console.dumping.server import client_environment, opened, said
from dba_console.errors import ConnectError, ConsoleError, UsageError
from dba_console.harmless import clean

_HINT = "restore them by pg_restore itself, without a list"

Told = Callable[[str], None]
APPLICATION = "pg_restore: keys"
_SETTINGS = {
    "statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0", "search_path": "",
    "row_security": "off", "jit": "off",
}  # fmt: skip
"""As pg_restore sets them; and no machine code, which a check that compares two numbers a row does not pay for."""
_STANDS = """select c.convalidated from pg_catalog.pg_constraint c
where c.conrelid = pg_catalog.to_regclass(%s) and c.conname = %s and c.contype = 'f'"""


class Made(Struct, frozen=True, kw_only=True):
    """What came of it."""

    keys: int
    """In the archive."""
    valid: int
    there: int
    """Of these, valid before we came."""
    errors: int


def list_without_keys(archive: Path, bindir: str | None) -> str:
    """For pg_restore -L: everything but the foreign keys and what needs them. Raises ArchiveError, ConsoleError."""
    plan, program = _opened(archive), find_program("pg_restore", bindir=bindir).path
    left_out = after_keys(plan.entries) | {entry.dump_id for entry in keys_of(plan.entries)}
    lines = _output([program, "-l", str(archive)], set()).splitlines()
    return b"\n".join(line for line in lines if _id(line) not in left_out).decode(errors="surrogateescape")


def make_keys(archive: Path, conninfo: str, jobs: int, *, bindir: str | None, told: Told) -> Made:
    """Add every foreign key, validate them `jobs` at a time, restore what waited for them.

    An error is told, counted and gone on from, as pg_restore does. Raises ArchiveError, ConsoleError where nothing can
    be begun.
    """
    plan, program = _opened(archive), find_program("pg_restore", bindir=bindir).path
    keys = _keys(program, archive, plan)
    work = _Work(conninfo, told)
    if keys:
        with work.session() as session:
            waiting = [key for key in keys if work.added(session, key)]
            work.validate([key for key in waiting if key.validate is not None], max(1, jobs))
    errors = work.errors + _afterwards(program, archive, plan, conninfo, told)
    return Made(keys=len(keys), valid=work.valid, there=work.there, errors=errors)


class _Work:
    """One run of it."""

    def __init__(self, conninfo: str, told: Told) -> None:
        self._conninfo, self._told = conninfo, told
        self._turn = threading.Condition()
        self._busy: set[str] = set()
        self._sessions: list[Bounded] = []
        self._broken: BaseException | None = None
        self._over = False
        self.errors = self.valid = self.there = 0

    def session(self) -> Bounded:
        return opened(self._conninfo, APPLICATION)

    def added(self, session: Bounded, key: Key) -> bool:
        """Whether it stands and is still to be validated. A key made in one step is made here, alone."""
        with _transaction(session):
            stands = session.execute(_STANDS, (key.table, key.name)).fetchone()
        if stands is not None and stands["convalidated"]:
            self.there += 1
            self.valid += 1
            return False
        if stands is not None:
            return True
        if key.validate is None:
            self._done(session, key, key.add)
            return False
        return self._tried(session, key, key.add)

    def validate(self, keys: Sequence[Key], jobs: int) -> None:
        """Returns when all are done. Interrupted, it ends the statements under way first."""
        waiting = heaviest_first(keys)
        workers = [threading.Thread(target=self._worker, args=(waiting,)) for _ in range(min(jobs, len(waiting)))]
        try:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        except BaseException:
            self._stop()
            for worker in workers:
                if worker.ident is not None:
                    worker.join()
            raise
        if self._broken is not None:
            raise self._broken

    def _worker(self, waiting: list[Key]) -> None:
        try:
            with self.session() as session:
                with self._turn:
                    self._sessions.append(session)
                while (key := self._taken(waiting)) is not None:
                    try:
                        self._done(session, key, key.validate or "")
                    finally:
                        self._let_go(key)
        except BaseException as error:
            with self._turn:
                self._broken, self._over = self._broken or error, True
                self._turn.notify_all()

    def _taken(self, waiting: list[Key]) -> Key | None:
        with self._turn:
            while waiting and not self._over:
                key = next_of(waiting, self._busy)
                if key is not None:
                    waiting.remove(key)
                    self._busy.add(key.table)
                    return key
                self._turn.wait()
            return None

    def _let_go(self, key: Key) -> None:
        with self._turn:
            self._busy.discard(key.table)
            self._turn.notify_all()

    def _stop(self) -> None:
        with self._turn:
            self._over = True
            self._turn.notify_all()
            for session in self._sessions:
                session.cancel()

    def _done(self, session: Bounded, key: Key, sql: str) -> None:
        """Check a key's rows, and say when that began and ended."""
        item = f"item {key.entry.dump_id} {key.entry.desc} {clean(key.entry.tag)}"
        self._say(f"launching {item}")
        good = self._tried(session, key, sql)
        with self._turn:
            self.valid += good
            self._told(f"pg_restore: finished {item}")  # as pg_restore says it: also of one that failed

    def _tried(self, session: Bounded, key: Key, sql: str) -> bool:
        try:
            with _transaction(session):
                session.execute(sql.encode())
        except psycopg.OperationalError as error:
            if session.closed or self._over:
                raise ConnectError(f"the connection was lost: {said(error)}") from error
            self._failed(key, error, sql)
            return False
        except psycopg.Error as error:
            self._failed(key, error, sql)
            return False
        return True

    def _failed(self, key: Key, error: psycopg.Error, sql: str) -> None:
        entry = key.entry
        lines = [
            f"from TOC entry {entry.dump_id}; 2606 {entry.oid or 0} {entry.desc} {clean(entry.tag)} "
            f"{clean(entry.owner or '-')}",
            f"error: could not execute query: ERROR:  {said(error)}",
        ]
        if sql == key.validate:
            lines.append(f"warning: {clean(key.name)} stays NOT VALID: only rows written from now on are checked")
        with self._turn:
            self.errors += 1
            for line in lines:
                self._told(f"pg_restore: {line}")

    def _say(self, text: str) -> None:
        with self._turn:
            self._told(f"pg_restore: {text}")


@contextmanager
def _transaction(session: Bounded) -> Iterator[None]:
    """One with pg_restore's settings: behind a pooler they would else be handed to others."""
    session.begin()
    try:
        for name, value in _SETTINGS.items():
            session.execute("select pg_catalog.set_config(%s, %s, true)", (name, value))
        yield
        session.execute("COMMIT")
    finally:
        if not session.closed:
            session.rollback()


def _opened(archive: Path) -> Plan:
    plan = open_archive(archive)
    if plan.format == "plain":
        raise UsageError(
            f"{archive} is SQL: its keys cannot be told from the rest of it",
            hint="a directory or custom archive has a table of contents",
        )
    return plan


def _keys(program: str, archive: Path, plan: Plan) -> list[Key]:
    """Raises ConsoleError where the archive's keys are not as they are understood here: then pg_restore is to do it."""
    entries = keys_of(plan.entries)
    if not entries:
        return []
    script = _output([program, "-L", "{list}", "-f", "-", str(archive)], {entry.dump_id for entry in entries})
    sql = decoded(script)
    added = [one for one in statements(sql) if one.startswith("ALTER TABLE ")]
    if len(added) != len(entries):
        raise ConsoleError(
            f"the archive lists {len(entries)} foreign keys and has {len(added)} statements for them", hint=_HINT
        )
    return [_understood(entry, one) for entry, one in zip(entries, added, strict=True)]


def _understood(entry: Entry, statement: str) -> Key:
    key = key_of(entry, statement)
    if key is None:
        raise ConsoleError(f"this adds no foreign key as it is written here: {clean(statement[:200])}", hint=_HINT)
    return key


def _afterwards(program: str, archive: Path, plan: Plan, conninfo: str, told: Told) -> int:
    """What waited for the keys, by pg_restore; how many errors that met."""
    after = after_keys(plan.entries)
    if not after:
        return 0
    with tempfile.TemporaryDirectory(prefix="dba-console-keys-") as place:
        chosen = _chosen(program, archive, after, Path(place))
        argv = [program, "-v", "-L", str(chosen), "-d", "", str(archive)]
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", check=False,
            env=client_environment(conninfo),
        )  # fmt: skip
    for line in done.stderr.splitlines():
        told(line)
    if done.returncode not in (0, 1):
        raise ConsoleError(f"pg_restore ended with {done.returncode}: {clean(done.stderr[-300:].strip())}")
    return done.stderr.count("error: could not execute query")


def _output(argv: Sequence[str], ids: set[int]) -> bytes:
    """What pg_restore prints; `{list}` in its arguments becomes a list of these entries."""
    with tempfile.TemporaryDirectory(prefix="dba-console-keys-") as place:
        argv = list(argv)
        if "{list}" in argv:
            argv[argv.index("{list}")] = str(_chosen(argv[0], Path(argv[-1]), ids, Path(place)))
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        )
    if done.returncode:
        raise ConsoleError(f"pg_restore cannot read {argv[-1]}: {clean(done.stderr.decode(errors='replace').strip())}")
    return done.stdout


def _chosen(program: str, archive: Path, ids: set[int], place: Path) -> Path:
    """A list for pg_restore -L, in the archive's order."""
    lines = [line for line in _output([program, "-l", str(archive)], set()).splitlines() if _id(line) in ids]
    path = place / "list"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def _id(line: bytes) -> int | None:
    number = line.partition(b";")[0]
    return int(number) if number.isdigit() else None
