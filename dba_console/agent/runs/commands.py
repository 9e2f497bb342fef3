"""Long commands of a run, each supervised by a keeper process: start, follow the output, find again after a restart.

A lane makes all accesses to the session's disk: a disk that hangs delays the screen but stops nothing.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dba_console.agent.runs.action_control import ActionControl
from dba_console.core.clock import Clock
from dba_console.core.errors import ConsoleError
from dba_console.core.paths import private_dir
from dba_console.core.redact import redact
from dba_console.core.safe_environment import python_command
from dba_console.core.sanitize import clean
from dba_console.keeper.command_status import CommandStatus, ExitRecord, read_status, stop, wait
from dba_console.keeper.launch import (
    INHERITED_VARIABLES,
    START_TIMEOUT_S,
    CommandSpec,
    KeeperError,
    StartUnknown,
    start,
)
from dba_console.keeper.output_log_reader import LogPosition, LogReader, StampedLine
from dba_console.recording.journal import LogLine
from dba_console.runbooks.run_view import OutputLine
from dba_console.runbooks.walk_requests import Outcome
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout

if TYPE_CHECKING:
    from dba_console.agent.runs.dump_messages import DumpMessages

POLL_S = 0.25
"""Wait for the end between two reads of the output."""
DISK_S = 5.0
"""A longer access to the session's disk is abandoned, reported and retried."""
DISK_RETRY_S = 1.0
"""Pause between retries while the disk does not answer."""
TEXT_LIMIT = 500
UNATTENDED = "the keeper of this command was lost: its output is not read any more, and the run waits for its end"
POSITION_FILE = "shown"
"""File with the position up to which output was passed on; the next reader continues there."""

Feed = Callable[[list[StampedLine]], None]


