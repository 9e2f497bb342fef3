"""The runs' side of the agent: who asks for a run, who watches it, which ones an agent before this one left unfinished.

All a run needs is loaded with the first one; until then this module is all there is of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dba_console.agent.peer import LINES, Peer
from dba_console.agent.protocol import (
    Message,
    OpenRun,
    RunAnswer,
    RunBegin,
    RunControl,
    RunLines,
    RunRefused,
    RunResume,
    RunViewMessage,
    RunWatch,
    pack,
)
from dba_console.agent.runs.people import Person, person_of
from dba_console.clock import Clock
from dba_console.config import Config
from dba_console.errors import ExitCode
from dba_console.plans.view import OutputLine, RunView
from dba_console.samples.event import Event
from dba_console.target import Target

if TYPE_CHECKING:
    from dba_console.agent.runs.conduct import Conduct
    from dba_console.agent.runs.surroundings import Surroundings
    from dba_console.agent.runs.under_way import Make, UnderWay
    from dba_console.agent.runs.unfinished import Unfinished
    from dba_console.frames.model import Frame
    from dba_console.session.loglines import LogLine

Give = Callable[[Peer], None]


class RunSide:
    """One per agent. Consoles are served on the listener's thread; `each` has it call back for every console."""

    def __init__(
        self,
        target: Target,
        config: Config,
        clock: Clock,
        *,
        sessions: Path,
        session: Callable[[], Path | None],
        frame: Callable[[int], Frame | None],
        here: Callable[[], bool],
        emit: Callable[[Event], None],
        put_lines: Callable[[Sequence[LogLine]], None],
        each: Callable[[Give], None],
    ) -> None:
        self._target, self._config, self._clock = target, config, clock
        self._sessions, self._session, self._frame, self._here = sessions, session, frame, here
        self._emit, self._put_lines, self._each = emit, put_lines, each
        self._people: dict[Peer, Person] = {}
        self._runs: list[UnderWay] = []
        """Those under way, and the last that ended. More than one only where the others put settings back."""
        self._unfinished: dict[str, Unfinished] = {}
        self._printed: dict[str, list[bytes]] = {}
        """What commands of unfinished runs had printed when it was last read."""
        self._next: tuple[UnderWay, Callable[[], None]] | None = None
        """A run that is being given up, and what comes after it."""
        self._lock = threading.Lock()
        self._searched = False
        self._early: list[tuple[Peer, RunResume]] = []
        """Asked for before it was known what there is to resume."""
        self._attended = 0
        """Commands of unfinished runs that still run."""

    @property
    def busy(self) -> bool:
        """A run is under way, or a command of one: the agent does not end for want of consoles."""
        return any(one.alive for one in self._runs) or self._attended > 0

    def look_for_unfinished(self) -> None:
        """See what an agent before this one left, in a thread of its own: the disk may take its time."""
        threading.Thread(target=self._look, name="runs-unfinished", daemon=True).start()

    def open_runs(self) -> list[OpenRun]:
        """For a console that attaches."""
        current = [told for one in self._runs if (told := one.open_run()) is not None]
        return [*current, *(one.open_run() for one in list(self._unfinished.values()))]

    def welcome(self, peer: Peer) -> list[bytes]:
        """What a console that attaches starts with."""
        told = peer.greeting.login if peer.greeting is not None else "unknown"
        self._people[peer] = person_of(peer.pid, told)
        if peer.greeting is None or peer.greeting.role != "console":
            return []
        words = []
        for one in list(self._unfinished.values()):
            words += [pack(RunViewMessage(view=one.view)), *self._printed.get(one.run, ())]
        # One that has ended too: whoever lost the line in its middle learns how.
        return [*words, *(self._word(peer, one) for one in self._runs if one.shown is not None)]

    def left(self, peer: Peer) -> None:
        for one in self._runs:
            one.left(peer)
        self._people.pop(peer, None)

    def request(self, peer: Peer, message: Message) -> bool:
        """Do what a console asks of runs; whether it was that."""
        if isinstance(message, RunBegin):
            self._begin(peer, message)
        elif isinstance(message, RunResume):
            self._resume(peer, message)
        elif isinstance(message, RunAnswer | RunControl | RunWatch):
            self._of_one(peer, message)
        else:
            return False
        return True

    def close(self) -> None:
        """The agent ends. Commands go on with their keepers; the run is left to the next agent."""
        for one in self._runs:
            one.leave()

    # -- beginning -----------------------------------------------------------------------------------------------

    def _begin(self, peer: Peer, asked: RunBegin) -> None:
        taken = self._taken()
        if taken is not None and taken.give_up(peer, self._people[peer]):

            def begin_again() -> None:
                self._each(lambda one: self._begin(one, asked) if one is peer else None)

            self._next = (taken, begin_again)
            return
        from dba_console.agent.runs.beginning import begin

        person, beside = self._people[peer], _name(taken)
        self._start(lambda one: begin(one, asked, person.name, beside), peer, person, "", beside=taken is not None)

    def _resume(self, peer: Peer, asked: RunResume) -> None:
        with self._lock:
            if not self._searched and asked.run not in self._unfinished:
                self._early.append((peer, asked))
                return
        taken = self._taken()
        known = self._unfinished.get(asked.run)
        if known is None:
            text = f"there is no interrupted run {asked.run!r} of {self._target.name}"
            self.refuse(peer, RunRefused(text=text, hint="`dba-console runbook runs` lists them", reply_to=asked.run))
            return
        from dba_console.agent.runs.beginning import resume

        person, beside = self._people[peer], _name(taken)

        def make(one: UnderWay) -> Conduct:
            conduct = resume(one, known.directory, asked, person.name, beside)
            self._unfinished.pop(asked.run, None)
            return conduct

        self._start(make, peer, person, asked.run, beside=taken is not None, abort=asked.abort)

    def _taken(self) -> UnderWay | None:
        """The run beside which only one that puts settings back may begin."""
        return next((one for one in self._runs if one.alive and not one.beside), None)

    def _start(
        self,
        make: Make,
        peer: Peer,
        person: Person,
        reply_to: str,
        *,
        beside: bool,
        abort: str = "",
    ) -> None:
        from dba_console.agent.runs.under_way import UnderWay

        made = UnderWay(make, peer, person, self._surroundings(), self, self._sessions, reply_to, beside=beside)
        self._runs = [*(one for one in self._runs if one.alive), made]
        if abort:
            made.abort(person, abort)
        made.start()

    def _surroundings(self) -> Surroundings:
        from dba_console.agent.runs.surroundings import Surroundings

        return Surroundings(
            target=self._target, config=self._config, clock=self._clock, session=self._session, frame=self._frame,
            here=self._here, emit=self._emit, put_lines=self._put_lines,
        )  # fmt: skip

    # -- a run under way -----------------------------------------------------------------------------------------

    def _of_one(self, peer: Peer, message: RunAnswer | RunControl | RunWatch) -> None:
        person = self._people[peer]
        current = next((one for one in self._runs if one.shown is not None and one.run == message.run), None)
        if current is None:
            text = f"no run {message.run!r} is under way"
            if message.run in self._unfinished:
                text = f"the run {message.run} is interrupted: resume it, or end it (r, e)"
            self.refuse(peer, RunRefused(text=text, reply_to=message.run))
            return
        if isinstance(message, RunWatch):
            current.adopt(peer, person)
            self._each(lambda one: self._give_all(one, current) if one is peer else None)
            return
        if isinstance(message, RunAnswer):
            refusal = current.answer(peer, person, message.question, message.text)
        else:
            refusal = current.control(peer, person, message)
        if refusal is not None:
            self.refuse(peer, RunRefused(text=refusal, code=int(ExitCode.REFUSED), reply_to=message.run))

    def _give_all(self, peer: Peer, current: UnderWay) -> None:
        peer.push(self._word(peer, current), of=f"run {current.run}")
        if current.conduct is not None:
            for block, lines in current.conduct.lines.newest():
                peer.push(pack(RunLines(run=current.run, block=block, lines=lines)), of=LINES)

    def _word(self, peer: Peer, current: UnderWay) -> bytes:
        shown = current.shown
        assert shown is not None
        why_not = current.may_answer(peer, self._people[peer])
        asked = shown.question is not None
        second = asked and shown.question is not None and shown.question.kind == "second"
        return pack(
            RunViewMessage(
                view=_driven(shown, current),
                yours=peer is current.driver,
                may_answer=asked and why_not is None,
                why_not=why_not or "" if second else "",
            )
        )

    # -- Telling -------------------------------------------------------------------------------------------------

    def view(self, under_way: UnderWay) -> None:
        """Have every console shown the run as it stands."""

        def give(peer: Peer) -> None:
            if under_way.shown is not None and _watches(peer) and peer in self._people:
                peer.push(self._word(peer, under_way), of=f"run {under_way.run}")

        self._each(give)

    def lines(self, run: str, block: str, lines: list[OutputLine], dropped: int) -> None:
        packed = pack(RunLines(run=run, block=block, lines=lines, dropped=dropped))
        self._each(lambda peer: peer.push(packed, of=LINES) if _watches(peer) else None)

    def refuse(self, peer: Peer | None, refused: RunRefused) -> None:
        packed = pack(refused)
        self._each(lambda one: one.push(packed) if one is peer else None)

    def ended(self, under_way: UnderWay) -> None:
        conduct = under_way.conduct
        if conduct is not None and conduct.ending is None and under_way.shown is not None:
            from dba_console.agent.runs.unfinished import Unfinished

            self._unfinished[conduct.run] = Unfinished(conduct.directory, under_way.shown, ())
        if self._next is not None and self._next[0] is under_way:
            (_, follows), self._next = self._next, None
            follows()

    # -- what was left -------------------------------------------------------------------------------------------

    def _look(self) -> None:
        try:
            if _any_runs(self._sessions):
                self._find()
        finally:
            with self._lock:
                self._searched = True
            for peer, asked in self._early:
                self._resume_where_asked(peer, asked)
        for one in list(self._unfinished.values()):
            if one.commands:
                from dba_console.agent.runs.unfinished import wait_for_commands

                wait_for_commands(one)
                self._attended -= len(one.commands)
                if one.run in self._unfinished:
                    self._tell_printed(one)

    def _find(self) -> None:
        from dba_console.agent.runs.unfinished import find

        for one in find(self._sessions, self._target.key):
            self._unfinished[one.run] = one
            self._attended += len(one.commands)
            self._emit(one.event(self._clock))
            self._tell_watchers(pack(RunViewMessage(view=one.view)))
            self._tell_printed(one)

    def _tell_printed(self, one: Unfinished) -> None:
        packed = self._printed[one.run] = [pack(lines) for lines in one.printed()]
        for lines in packed:
            self._tell_watchers(lines)

    def _resume_where_asked(self, asker: Peer, asked: RunResume) -> None:
        """On the listener's thread, as any request; not where the asker has left meanwhile."""

        def give(peer: Peer) -> None:
            if peer is asker:
                self._resume(peer, asked)

        self._each(give)

    def _tell_watchers(self, packed: bytes) -> None:
        def give(peer: Peer) -> None:
            if _watches(peer):
                peer.push(packed)

        self._each(give)


def _watches(peer: Peer) -> bool:
    return peer.greeting is not None and peer.greeting.role == "console"


def _name(taken: UnderWay | None) -> str:
    """A run as who asks for another one is told of it; empty where there is none."""
    if taken is None:
        return ""
    name = f"{taken.shown.title} ({taken.run})" if taken.shown is not None else "another"
    return f"{name}, driven by {taken.person.name}"


def _driven(shown: RunView, current: UnderWay) -> RunView:
    """The view with who drives now: that may change while the run's own thread is busy."""
    from msgspec.structs import replace

    return replace(shown, driver=current.person.login if current.driver is not None else "")


def _any_runs(sessions: Path) -> bool:
    """Whether any session has runs: a look at names, for what reads them is large."""
    try:
        with os.scandir(sessions) as entries:
            return any(os.path.isdir(os.path.join(entry.path, "runs")) for entry in entries)
    except OSError:
        return False
