"""Create the foreign keys of an archive in a database that has everything else, several in parallel.

Messages on stderr have the form of `pg_restore -v -j`, so that programs that follow a restore can follow this.
It can be restarted after an interruption: existing keys are not added again, only validated.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
from msgspec import Struct

from dba_console.actions.deadline_connection import DeadlineConnection
from dba_console.core.errors import ConnectError, ConsoleError, Unsupported
from dba_console.core.sanitize import clean
from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.toc import DumpEntry
from dba_console.jobs.tools.client_programs import (
    find_program,
    foreign_key_entries,
    key_dependents,
    open_with_toc,
    pg_restore_output,
    write_list,
)
from dba_console.jobs.tools.server_connection import client_environment, error_message, open_connection

# The foreign keys of an archive as SQL, each in two steps: add NOT VALID, then VALIDATE.
#
# pg_restore adds and checks a key in one statement that locks both tables, so keys that reference the same table are
# checked one after the other. The lock of VALIDATE does not block the validation of other keys.

_NAME = r'(?:"(?:[^"]|"")+"|[^\s"."]+)'
_ADD_CONSTRAINT = re.compile(
    rf"ALTER TABLE (?P<only>ONLY )?(?P<table>{_NAME}(?:\.{_NAME})?)\s+ADD CONSTRAINT (?P<name>{_NAME}) FOREIGN KEY ",
    re.DOTALL,
)
_NOT_VALIDATED = re.compile(r"\b(NOT VALID|NOT ENFORCED)$")


class ForeignKey(Struct, frozen=True, kw_only=True):
    """A foreign key to create."""

    entry: DumpEntry
    table: str
    """As in SQL, with its schema."""
    name: str
    """As in the catalog."""
    add: str
    validate: str | None
    """None: `add` is sufficient: a key of a partitioned table, or one that must stay NOT VALID or NOT ENFORCED."""


def split_statements(sql: str) -> Iterator[str]:
    r"""Yield the statements of a restore script without semicolons, comments and psql meta-commands.

    >>> list(split_statements('\\restrict a\n-- x;\nSET a = \'b;\';\n\nALTER TABLE "c;\n-- d"\n    ADD e;\n'))
    ["SET a = 'b;'", 'ALTER TABLE "c;\n-- d"\n    ADD e']
    """
    held: list[str] = []
    for piece in re.finditer(r"""--[^\n]*|^\\[^\n]*|"(?:[^"]|"")*"|'(?:[^']|'')*'|;|[^-"';\\]+|.""", sql, re.MULTILINE):
        text = piece[0]
        if text == ";":
            if whole := "".join(held).strip():
                yield whole
            held = []
        elif not (text.startswith("--") or (text.startswith("\\") and not "".join(held).strip())):
            held.append(text)


def decode_script(script: bytes) -> str:
    r"""Decode a restore script by its own client_encoding. Raises Unsupported if Python does not know that encoding.

    >>> decode_script(b"SET client_encoding = 'LATIN1';\n-- caf\xe9")[-4:]
    'café'
    """
    found = re.search(rb"^SET client_encoding = '(\w+)';", script, re.MULTILINE)
    name = found[1].decode() if found else "UTF8"
    codec = "utf-8" if name == "SQL_ASCII" else re.sub(r"^WIN(?=\d)", "cp", name)
    try:
        return script.decode(codec)
    except (LookupError, UnicodeDecodeError):
        raise Unsupported(
            f"cannot decode the archive's names: encoding {name} is not supported",
            hint="restore the foreign keys with pg_restore, without a list",
        ) from None


def parse_foreign_key(entry: DumpEntry, statement: str) -> ForeignKey | None:
    """Return the foreign key that the statement adds, None if it adds none."""
    found = _ADD_CONSTRAINT.match(statement)
    if found is None:
        return None
    name = found["name"]
    plain = name[1:-1].replace('""', '"') if name.startswith('"') else name
    whole = found["only"] is None or _NOT_VALIDATED.search(statement) is not None
    return ForeignKey(
        entry=entry,
        table=found["table"],
        name=plain,
        add=statement if whole else f"{statement} NOT VALID",
        validate=None if whole else f"ALTER TABLE ONLY {found['table']} VALIDATE CONSTRAINT {name}",
    )


def heaviest_first(keys: Sequence[ForeignKey]) -> list[ForeignKey]:
    """Sort by table size, largest first: keys of one table have to wait for each other."""
    return sorted(keys, key=lambda key: -(key.entry.weight or 0.0))