class AttachedCommand:
    """One execution of one command. Used only by the run's thread."""

    def __init__(
        self, directory: Path, clock: Clock, controls: ActionControl, feed: Feed, exits: tuple[int, ...],
        messages: DumpMessages | None = None,
    ) -> None:  # fmt: skip
        self.directory = directory
        self._clock, self._controls, self._feed, self._exits = clock, controls, feed, exits
        self._messages = messages
        self._lane = Lane("keeper", clock)
        self._tail: LogReader | None = None
        self._stop_sent = self._is_unattended = False
        self._first = self._last = self._last_stderr = ""
        self._begun_us = clock.mono_us()
        self._start_abandoned = False
        """The start was reported as unknown, so a call that hung must not start the command any more."""

    def start(self, spec: CommandSpec) -> Outcome | None:
        """Start the command. Returns None if it runs, else the outcome."""

        def begun() -> None:
            private_dir(self.directory.parent)
            private_dir(self.directory)
            # Checked after its directory exists: a settling agent then finds it and prevents the start.
            if self._start_abandoned:
                raise KeeperError("not started: the disk of the session took too long")
            start(spec)

        try:
            self._lane.call(begun, START_TIMEOUT_S + DISK_S)
        except LaneTimeout:
            self._start_abandoned = True
            return Outcome(
                state="unknown", text="the disk of the session does not answer: unknown whether the command runs"
            )
        except StartUnknown as error:
            return Outcome(state="unknown", text=error.message, evidence=error.hint or "")
        except (KeeperError, OSError) as error:
            why = error.message if isinstance(error, ConsoleError) else str(error)
            return Outcome(state="failed", text=f"it was not started: {why}")
        return None

    def follow(self) -> Outcome:
        """Pass on the output until the command has ended."""
        while True:
            try:
                status, lines = self._lane.call(self._read_status, POLL_S + DISK_S)
            except LaneTimeout:
                self._report_slow_disk()
                continue
            except OSError as error:
                return Outcome(state="unknown", text=f"its directory cannot be read: {error.strerror or error}")
            self._pass_on(lines)
            if status.state in ("ended", "lost") and not status.runs and not lines:
                return self._outcome(status)
            if status.state == "lost":
                self._report_unattended()
            if status.state == "absent":
                return Outcome(state="unknown", text="its keeper has left no record")
            self._stop_if_asked()

    def settle(self) -> Outcome:
        """Return the outcome of a command that another agent started; waits for one that still runs."""
        try:
            status = self._lane.call(lambda: self._status_or_prevent_start(), DISK_S)
        except LaneTimeout:
            return Outcome(state="unknown", text="the disk of the session does not answer")
        except OSError as error:
            return Outcome(state="unknown", text=f"its directory cannot be read: {error.strerror or error}")
        if status is None:
            evidence = "no keeper wrote a record of it"
            return Outcome(state="failed", text="it was never started", evidence=evidence, again=True)
        return self.follow()

    def close(self) -> None:
        self._lane.close()
        if self._messages is not None:
            self._messages.close()

    def _read_status(self) -> tuple[CommandStatus, list[StampedLine]]:
        """In the lane: wait a little, then read. The end is checked before the output, so that all output is there."""
        status = wait(self.directory, POLL_S)
        if self._tail is None:
            self._tail = LogReader(self.directory, _read_position(self.directory))
        lines = self._tail.read()
        if lines:
            _write_position(self.directory, self._tail.place)
        return status, lines

    def _status_or_prevent_start(self) -> CommandStatus | None:
        """In the lane: return the status; None if no keeper started it, and none can any more.

        A keeper writes its record before it starts the command. Without a record the directory is renamed, so that a
        keeper that is about to write fails and starts nothing.
        """
        if not self.directory.is_dir():
            return None
        status = read_status(self.directory)
        if status.state != "absent":
            return status
        aside = self.directory.with_name(self.directory.name + ".never")
        os.rename(self.directory, aside)
        status = read_status(aside)
        if status.state == "absent":
            return None
        os.rename(aside, self.directory)
        return read_status(self.directory)

    def _pass_on(self, lines: list[StampedLine]) -> None:
        whole = [line for line in lines if line.whole and line.stream != "k" and line.text.strip()]
        if whole:
            self._first = self._first or whole[0].text
            self._last = whole[-1].text
            self._last_stderr = next((line.text for line in reversed(whole) if line.stream == "e"), self._last_stderr)
        progress = "" if self._messages is None else self._messages.progress()
        if progress or lines:
            self._controls.report_progress(clean(progress or lines[-1].text[:TEXT_LIMIT]))
        if lines:
            self._feed([line for line in lines if line.whole])

    def _report_unattended(self) -> None:
        """Report once that the command runs without its keeper: nothing else may be done before it has ended."""
        self._controls.report_progress(UNATTENDED)
        if not self._is_unattended:
            self._is_unattended = True
            self._feed([StampedLine(self._clock.wall_us(), "e", UNATTENDED)])

    def _report_slow_disk(self) -> None:
        self._controls.report_progress("the disk of the session does not answer: output cannot be read now")
        self._controls.wait(DISK_RETRY_S)
        self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if not self._controls.stop_requested() or self._stop_sent:
            return
        by = self._controls.stopped_by
        try:
            self._stop_sent = self._lane.call(lambda: stop(self.directory, by), DISK_S)
        except (LaneTimeout, OSError):
            self._controls.report_progress("cannot stop it yet: the disk of the session does not answer")

    def _outcome(self, status: CommandStatus) -> Outcome:
        took_s = (self._clock.mono_us() - self._begun_us) / 1e6
        if status.exit is not None:
            outcome = outcome_of(status.exit, self._exits, self._first, self._last, self._last_stderr)
            ended_us = status.exit.ended_us or self._clock.wall_us()
            return outcome if self._messages is None else self._messages.outcome(outcome, ended_us)
        what = "may or may not run" if status.child_alive is None else "has ended"
        text = f"its keeper was lost, so its outcome is unknown; the command {what}"
        return Outcome(state="unknown", text=text, machine_s=took_s)


