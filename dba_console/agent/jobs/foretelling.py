"""The share done of a job and its end: by its ledger, of a script by the file that is read, and by its runs before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from dba_console.agent.jobs.history import Share
from dba_console.agent.jobs.runs import Run
from dba_console.agent.jobs.script import MOST, share_of
from dba_console.agent.jobs.seen import Seen
from dba_console.archives.forecast import Memory, PhaseBefore, PhaseForecast, PhasesBefore, forecast
from dba_console.archives.ledger import Ledger
from dba_console.probes.jobs.programs import Program

ALIKE = 4.0
"""Times as much, or as little."""
NEAR_US = 2_000_000
RECENT = 5
"""Runs whose medians stand for the run before: what they did long ago is no measure of tonight."""


@dataclass(frozen=True, slots=True)
class Foretold:
    """What may be said now."""

    pct: float | None
    grade: str
    eta_s: float | None
    eta_grade: str
    phases: tuple[PhaseForecast, ...]
    why: tuple[str, ...] = ()
    """Why there is no end, and what the figures leave out."""


class Foretelling:
    """Keeps what was said, so that no share goes back. Used by one thread."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._memory = Memory()
        self._read_at_s: float | None = None

    def look(self, ledger: Ledger, seen: Seen, runs: Sequence[Run]) -> Foretold:
        """What may be said at this look; `runs` are those before, the oldest first."""
        self._memory.pct = max(self._memory.pct, _said_before(self._program, seen.question.shares))
        before = before_of(runs)
        told = forecast(ledger, seen.question.wall_us, before=before, memory=self._memory)
        if self._program.kind == "psql":
            return self._of_script(seen, runs, told.phases)
        why = () if told.reason is None else (_sentence(told.reason),)
        return Foretold(told.pct, told.grade, told.eta_s, told.eta_grade, told.phases, (*why, *told.notes))

    def _of_script(self, seen: Seen, runs: Sequence[Run], phases: tuple[PhaseForecast, ...]) -> Foretold:
        """As far as its file is read; what follows the data as it was before."""
        size = sum(one.total for one in seen.flow.readings)
        if not size:
            return self._silent(phases, "what psql reads is no file whose size is known, so its share is not known")
        read = min(1.0, sum(one.read for one in seen.flow.readings) / size)
        if read >= 1.0 and self._read_at_s is None:
            self._read_at_s = seen.running_s
        share = share_of(read, seen.running_s, self._read_at_s, runs)
        if share is None:
            return self._silent(
                phases, "a script does not tell what follows its data: how long indexes and keys take is not known"
            )
        self._memory.pct = max(self._memory.pct, share.pct)
        why = () if share.eta_s is not None else ("it takes longer than runs before, or has only begun",)
        eta_grade = "unknown" if share.eta_s is None else "history"
        return Foretold(self._memory.pct, "estimated", share.eta_s, eta_grade, phases, why)

    def _silent(self, phases: tuple[PhaseForecast, ...], why: str) -> Foretold:
        pct = self._memory.pct or None
        return Foretold(pct, "unknown" if pct is None else "estimated", None, "unknown", phases, (why,))


def comparable(runs: Sequence[Run], size_bytes: float | None) -> list[Run]:
    """Runs of about as much: of another archive, or before its database grew tenfold, a run is no measure.

    >>> [run.size_bytes for run in comparable([Run(0, 9.0, True, 10), Run(0, 9.0, True, 900), Run(0, 9.0, True)], 800)]
    [900, None]
    """
    return [
        run for run in runs if not size_bytes or not run.size_bytes or 1 / ALIKE <= run.size_bytes / size_bytes <= ALIKE
    ]


def before_of(runs: Sequence[Run]) -> PhasesBefore | None:
    """What the last runs took, phase by phase; None where there is none.

    >>> before_of([Run(0, 60.0, True), Run(0, 70.0, True)]).wall_s
    65.0
    """
    recent = runs[-RECENT:]
    if not recent:
        return None
    phases = []
    for name in dict.fromkeys(phase.name for run in recent for phase in run.phases):
        same = [phase for run in recent for phase in run.phases if phase.name == name]
        weights = [phase.bytes for phase in same if phase.bytes is not None]
        phases.append(
            PhaseBefore(
                name=name,
                wall_s=median(phase.wall_s for phase in same),
                busy_s=median(phase.busy_s for phase in same),
                bytes=median(weights) if weights else None,
            )
        )
    sizes = [run.size_bytes for run in recent if run.size_bytes is not None]
    wall_s = median(run.seconds for run in recent)
    return PhasesBefore(wall_s=wall_s, phases=tuple(phases), bytes=median(sizes) if sizes else None)


def _said_before(program: Program, shares: Iterable[Share]) -> float:
    """What was last said of the very program, by a look that was lost or an agent before this one."""
    # Starts are told in hundredths of a second, by a clock that may be set a little.
    said = (
        min(MOST, one.pct)
        for one in shares
        if (one.kind, one.process) == (program.kind, program.pid) and abs(one.started_us - program.started_us) < NEAR_US
    )
    return max(said, default=0.0)


def _sentence(reason: str) -> str:
    return f"when it ends is not known: {reason}"
