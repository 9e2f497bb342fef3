"""Runs side by side, made from the records of walks."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from dba_console.recording.plan import Confirmation, Input
from dba_console.runbooks.apply_records import replay_records
from dba_console.runbooks.run_report import compare, table
from dba_console.runbooks.run_summary import ComparisonKey, RunSummary, read_summary, summarize, typical_durations
from dba_console.runbooks.walk_requests import Outcome
from tests.unit.runbooks.scripted_agent import ScriptedAgent, block, plan_of, run, step

YES = Confirmation(level="yes")


def cutover_summary(
    run_id: str, to: str, stop_s: float, outage_s: float | None, state: str = "ok", at_us: int = 0
) -> RunSummary:
    """A walk of two steps; its second has two acts, and its action measured something."""
    plan = plan_of(
        step("hold", block("hold/run", "run")),
        step("move", block("move/run", "run", title="stop"), block("move/action", "action", action="a", confirm=YES)),
        inputs=(Input(name="to", type="text"), Input(name="key", type="secret", secret=True)),
    )
    values = {"write_outage_s": outage_s, "pid": 7}
    stop = Outcome(state=state, text="stopped", machine_s=stop_s)  # type: ignore[arg-type]
    world = ScriptedAgent(
        outcomes={
            "hold/run": [Outcome(state="ok", text="held", machine_s=1.0)],
            "move/run": [stop],
            "move/action": [Outcome(state="ok", text="measured", values=values, machine_s=0.5)],
        },
        answers={"failed": ["abort"]},
    )
    run(plan, world, inputs={"to": to, "key": "hush"})
    summary = summarize(plan, replay_records(plan, world.records), about="cluster shop")
    return replace(summary, run=run_id, started_us=at_us)


def test_steps_changes_manual_parts_and_measurements_are_compared_side_by_side() -> None:
    runs = [cutover_summary("r-0001", "db2", 2.0, 1.9), cutover_summary("r-0002", "db1", 1.25, 1.2)]
    rows = {(row.kind, row.id): row for row in compare(runs)}
    assert rows["step", "hold"].values == (1.0, 1.0) and ("block", "hold/run") not in rows
    assert rows["step", "move"].values == (3.0, 2.25)
    assert (rows["block", "move/run"].title, rows["block", "move/run"].change) == ("stop", -0.75)
    assert rows["people", "move"].values == (2.0, 2.0), "a person's time is no part of the step's"
    assert rows["figure", "write_outage_s"].values == (1.9, 1.2)
    assert ("figure", "pid") not in rows
    lines = {line[0]: line[1:] for line in table(runs, compare(runs), str)}
    assert lines["run"] == ["0001", "0002", "change"]
    assert lines["to"] == ["db2", "db1", ""], "inputs that differ are shown"
    assert lines["write_outage_s"] == ["1.90s", "1.20s", "-0.70s"]
    assert lines["  stop"] == ["2.00s", "1.25s", "-0.75s"]
    assert "hush" not in str(lines)


def test_failed_or_unreached_parts_have_no_difference() -> None:
    runs = [cutover_summary("r-0001", "db2", 2.0, 1.9), cutover_summary("r-0002", "db2", 9.0, 1.2, "failed")]
    rows = {(row.kind, row.id): row for row in compare(runs)}
    assert rows["block", "move/run"].change is None
    assert rows["block", "move/action"].values == (1.0, None)
    assert (rows["figure", "write_outage_s"].values, rows["figure", "write_outage_s"].change) == ((1.9, None), None)
    lines = {line[0]: line[1:] for line in table(runs, compare(runs), str)}
    assert lines["  stop"] == ["2.00s", "9.00s failed", ""]
    assert "to" not in lines


def test_typical_and_last_duration_of_a_change_come_from_runs_before_and_after_a_promotion() -> None:
    before, after = (f"system identifier 7, {role}, timeline {at}, PG 15.18" for role, at in (("primary", 1), ("b", 2)))
    earlier = [
        replace(cutover_summary("r-0001", "db2", 2.0, None, at_us=1), identity=before),
        replace(cutover_summary("r-0002", "db1", 4.0, None, at_us=2), identity=after),
    ]
    usual = typical_durations(ComparisonKey("book", after, "cluster shop"), earlier)
    assert (usual["move/run"].seconds, usual["move/run"].runs, usual["move/run"].last_s) == (3.0, 2, 4.0)
    assert typical_durations(ComparisonKey("book", "system identifier 8, primary", "cluster shop"), earlier) == {}
    unread = [replace(one, identity="system identifier ?, primary") for one in earlier]
    assert typical_durations(ComparisonKey("book", "system identifier ?, standby", "cluster shop"), unread) == {}


def test_a_damaged_summary_counts_as_none(tmp_path: Path) -> None:
    for damaged in (b"", b"{", b'{"run": "\xee"}', b"[]"):
        (tmp_path / "summary.json").write_bytes(damaged)
        assert read_summary(tmp_path) is None