def outcome_of(
    ended: ExitRecord, exits: tuple[int, ...], first: str = "", last: str = "", complaint: str = ""
) -> Outcome:
    """Return the outcome of a command. `complaint` is its last line on stderr, which explains a failure better than the
    last line printed: in a pipe that is another program's."""
    values = {
        "exit": ended.code, "signal": ended.signal, "lines": ended.out_lines, "bytes": ended.out_bytes,
        "seconds": round(ended.wall_s, 3), "first_line": first[:TEXT_LIMIT], "last_line": last[:TEXT_LIMIT],
    }  # fmt: skip
    why = complaint or last
    detail = f": {why[:200]}" if why else ""
    used = f"{ended.out_lines} lines, {ended.user_s + ended.sys_s:.1f} s of CPU"
    lost = f"; {ended.dropped_lines} lines of its output are not stored" if ended.dropped_lines else ""
    evidence = f"the keeper's exit record ({used}){lost}"
    if ended.error is not None:
        return Outcome(state="failed", text=f"it was not started: {ended.error}", evidence=evidence)
    how = f"exit {ended.code}" if ended.code is not None else f"ended by signal {ended.signal}"
    if ended.stopped_by:
        return Outcome(
            state="stopped", text=f"stopped by {ended.stopped_by} ({how})", values=values, evidence=evidence,
            machine_s=ended.wall_s,
        )  # fmt: skip
    if ended.timed_out:
        text = f"timeout: it was terminated ({how}){detail}"
        return Outcome(state="failed", text=text, values=values, evidence=evidence, machine_s=ended.wall_s)
    ok = ended.code in exits
    left = ", ".join(f"{pid} ({clean(str(name))})" for pid, name in ended.left)
    still = f"; processes it started are still running: {left}" if left and ended.code != 0 else ""
    return Outcome(
        state="ok" if ok else "failed", text=f"{how}{'' if ok else detail}{still}", values=values, evidence=evidence,
        machine_s=ended.wall_s,
    )  # fmt: skip


def _read_position(directory: Path) -> LogPosition:
    try:
        offset, line = (directory / POSITION_FILE).read_text().split()
        return LogPosition(int(offset), int(line))
    except (OSError, ValueError):
        return LogPosition()


