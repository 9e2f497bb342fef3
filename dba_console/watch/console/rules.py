"""Rules about the console itself: overdue ticks, unanswered queries, reads that hang, a recording that falls behind."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration
from dba_console.watch.findings.rule import CausalLink, Family, Rule, RuleContext, Signal, find_outage
from dba_console.watch.findings.thresholds import Judgement, RuleThresholds
from dba_console.watch.frames.panel_status import is_fresh
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.samples.host import ProcessTitles
from dba_console.watch.samples.sample import PARTS


class ConsoleLimits(RuleThresholds, frozen=True):
    """`[findings.console]`."""

    family = "console"

    late_share_pct: Judgement[float] = 50.0
    """A tick is overdue if it starts later by this percentage of the interval."""
    late_ticks: Judgement[int] = 5
    """This many overdue ticks in a row are reported."""
    unanswered_s: Judgement[float] = 30.0
    """A query of the console has had no answer within its time limit for this long."""
    stuck_s: Judgement[float] = 3.0
    """A file system or process has not answered for this long."""
    lagging_s: Judgement[float] = 10.0
    """The recording has been behind for this long."""
    dropped_s: Judgement[float] = 300.0
    """How long dropped samples are reported."""


# The console's own state: connection, ticks, lanes, recording.

SHOWN = 3


def console_blind(s: RuleContext) -> Iterator[Signal]:
    """Every connection slot is taken, so the console has no connection: sessions are counted by process titles.

    SQLSTATE 53300. `connections-filling` reports the shortage; this finding explains the missing data.
    """
    outage = find_outage(s.picture)
    if outage is None or outage.kind != "no_slots":
        return
    titles = s.facts.picture.now("host.titles", ProcessTitles) if is_fresh(s.facts.picture, "host.titles") else None
    seen = "nothing is known about the sessions" if titles is None else "sessions are counted by process titles"
    yield Signal(
        severity="warning",
        text=f"The console has no connection: {clean(outage.reason)}; {seen}",
        effect=f"The console has no connection ({seen})",
        evidence={
            "outage": outage.kind,
            "refused_by": outage.refused_by,
            "processes": None if titles is None else len(titles.rows),
        },
        series=("connections.used",),
        advice="It connects as soon as a slot is free; pg_use_reserved_connections (from 16) reserves some.",
    )


def console_late(s: RuleContext) -> Iterator[Signal]:
    """The console is overdue: ticks start late, or its queries get no answer within their time limit.

    Half an interval late five times in a row, which a busy host's scheduler does not cause by chance; a query without
    an answer for half a minute, and for two of its intervals. Numbers are then older than they seem.
    """
    health = s.picture.now("self", AgentHealth)
    if health is None:
        return
    memo = s.memo("console-late")
    tick_us = s.picture.tick_us
    late = tick_us > 0 and health.late_us >= tick_us * s.limits.of(ConsoleLimits).late_share_pct / 100
    memo["late"] = memo.get("late", 0) + 1 if late else 0
    unanswered = _unanswered_parts(s, memo.setdefault("asked", {}))
    if memo["late"] >= s.limits.of(ConsoleLimits).late_ticks:
        behind = human_duration(health.late_us / 1e6)
        yield Signal(
            severity="warning",
            text=f"The console is overdue: {memo['late']} ticks in a row, the last by {behind}",
            evidence={
                "late_s": round(health.late_us / 1e6, 3),
                "late_ticks": memo["late"],
                "interval_s": tick_us / 1e6,
            },
            series=("io.user_pct", "io.system_pct", "io.iowait_pct"),
            advice="The host is overloaded or short of memory; a longer agent.interval costs less.",
        )
    if unanswered:
        yield _unanswered_signal(s.picture, unanswered)


def _unanswered_parts(s: RuleContext, asked: dict[str, int]) -> dict[str, float]:
    """Return the parts that keep timing out, with the seconds since; empty while the server does not answer at all."""
    if not asked and all(reading.part.status != "timeout" for reading in s.picture.latest.values()):
        return {}
    silent = find_outage(s.picture) is not None
    for name, reading in s.picture.latest.items():
        if reading.part.status == "timeout" and not silent and name.startswith("pg."):
            asked.setdefault(name, s.mono_us)
        elif asked:
            asked.pop(name, None)
    least = s.limits.of(ConsoleLimits).unanswered_s
    waited = {name: (s.mono_us - since_us) / 1e6 for name, since_us in asked.items()}
    return {name: age_s for name, age_s in waited.items() if age_s >= max(least, PARTS[name].every_s)}


def _unanswered_signal(picture: Picture, unanswered: dict[str, float]) -> Signal:
    meanings = [PARTS[name].meaning for name in unanswered]
    more = f" and {len(meanings) - SHOWN} more" if len(meanings) > SHOWN else ""
    notes = [picture.latest[name].part.note for name in unanswered]
    return Signal(
        severity="warning",
        subject="unanswered",
        text=f"No answer within the time limit for {human_duration(max(unanswered.values()))}: "
        f"{', '.join(meanings[:SHOWN])}{more}",
        evidence={"parts": sorted(unanswered), "note": next((clean(note) for note in notes if note), None)},
        advice="These panels show data of the time they state; raise agent.statement_timeout to allow more time.",
    )


def lane_stuck(s: RuleContext) -> Iterator[Signal]:
    """A read from the host hangs: a file system does not answer, or a process is stuck.

    Each read runs in a thread of its own (a lane) and is abandoned at its deadline, so nothing else waits for it; 3 s
    is at least ten of those deadlines. A server that does not answer is reported by `server-down`.
    """
    health = s.picture.now("self", AgentHealth)
    memo = s.memo("lane-stuck")
    if health is None or not (health.lanes or memo):
        return
    lanes = [lane for lane in health.lanes if lane != "postgres"]
    for lane in memo.keys() - set(lanes):
        del memo[lane]
    for lane in lanes:
        begun_us, wall_us = memo.setdefault(lane, (s.mono_us, s.now_us))
        stuck_s = (s.mono_us - begun_us) / 1e6
        if stuck_s >= s.limits.of(ConsoleLimits).stuck_s:
            yield Signal(
                severity="warning",
                subject=clean(lane),
                text=f"{clean(lane)} does not answer: panels that depend on it show its last state",
                evidence={"lane": clean(lane), "stuck_s": round(stuck_s, 1)},
                since_us=wall_us,
                advice=_lane_advice(lane),
            )


def _lane_advice(lane: str) -> str:
    if lane.startswith("statvfs "):
        return "df would hang there too: check first whether its device or server is gone."
    return "Check the I/O panel: on a stalled disk processes hang while they hold kernel locks."


def recording_lags(s: RuleContext) -> Iterator[Signal]:
    """The recording is behind, has failed, or dropped samples.

    The recorder is lagging when it is 5 s behind (recording/recorder.py); raised after 10 s, or at once if it
    failed. Dropped samples are reported for five minutes.
    """
    health = s.picture.now("self", AgentHealth)
    if health is None:
        return
    memo = s.memo("recording-lags")
    if health.dropped > memo.get("dropped", health.dropped):
        memo["dropped_us"] = s.mono_us
    memo["dropped"] = health.dropped
    if health.recording in ("lagging", "failed"):
        memo.setdefault("since_us", s.mono_us)
        lagged = s.mono_us - memo["since_us"] >= s.limits.of(ConsoleLimits).lagging_s * 1e6
        if health.recording == "failed" or lagged:
            yield _recording_signal(health, *_recording_text(health))
        return
    memo.pop("since_us", None)
    if s.mono_us - memo.get("dropped_us", -(10**15)) < s.limits.of(ConsoleLimits).dropped_s * 1e6:
        yield _recording_signal(
            health, f"{health.dropped} samples are missing in the recording: its disk was too slow", None
        )


def _recording_text(health: AgentHealth) -> tuple[str, str]:
    """Return the sentence, and its form as an effect."""
    note = clean(health.recording_note or "").removeprefix("not recording: ")
    what = "Nothing is recorded"
    if health.recording == "lagging":
        what = f"The recording is {human_duration(health.recorder_lag_us / 1e6)} behind"
    return f"{what}: {note}" if note else what, what


def _recording_signal(health: AgentHealth, text: str, effect: str | None) -> Signal:
    return Signal(
        severity="warning",
        text=text,
        effect=effect,
        evidence={
            "recording": health.recording,
            "recorder_lag_s": round(health.recorder_lag_us / 1e6, 1),
            "dropped": health.dropped,
        },
        series=("io.psi_full_pct", "io.write_bytes_per_s"),
        advice="Live panels are not affected. Set recording.directory to another disk for the next session.",
    )


_RULES: tuple[Rule, ...] = (
    Rule(
        name="console-blind",
        title="The console has no connection: every slot is taken",
        parts=("pg.activity",),
        check=console_blind,
        raise_after_s=2.0,
        clear_after_s=5.0,
        source="PostgreSQL: error codes, 53300 (errcodes-appendix)",
    ),
    Rule(
        name="console-late",
        title="The console's ticks are overdue, or its queries get no answer",
        parts=("self",),
        check=console_late,
        settings=(
            ConsoleLimits.late_share_pct,
            ConsoleLimits.late_ticks,
            ConsoleLimits.unanswered_s,
        ),
        source="the agent's own schedule: interval and time limits",
    ),
    Rule(
        name="lane-stuck",
        title="A file system or process of the host does not answer the console",
        parts=("self",),
        check=lane_stuck,
        clear_after_s=5.0,
        settings=(ConsoleLimits.stuck_s,),
        source="the deadlines of these reads, 0.2 to 0.3 s (watch/probes/host)",
    ),
    Rule(
        name="recording-lags",
        title="The recording is behind, has failed, or dropped samples",
        parts=("self",),
        check=recording_lags,
        settings=(
            ConsoleLimits.lagging_s,
            ConsoleLimits.dropped_s,
        ),
        source="the recorder counts as lagging from 5 s (recording/recorder.py)",
    ),
)


def _holds_recording(effect: Signal, cause: Signal) -> bool:
    """Whether the recording is on the signal's file system."""
    holds = cause.evidence.get("holds")
    return isinstance(holds, list) and "session" in holds


_LINKS = (
    CausalLink("lane-stuck", "io-stalled"),
    CausalLink("console-blind", "connection-storm"),
    CausalLink("console-blind", "connections-filling"),
    CausalLink("recording-lags", "disk-filling", applies=_holds_recording),
)

FAMILY = Family("The console itself", "console", _RULES, (ConsoleLimits,), _LINKS)
