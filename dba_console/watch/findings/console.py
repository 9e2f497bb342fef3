"""Rules about the console itself."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, find_outage
from dba_console.watch.frames.panel_status import is_fresh
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.samples.host import ProcessTitles
from dba_console.watch.samples.sample import PARTS

# Whether the console itself can be believed: has it a connection, does it tick, is what it sees remembered.

SHOWN = 3


def console_blind(s: RuleContext) -> Iterator[Signal]:
    """Every slot is taken, so the console has no connection: sessions are counted by their process titles.

    SQLSTATE 53300. That there is none for anybody is what `connections-filling` says; this is why so little is known.
    """
    outage = find_outage(s.picture)
    if outage is None or outage.kind != "no_slots":
        return
    titles = s.facts.picture.now("host.titles", ProcessTitles) if is_fresh(s.facts.picture, "host.titles") else None
    seen = "nothing is known of the sessions" if titles is None else "sessions are counted by their process titles"
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
        advice="It takes a slot as soon as one is free; pg_use_reserved_connections (16 on) keeps some.",
    )


def console_late(s: RuleContext) -> Iterator[Signal]:
    """The console does not keep its time: ticks begin late, or queries of its own get no answer within their limit.

    Half an interval late five times in a row, which a busy host's scheduler does not do by chance; a query without an
    answer for half a minute, and for two of its turns. Numbers are older then than they seem.
    """
    own = s.picture.now("self", AgentHealth)
    if own is None:
        return
    memo = s.memo("console-late")
    tick_us = s.picture.tick_us
    late = tick_us > 0 and own.late_us >= tick_us * s.limits.console.late_share_pct / 100
    memo["late"] = memo.get("late", 0) + 1 if late else 0
    unanswered = _unanswered_parts(s, memo.setdefault("asked", {}))
    if memo["late"] >= s.limits.console.late_ticks:
        behind = human_duration(own.late_us / 1e6)
        yield Signal(
            severity="warning",
            text=f"The console is late: {memo['late']} ticks in a row, the last one by {behind}",
            evidence={"late_s": round(own.late_us / 1e6, 3), "late_ticks": memo["late"], "interval_s": tick_us / 1e6},
            series=("io.user_pct", "io.system_pct", "io.iowait_pct"),
            advice="The host is overloaded or its memory is short; a longer agent.interval costs less.",
        )
    if unanswered:
        yield _unanswered_signal(s.picture, unanswered)


def _unanswered_parts(s: RuleContext, asked: dict[str, int]) -> dict[str, float]:
    """Parts that have been timing out, with the seconds since; none while the server says nothing at all."""
    if not asked and all(reading.part.status != "timeout" for reading in s.picture.latest.values()):
        return {}
    silent = find_outage(s.picture) is not None
    for name, reading in s.picture.latest.items():
        if reading.part.status == "timeout" and not silent and name.startswith("pg."):
            asked.setdefault(name, s.mono_us)
        elif asked:
            asked.pop(name, None)
    least = s.limits.console.unanswered_s
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
        advice="What these panels show is as old as they say; agent.statement_timeout allows them more.",
    )


def lane_stuck(s: RuleContext) -> Iterator[Signal]:
    """Something the console asked of the host hangs: a file system that does not answer, a process that is stuck.

    Each is asked in a lane of its own and given up at its deadline, so nothing else waits for it; 3 s are many of
    those deadlines. The server's own lane is told by `server-down`.
    """
    own = s.picture.now("self", AgentHealth)
    memo = s.memo("lane-stuck")
    if own is None or not (own.lanes or memo):
        return
    lanes = [lane for lane in own.lanes if lane != "postgres"]
    for lane in memo.keys() - set(lanes):
        del memo[lane]
    for lane in lanes:
        begun_us, wall_us = memo.setdefault(lane, (s.mono_us, s.now_us))
        stuck_s = (s.mono_us - begun_us) / 1e6
        if stuck_s >= s.limits.console.stuck_s:
            yield Signal(
                severity="warning",
                subject=clean(lane),
                text=f"{clean(lane)} does not answer: what depends on it shows its last state",
                evidence={"lane": clean(lane), "stuck_s": round(stuck_s, 1)},
                since_us=wall_us,
                advice=_lane_advice(lane),
            )


def _lane_advice(lane: str) -> str:
    if lane.startswith("statvfs "):
        return "df would hang there too: look whether its device or server is gone before you touch it."
    return "Look at the I/O panel: a stalled disk makes processes hang that hold locks of the kernel."


def recording_lags(s: RuleContext) -> Iterator[Signal]:
    """What is seen is not remembered, or late: the recording is behind, has failed, or left samples out.

    The recorder calls itself lagging when it is 5 s behind (session/recorder_status.py); told after 10 s, or at once
    where it failed. Samples that were left out are told for five minutes.
    """
    own = s.picture.now("self", AgentHealth)
    if own is None:
        return
    memo = s.memo("recording-lags")
    if own.dropped > memo.get("dropped", own.dropped):
        memo["dropped_us"] = s.mono_us
    memo["dropped"] = own.dropped
    if own.recording in ("lagging", "failed"):
        memo.setdefault("since_us", s.mono_us)
        lagged = s.mono_us - memo["since_us"] >= s.limits.console.lagging_s * 1e6
        if own.recording == "failed" or lagged:
            yield _recording_signal(own, *_recording_text(own))
        return
    memo.pop("since_us", None)
    if s.mono_us - memo.get("dropped_us", -(10**15)) < s.limits.console.dropped_s * 1e6:
        yield _recording_signal(own, f"{own.dropped} samples are missing in the recording: its disk was too slow", None)


def _recording_text(own: AgentHealth) -> tuple[str, str]:
    """The sentence, and its words as what follows from something else."""
    note = clean(own.recording_note or "").removeprefix("not recording: ")
    what = "Nothing is recorded"
    if own.recording == "lagging":
        what = f"The recording is {human_duration(own.recorder_lag_us / 1e6)} behind"
    return f"{what}: {note}" if note else what, what


def _recording_signal(own: AgentHealth, text: str, effect: str | None) -> Signal:
    return Signal(
        severity="warning",
        text=text,
        effect=effect,
        evidence={
            "recording": own.recording,
            "recorder_lag_s": round(own.recorder_lag_us / 1e6, 1),
            "dropped": own.dropped,
        },
        series=("io.psi_full_pct", "io.write_bytes_per_s"),
        advice="The live picture goes on. recording.directory names another disk for the next session.",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        name="console-blind",
        title="The console has no connection of its own, for every slot is taken",
        parts=("pg.activity",),
        check=console_blind,
        raise_after_s=2.0,
        clear_after_s=5.0,
        source="PostgreSQL: error codes, 53300 (errcodes-appendix)",
    ),
    Rule(
        name="console-late",
        title="The console does not keep its time, or its queries get no answer",
        parts=("self",),
        check=console_late,
        settings=("console.late_share_pct", "console.late_ticks", "console.unanswered_s"),
        source="the agent's own schedule: interval and time limits",
    ),
    Rule(
        name="lane-stuck",
        title="A file system or process of the host does not answer the console",
        parts=("self",),
        check=lane_stuck,
        clear_after_s=5.0,
        settings=("console.stuck_s",),
        source="deadlines of the lanes, 0.2 to 0.3 s (probes/host)",
    ),
    Rule(
        name="recording-lags",
        title="The recording is behind, has failed, or left samples out",
        parts=("self",),
        check=recording_lags,
        settings=("console.lagging_s", "console.dropped_s"),
        source="session/recorder_status.py: lagging from 5 s on",
    ),
)