def _write_position(directory: Path, position: LogPosition) -> None:
    """Write the position, not synced: after a power failure some lines come twice, which is better than never."""
    try:
        descriptor = os.open(directory / POSITION_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{position.offset:020d} {position.line:020d}\n")
    except OSError:
        pass  # lines come twice then


# Command output to the session: whole lines with their tag, limited in number.
#
# The first HEAD lines of an execution are recorded in the session. Of the rest the session gets the number and, at the
# end, the last TAIL lines; all output is in the output file of the execution.

HEAD = 2000
TAIL = 200


class Appender:
    """Records the output of one execution of one block, masked before. Used by one thread."""

    def __init__(
        self,
        put: Callable[[Sequence[LogLine]], None],
        tag: str,
        *,
        run: str = "",
        block: str = "",
        execution: int = 0,
        where: str = "its output file",
        head: int = HEAD,
        tail: int = TAIL,
    ) -> None:
        """`put` takes lines and returns at once (Recorder.put_lines). `where`: the file with all output."""
        self._put, self._tag, self._where = put, tag, where
        self._of = (run, block, execution)
        self._room = head
        self._late: deque[LogLine] = deque(maxlen=tail)
        self._lost = 0
        self.lines = 0
        """Lines fed so far."""

    def feed(self, lines: Iterable[StampedLine]) -> None:
        """Add lines in the order of arrival."""
        made = [self._line(line.wall_us, line.text, line.stream) for line in lines]
        if not made:
            return
        self.lines += len(made)
        now, later = made[: self._room], made[self._room :]
        if later and self._room >= 0 and not self._late and not self._lost:
            notice = f"only the first {self.lines - len(later)} lines are recorded here; all are in {self._where}"
            now = [*now, self._line(later[0].wall_us, notice, "e")]
        self._room -= min(self._room, len(made) - len(later))
        if now:
            self._put(now)
        for line in later:
            if len(self._late) == self._late.maxlen:
                self._lost += 1
            self._late.append(line)

    def close(self) -> None:
        """End the output: record the number of lines left out, and the last ones."""
        if not self._late:
            return
        notices = [self._line(self._late[0].wall_us, f"… {self._lost} lines left out", "e")] if self._lost else []
        self._put([*notices, *self._late])
        self._late.clear()

    def _line(self, wall_us: int, text: str, stream: str) -> LogLine:
        run, block, execution = self._of
        return LogLine(wall_us, self._tag, text, stream, run, block, execution)


# Command output to the session and to the consoles: whole lines, sanitized, limited in number.

MAX_SENT_LINES = 400
"""Maximum lines sent to consoles at once: the latest, with the number of dropped ones."""
MAX_KEPT_LINES = 400
"""Latest lines of a run kept for new consoles."""
MAX_LINE_LENGTH = 2000
"""Maximum characters of a line on a screen."""

Send = Callable[[str, list[OutputLine], int], None]
"""Block, lines, and number of lines dropped before them."""


def read_newest_lines(directory: Path, tag: str) -> tuple[list[OutputLine], int]:
    """Return the latest lines of a keeper's log, where known secrets are masked, and the number of earlier lines.

    Raises OSError.
    """
    tail, kept, count = LogReader(directory), deque[StampedLine](maxlen=MAX_KEPT_LINES), 0
    while read := tail.read():
        whole = [line for line in read if line.whole and line.stream in ("o", "e")]
        kept.extend(whole)
        count += len(whole)
    lines = [OutputLine(line.wall_us, line.stream, tag, clean(redact(line.text))[:MAX_LINE_LENGTH]) for line in kept]
    return lines, count - len(lines) + tail.dropped_lines


class NewestLines:
    """The latest lines of a run. Written by the run's thread, read by the listener's."""

    def __init__(self) -> None:
        self._kept: deque[tuple[str, OutputLine]] = deque(maxlen=MAX_KEPT_LINES)

    def add(self, block: str, lines: Sequence[OutputLine]) -> None:
        self._kept.extend((block, line) for line in lines)

    def newest(self) -> list[tuple[str, list[OutputLine]]]:
        """Return the lines in order, grouped by block."""
        found: list[tuple[str, list[OutputLine]]] = []
        for block, line in list(self._kept):
            if not found or found[-1][0] != block:
                found.append((block, []))
            found[-1][1].append(line)
        return found


class CommandOutput:
    """The output of one execution of one block."""

    def __init__(self, block: str, tag: str, appender: Appender, mask: Callable[[str], str], send: Send) -> None:
        self._block, self._tag, self._appender, self._mask, self._send = block, tag, appender, mask, send

    def feed(self, lines: list[StampedLine]) -> None:
        """Add whole lines in the order of arrival."""
        if not lines:
            return
        masked = [replace(line, text=self._mask(line.text)) for line in lines]
        self._appender.feed(masked)
        newest = masked[-MAX_SENT_LINES:]
        shown = [
            OutputLine(line.wall_us, line.stream, self._tag, clean(line.text)[:MAX_LINE_LENGTH]) for line in newest
        ]
        self._send(self._block, shown, len(lines) - len(newest))

    def close(self) -> None:
        self._appender.close()


# Commands of a runbook: their argv and environment.

DEFAULT_S = 10.0
"""Timeout in seconds of a block without one."""
THIS_PROGRAM = tuple(python_command("dba_console"))
_LOCALE_VARIABLES = {"LC_ALL": "C.UTF-8", "LANGUAGE": "", "PG_COLOR": "never"}
"""LANGUAGE takes precedence over LC_ALL unless that is plain C (gettext, "The LANGUAGE variable"), and the output of
programs is parsed."""
_DIRECTORY_VARIABLES = (
    "XDG_STATE_HOME", "XDG_CONFIG_HOME", "DBA_CONSOLE_CONFIG", "DBA_CONSOLE_SESSIONS", "DBA_CONSOLE_RUNTIME",
    "DBA_CONSOLE_PG_BINDIR",
)  # fmt: skip


def script_argv(body: str) -> list[str]:
    """Return the argv of a shell script that stops at its first error, in a pipeline too."""
    return ["/bin/bash", "-euo", "pipefail", "-c", body, "runbook"]


def command_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return a small inherited environment with English messages, no colours and this program, plus `given`."""
    kept = {name: value for name, value in os.environ.items() if name in INHERITED_VARIABLES}
    return {**kept, **_LOCALE_VARIABLES, **own_command_variables(os.environ.get("PATH", os.defpath)), **given}


def own_command_variables(path: str) -> dict[str, str]:
    """Return the variables by which `dba-console` in a script means this program, whatever else has that name.

    They define a function that bash imports from its environment; other callers (`exec`, `xargs`, `nice`) find the
    program at the end of PATH. The variables of our directories are included, so that it uses the same files.
    """
    own = " ".join(map(shlex.quote, THIS_PROGRAM))
    program_directory = os.path.dirname(sys.executable)
    directories = {name: os.environ[name] for name in _DIRECTORY_VARIABLES if name in os.environ}
    return {"BASH_FUNC_dba-console%%": f'() {{  {own} "$@"\n}}', "PATH": f"{path}:{program_directory}", **directories}


def command_argv(argv: Sequence[str]) -> list[str]:
    """Return the argv of a command; `dba-console` as its first word means this program.

    >>> command_argv(["dba-console", "--version"])[1:]
    ['-P', '-s', '-m', 'dba_console', '--version']
    """
    return [*THIS_PROGRAM, *argv[1:]] if argv and argv[0] == "dba-console" else list(argv)
