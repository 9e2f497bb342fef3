"""Which program a session belongs to: by the other end of its connection, else by name and moment, if only one fits."""

from __future__ import annotations

from collections.abc import Iterable

from dba_console.agent.jobs.job_detection import application_names, find_possible_jobs
from dba_console.agent.jobs.observation import ObservationRequest
from dba_console.probes.jobs.running_programs import RunningProgram
from dba_console.probes.jobs.session_processes import SessionProcesses
from dba_console.samples.postgres import Activity

CONNECT_WITHIN_US = 10_000_000
"""A program connects so soon after its start; only used where the other end of a connection cannot be seen."""
FULL_SCAN_EVERY = 5
"""Looks after which all sessions are asked about: a program may go by another name (PGAPPNAME)."""
LOCAL = frozenset({"[local]", "127.0.0.1", "::1", "127.0.0.1/32", "::1/128"})
_Key = tuple[int, int]


def program_key(program: RunningProgram) -> _Key:
    """What tells this program from any other that ever has its pid."""
    return program.pid, program.start_ticks


class SessionMatch:
    """What one look found: sessions of each program, and what is not known of the others."""

    def __init__(self) -> None:
        self.sessions: dict[_Key, list[Activity]] = {}
        self.worker: dict[int, int] = {}
        """Session -> the process of the program that it serves."""
        self.by_name: set[_Key] = set()
        """Programs joined by name and moment alone."""
        self.unmatched: list[Activity] = []
        """Sessions of jobs without a program on this host."""
        self.notes: dict[int, str] = {}
        """Why there is none."""


class SessionMatcher:
    """Look by look. Used by one thread."""

    def __init__(self) -> None:
        self._peers = SessionProcesses()
        self._looks = 0
        self._known: dict[tuple[int, int | None], _Key] = {}

    def match(self, question: ObservationRequest, programs: list[RunningProgram]) -> SessionMatch:
        """The sessions of the question given to these programs."""
        joined = SessionMatch()
        rows = {row.pid: row for row in question.sessions.rows if row.leader_pid is None}
        candidates = find_possible_jobs(
            question.sessions.rows, question.operations, application_names(question.sessions.rows)
        )
        if question.here and programs:
            self._match_by_connection(rows, candidates, programs, joined)
        taken = set(joined.worker)
        if programs:
            self._match_by_name([rows[pid] for pid in sorted(candidates - taken) if pid in rows], programs, joined)
        for mine in joined.sessions.values():
            taken.update(row.pid for row in mine)
        # The sessions were read before the programs: one whose program has ended since is no job of its own.
        running = {program_key(one) for one in programs}
        over = {session for session, key in self._known.items() if key not in running}
        alone = [rows[pid] for pid in sorted(candidates - taken) if pid in rows]
        joined.unmatched = [row for row in alone if _identity(row) not in over]
        self._known = {(row.pid, row.backend_start): key for key, mine in joined.sessions.items() for row in mine}
        return joined

    def _match_by_connection(
        self,
        rows: dict[int, Activity],
        candidates: frozenset[int],
        programs: list[RunningProgram],
        joined: SessionMatch,
    ) -> None:
        self._looks += 1
        asked: Iterable[int] = candidates | {pid for pid, row in rows.items() if _identity(row) in self._known}
        if self._looks % FULL_SCAN_EVERY == 1 and len(self._known) < len(programs):
            asked = [pid for pid, row in rows.items() if row.backend_type in ("client backend", "walsender")]
        owners = {pid: program for program in programs for pid in program.pids}
        peers = self._peers.read(sorted(asked), [pid for program in programs for pid in program.pids])
        for backend, process in peers.items():
            if backend in rows and process in owners:
                joined.worker[backend] = process
                joined.sessions.setdefault(program_key(owners[process]), []).append(rows[backend])
        joined.notes = dict(self._peers.notes)

    def _match_by_name(self, left: list[Activity], programs: list[RunningProgram], joined: SessionMatch) -> None:
        """Where only one program without a session and one moment fit, it is that one."""
        for row in left:
            if row.client not in LOCAL or row.pid in joined.worker or row.backend_start is None:
                continue
            fitting = [one for one in programs if _name_matches(one, row) and self._can_own_session(one, row, joined)]
            if len(fitting) == 1:
                key = program_key(fitting[0])
                joined.by_name.add(key)
                joined.sessions.setdefault(key, []).append(row)
                joined.notes.pop(row.pid, None)

    def _can_own_session(self, program: RunningProgram, row: Activity, joined: SessionMatch) -> bool:
        known = self._known.get(_identity(row))
        if known is not None:
            return known == program_key(program)
        if program_key(program) in joined.sessions and program_key(program) not in joined.by_name:
            return False  # its connections can be seen, and this is none of them
        workers = program.arguments.jobs or 1
        started = (row.backend_start or 0) - program.started_us
        return started + 1_000_000 >= 0 and (started < CONNECT_WITHIN_US or workers > 1 or program.kind == "pg_dumpall")


def _name_matches(program: RunningProgram, row: Activity) -> bool:
    asked = program.arguments.database
    return program.kind == row.application != "psql" and (
        asked is None or row.database is None or asked == row.database
    )


def _identity(row: Activity) -> tuple[int, int | None]:
    return row.pid, row.backend_start
