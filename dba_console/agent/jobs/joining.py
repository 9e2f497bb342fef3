"""Which program a session belongs to: by the other end of its connection, else by name and moment, if only one fits."""

from __future__ import annotations

from collections.abc import Iterable

from dba_console.agent.jobs.look import Question
from dba_console.agent.jobs.watch import may_be_job, names_of
from dba_console.probes.jobs.peers import Peers
from dba_console.probes.jobs.programs import Program
from dba_console.samples.postgres import Activity

SOON_US = 10_000_000
"""A program connects so soon after its start; only used where the other end of a connection cannot be seen."""
ALL_EVERY = 5
"""Looks after which all sessions are asked about: a program may go by another name (PGAPPNAME)."""
LOCAL = frozenset({"[local]", "127.0.0.1", "::1", "127.0.0.1/32", "::1/128"})
_Key = tuple[int, int]


def key_of(program: Program) -> _Key:
    """What tells this program from any other that ever has its pid."""
    return program.pid, program.start_ticks


class Joined:
    """What one look found: sessions of each program, and what is not known of the others."""

    def __init__(self) -> None:
        self.sessions: dict[_Key, list[Activity]] = {}
        self.worker: dict[int, int] = {}
        """Session -> the process of the program that it serves."""
        self.by_name: set[_Key] = set()
        """Programs joined by name and moment alone."""
        self.alone: list[Activity] = []
        """Sessions of jobs without a program on this host."""
        self.notes: dict[int, str] = {}
        """Why there is none."""


class Joining:
    """Look by look. Used by one thread."""

    def __init__(self) -> None:
        self._peers = Peers()
        self._looks = 0
        self._known: dict[tuple[int, int | None], _Key] = {}

    def join(self, question: Question, programs: list[Program]) -> Joined:
        """The sessions of the question given to these programs."""
        joined = Joined()
        rows = {row.pid: row for row in question.sessions.rows if row.leader_pid is None}
        candidates = may_be_job(question.sessions.rows, question.operations, names_of(question.sessions.rows))
        if question.here and programs:
            self._by_connection(rows, candidates, programs, joined)
        taken = set(joined.worker)
        if programs:
            self._by_name([rows[pid] for pid in sorted(candidates - taken) if pid in rows], programs, joined)
        for mine in joined.sessions.values():
            taken.update(row.pid for row in mine)
        # The sessions were read before the programs: one whose program has ended since is no job of its own.
        running = {key_of(one) for one in programs}
        over = {session for session, key in self._known.items() if key not in running}
        alone = [rows[pid] for pid in sorted(candidates - taken) if pid in rows]
        joined.alone = [row for row in alone if _identity(row) not in over]
        self._known = {(row.pid, row.backend_start): key for key, mine in joined.sessions.items() for row in mine}
        return joined

    def _by_connection(
        self, rows: dict[int, Activity], candidates: frozenset[int], programs: list[Program], joined: Joined
    ) -> None:
        self._looks += 1
        asked: Iterable[int] = candidates | {pid for pid, row in rows.items() if _identity(row) in self._known}
        if self._looks % ALL_EVERY == 1 and len(self._known) < len(programs):
            asked = [pid for pid, row in rows.items() if row.backend_type in ("client backend", "walsender")]
        owners = {pid: program for program in programs for pid in program.pids}
        peers = self._peers.read(sorted(asked), [pid for program in programs for pid in program.pids])
        for backend, process in peers.items():
            if backend in rows and process in owners:
                joined.worker[backend] = process
                joined.sessions.setdefault(key_of(owners[process]), []).append(rows[backend])
        joined.notes = dict(self._peers.notes)

    def _by_name(self, left: list[Activity], programs: list[Program], joined: Joined) -> None:
        """Where only one program without a session and one moment fit, it is that one."""
        for row in left:
            if row.client not in LOCAL or row.pid in joined.worker or row.backend_start is None:
                continue
            fitting = [one for one in programs if _fits(one, row) and self._open(one, row, joined)]
            if len(fitting) == 1:
                key = key_of(fitting[0])
                joined.by_name.add(key)
                joined.sessions.setdefault(key, []).append(row)
                joined.notes.pop(row.pid, None)

    def _open(self, program: Program, row: Activity, joined: Joined) -> bool:
        known = self._known.get(_identity(row))
        if known is not None:
            return known == key_of(program)
        if key_of(program) in joined.sessions and key_of(program) not in joined.by_name:
            return False  # its connections can be seen, and this is none of them
        workers = program.arguments.jobs or 1
        started = (row.backend_start or 0) - program.started_us
        return started + 1_000_000 >= 0 and (started < SOON_US or workers > 1 or program.kind == "pg_dumpall")


def _fits(program: Program, row: Activity) -> bool:
    asked = program.arguments.database
    return program.kind == row.application != "psql" and (
        asked is None or row.database is None or asked == row.database
    )


def _identity(row: Activity) -> tuple[int, int | None]:
    return row.pid, row.backend_start