def next_key(waiting: Sequence[ForeignKey], busy: set[str]) -> ForeignKey | None:
    """Return the next key to validate: its table must not be busy. None: every waiting key's table is busy."""
    return next((key for key in waiting if key.table not in busy), None)


_HINT = "restore them with pg_restore, without a list"

Report = Callable[[str], None]
APPLICATION = "pg_restore: keys"
NAMES_SHOWN = 3
"""Maximum running keys named in a line of progress."""
_SETTINGS = {
    "statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0", "search_path": "",
    "row_security": "off", "jit": "off",
}  # fmt: skip
"""As pg_restore sets them; and jit off, which costs more than it saves in such a simple check."""
_CONSTRAINT_STATE = """select c.convalidated from pg_catalog.pg_constraint c
where c.conrelid = pg_catalog.to_regclass(%s) and c.conname = %s and c.contype = 'f'"""


class KeysResult(Struct, frozen=True, kw_only=True):
    """The result of creating the keys."""

    keys: int
    """In the archive."""
    valid: int
    there: int
    """Of these, already valid at the start."""
    errors: int


def create_keys(archive: Path, conninfo: str, jobs: int, *, bindir: str | None, report: Report) -> KeysResult:
    """Add every foreign key, validate `jobs` at a time, then restore the entries that depend on them.

    Like pg_restore, it reports and counts an error and continues. Raises ArchiveError, ConsoleError if it cannot start.
    """
    plan, program = open_with_toc(archive), find_program("pg_restore", bindir=bindir).path
    keys = _read_keys(program, archive, plan)
    work = _KeyCreation(conninfo, report)
    if keys:
        with work.session() as session:
            work.keys = len(keys)
            waiting = [key for key in keys if work.add_key(session, key)]
            work.validate([key for key in waiting if key.validate is not None], max(1, jobs))
    errors = work.errors + _restore_dependents(program, archive, plan, conninfo, report)
    return KeysResult(keys=len(keys), valid=work.valid, there=work.there, errors=errors)


class _KeyCreation:
    """Adds and validates the keys of one archive with several sessions."""

    def __init__(self, conninfo: str, report: Report) -> None:
        self._conninfo, self._report = conninfo, report
        self._condition = threading.Condition()
        self._busy: set[str] = set()
        self._sessions: list[DeadlineConnection] = []
        self._fatal_error: BaseException | None = None
        self._stopping = False
        self._running: dict[int, str] = {}
        """Keys being validated, by dump id."""
        self.errors = self.valid = self.there = self.ended = self.keys = 0

    def session(self) -> DeadlineConnection:
        return open_connection(self._conninfo, APPLICATION)

    def add_key(self, session: DeadlineConnection, key: ForeignKey) -> bool:
        """Add a key; return whether it still needs validation. A key without a validation step is completed here."""
        with _transaction(session):
            existing = session.execute(_CONSTRAINT_STATE, (key.table, key.name)).fetchone()
        if existing is not None and existing["convalidated"]:
            self.there += 1
            self.valid += 1
            return False
        if existing is not None:
            return True
        if key.validate is None:
            self._validate_key(session, key, key.add)
            return False
        return self._try_execute(session, key, key.add)

    def validate(self, keys: Sequence[ForeignKey], jobs: int) -> None:
        """Validate the keys; return when all are done. If interrupted, cancel the running statements first."""
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
        if self._fatal_error is not None:
            raise self._fatal_error

    def _worker(self, waiting: list[ForeignKey]) -> None:
        try:
            with self.session() as session:
                with self._condition:
                    self._sessions.append(session)
                while (key := self._take_key(waiting)) is not None:
                    try:
                        self._validate_key(session, key, key.validate or "")
                    finally:
                        self._release_key(key)
        except BaseException as error:
            with self._condition:
                self._fatal_error, self._stopping = self._fatal_error or error, True
                self._condition.notify_all()

    def _take_key(self, waiting: list[ForeignKey]) -> ForeignKey | None:
        with self._condition:
            while waiting and not self._stopping:
                key = next_key(waiting, self._busy)
                if key is not None:
                    waiting.remove(key)
                    self._busy.add(key.table)
                    return key
                self._condition.wait()
            return None

    def _release_key(self, key: ForeignKey) -> None:
        with self._condition:
            self._busy.discard(key.table)
            self._condition.notify_all()

    def _stop(self) -> None:
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
            for session in self._sessions:
                session.cancel()

    def _validate_key(self, session: DeadlineConnection, key: ForeignKey, sql: str) -> None:
        """Validate a key, and report start and end."""
        item = f"item {key.entry.dump_id} {key.entry.desc} {clean(key.entry.tag)}"
        with self._condition:
            self._running[key.entry.dump_id] = clean(key.name)
            self._report_with_progress(f"launching {item}")
        good = self._try_execute(session, key, sql)
        with self._condition:
            self.valid += good
            self.ended += 1
            del self._running[key.entry.dump_id]
            self._report_with_progress(f"finished {item}")  # like pg_restore, also after a failure

    def _try_execute(self, session: DeadlineConnection, key: ForeignKey, sql: str) -> bool:
        try:
            with _transaction(session):
                session.execute(sql.encode())
        except psycopg.OperationalError as error:
            if session.closed or self._stopping:
                raise ConnectError(f"connection lost: {error_message(error)}") from error
            self._report_error(key, error, sql)
            return False
        except psycopg.Error as error:
            self._report_error(key, error, sql)
            return False
        return True

    def _report_error(self, key: ForeignKey, error: psycopg.Error, sql: str) -> None:
        entry = key.entry
        lines = [
            f"from TOC entry {entry.dump_id}; 2606 {entry.oid or 0} {entry.desc} {clean(entry.tag)} "
            f"{clean(entry.owner or '-')}",
            f"error: could not execute query: ERROR:  {error_message(error)}",
        ]
        if sql == key.validate:
            lines.append(f"warning: {clean(key.name)} stays NOT VALID: only rows written from now on are checked")
        with self._condition:
            self.errors += 1
            for line in lines:
                self._report(f"pg_restore: {line}")

    def _report_with_progress(self, text: str) -> None:
        self._report(f"pg_restore: {text}")
        names = list(self._running.values())
        more = [f"{len(names) - NAMES_SHOWN} more"] if len(names) > NAMES_SHOWN else []
        running = f"; running: {', '.join([*names[:NAMES_SHOWN], *more])}" if names else ""
        self._report(f"dba-console: {self.there + self.ended} of {self.keys} foreign keys are done{running}")


