"""False alarms: findings raised in an hour of ordinary operation, by severity and rule.

`python -m bench.quiet --judge DIR` evaluates a kept run again with today's rules; `--keep DIR` runs and keeps.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.console import end_agents, recording_agent
from bench.figure import Figure, table
from bench.quiet_load.again import evaluate_again, findings_recorded_live, unchanged
from bench.quiet_load.diary import Diary, read_diary, spells
from bench.quiet_load.disturbed import disturbed
from bench.quiet_load.drive import drive
from bench.quiet_load.place import QuietServer
from bench.quiet_load.schedule import HOUR_S, schedule
from bench.quiet_load.verdict import SEVERITIES, Found, by_rule, count, findings_of, quiet_s, report, split_incidents

Mode = Literal["live", "today", "disturbed"]
DIARY = "diary.jsonl"
SMOKE_S = 15.0


def live(directory: Path, span_s: float) -> None:
    """Let an agent record and evaluate `span_s` seconds of ordinary load; leave diary and session in `directory`."""
    os.environ["DBA_CONSOLE_RUNTIME"] = f"{directory}/run"
    os.environ["DBA_CONSOLE_SESSIONS"] = f"{directory}/sessions"
    os.environ["XDG_CONFIG_HOME"] = f"{directory}/config"
    directory.mkdir(parents=True, exist_ok=True)
    diary = Diary(directory / DIARY)
    try:
        with QuietServer(span_s / HOUR_S) as place, recording_agent(place.dsn) as agent:
            place.agent_pid = agent.pid
            print(f"session {agent.session}", file=sys.stderr, flush=True)
            failed = drive(place, schedule(span_s), diary, span_s)
            print(f"{failed} activities failed", file=sys.stderr, flush=True)
    finally:
        end_agents()
        diary.close()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings of a run. `found` excludes those raised during a real incident."""

    found: list[Found]
    failed: set[str]
    """Rules that failed, each with its error."""
    quiet_s: float
    """Duration without a real incident, seconds."""
    text: str


def judged(directory: Path, how: Mode) -> Verdict:
    """Return the findings of a kept run: by its agent, by today's rules, or by these with disturbances inserted."""
    sessions = sorted((directory / "sessions").iterdir())
    if not sessions:
        raise SystemExit(f"no session in {directory}/sessions")
    if how == "live":
        result = findings_recorded_live(sessions[-1])
    else:
        result = evaluate_again(sessions[-1], lived=disturbed if how == "disturbed" else unchanged)
    found, happened = findings_of(result.events), spells(read_diary(directory / DIARY))
    lasted_s = quiet_s(happened, result.first_us, result.last_us)
    return Verdict(
        split_incidents(found, happened)[0], result.failed, lasted_s, report(found, happened, result.first_us)
    )


def figures(verdict: Verdict) -> list[Figure]:
    minutes = f"{verdict.quiet_s / 60:.0f} minutes"
    counts = {severity: count(verdict.found, severity) for severity in SEVERITIES}
    rules = {severity: by_rule(counter) for severity, counter in counts.items()}
    return [
        Figure("critical findings in a quiet hour", counts["critical"].total(), "", 0, rules["critical"] or minutes),
        Figure("warnings in a quiet hour", counts["warning"].total(), "", None, rules["warning"]),
        Figure("info findings in a quiet hour", counts["info"].total(), "", None, rules["info"]),
        Figure("rules that failed", len(verdict.failed), "", 0, "; ".join(sorted(verdict.failed))[:200]),
    ]


def disturbed_figure(verdict: Verdict) -> Figure:
    critical = count(verdict.found, "critical")
    name = "critical findings in the same hour with gaps, clock steps and agent restarts inserted"
    return Figure(name, critical.total(), "", 0, by_rule(critical))


def run(smoke: bool = False) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="quiet-") as place:
        live(Path(place), SMOKE_S if smoke else HOUR_S)
        lived, upset = judged(Path(place), "live"), judged(Path(place), "disturbed")
    print(lived.text, file=sys.stderr)
    print(f"with gaps, clock steps and agent restarts:\n{upset.text}", file=sys.stderr)
    return [*figures(lived), disturbed_figure(upset)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.quiet", description=__doc__)
    parser.add_argument("--judge", type=Path, metavar="DIR", help="evaluate the run kept in DIR with today's rules")
    parser.add_argument("--live", action="store_true", help="with --judge: the findings of its agent")
    parser.add_argument("--disturbed", action="store_true", help="with --judge: insert gaps, clock steps, restarts")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="run, and keep recording and diary in DIR")
    parser.add_argument("--seconds", type=float, default=HOUR_S, help="duration of the run (3600)")
    chosen = parser.parse_args(arguments)
    if chosen.judge is None and chosen.keep is None:
        parser.error("--judge DIR or --keep DIR is required")
    if chosen.keep is not None:
        live(chosen.keep, chosen.seconds)
    how: Mode = "live" if chosen.live or chosen.keep else "disturbed" if chosen.disturbed else "today"
    verdict = judged(chosen.keep or chosen.judge, how)
    print(verdict.text)
    for failure in sorted(verdict.failed):
        print(f"rule failed: {failure}")
    print()
    print(table(figures(verdict)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