@contextmanager
def _transaction(session: DeadlineConnection) -> Iterator[None]:
    """Open a transaction with pg_restore's settings, local to it: a pooler would pass session settings to others."""
    session.begin()
    try:
        for name, value in _SETTINGS.items():
            session.execute("select pg_catalog.set_config(%s, %s, true)", (name, value))
        yield
        session.execute("COMMIT")
    finally:
        if not session.closed:
            session.rollback()


def _read_keys(program: str, archive: Path, plan: DumpPlan) -> list[ForeignKey]:
    """Read the archive's foreign keys. Raises ConsoleError if a statement is not recognized; pg_restore must then
    restore them."""
    entries = foreign_key_entries(plan.entries)
    if not entries:
        return []
    script = pg_restore_output([program, "-L", "{list}", "-f", "-", str(archive)], {entry.dump_id for entry in entries})
    sql = decode_script(script)
    added = [one for one in split_statements(sql) if one.startswith("ALTER TABLE ")]
    if len(added) != len(entries):
        raise ConsoleError(
            f"the archive lists {len(entries)} foreign keys but has {len(added)} statements for them", hint=_HINT
        )
    return [_require_key(entry, one) for entry, one in zip(entries, added, strict=True)]


def _require_key(entry: DumpEntry, statement: str) -> ForeignKey:
    key = parse_foreign_key(entry, statement)
    if key is None:
        raise ConsoleError(f"cannot parse this foreign key statement: {clean(statement[:200])}", hint=_HINT)
    return key


def _restore_dependents(program: str, archive: Path, plan: DumpPlan, conninfo: str, report: Report) -> int:
    """Restore the entries that depend on foreign keys with pg_restore; return the number of errors."""
    after = key_dependents(plan.entries)
    if not after:
        return 0
    with tempfile.TemporaryDirectory(prefix="dba-console-keys-") as place:
        chosen = write_list(program, archive, after, Path(place))
        argv = [program, "-v", "-L", str(chosen), "-d", "", str(archive)]
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", check=False,
            env=client_environment(conninfo),
        )  # fmt: skip
    for line in done.stderr.splitlines():
        report(line)
    if done.returncode not in (0, 1):
        raise ConsoleError(f"pg_restore exited with {done.returncode}: {clean(done.stderr[-300:].strip())}")
    return done.stderr.count("error: could not execute query")
