"""A run as shown, summarized and reported: from its records alone, at any moment."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec import structs

from dba_console.actions.action_preview import ActionPreview
from dba_console.core.errors import UsageError
from dba_console.recording.plan import Confirmation, Input, Plan, Prose
from dba_console.runbooks.apply_records import replay_records
from dba_console.runbooks.run_report import report_lines
from dba_console.runbooks.run_summary import (
    ComparisonKey,
    RunSummary,
    StepSummary,
    TypicalDuration,
    as_table,
    summarize,
    typical_durations,
)
from dba_console.runbooks.run_view import RunView
from dba_console.runbooks.single_action import signal_plan
from dba_console.runbooks.view_builder import LiveStatus, question_view, run_view
from dba_console.runbooks.walk_context import interrupted, resumed
from dba_console.runbooks.walk_requests import AskRequest, OperatorInterrupt, Outcome, ReadResult
from dba_console.runbooks.walkthrough_layout import ended_lines
from dba_console.watch.drawing.text_elements import line_text
from tests.unit.runbooks.scripted_agent import ScriptedAgent, begin, block, plan_of, run, step
from tests.unit.runbooks.test_walk_killed import plans

TYPED = Confirmation(level="type", text="target")
LIVE = LiveStatus(now_us=1_000_100_000_000)


def time_text(wall_us: int) -> str:
    return datetime.fromtimestamp(wall_us / 1e6, UTC).strftime("%H:%M:%S")


@given(plan=plans())
def test_a_run_can_be_shown_and_reported_after_any_record(plan: Plan) -> None:
    _, _, agent = run(plan)
    for at in range(1, len(agent.records) + 1):
        state = replay_records(plan, agent.records[:at])
        shown = run_view(plan, state, LIVE)
        assert msgspec.json.decode(msgspec.json.encode(shown), type=RunView) == shown
        assert [one.id for one in shown.steps] == [one.id for one in plan.steps]
        assert report_lines(plan, agent.records[:at], when=time_text)[-1].startswith("Verdict: ")
    assert run_view(plan, replay_records(plan, agent.records), LIVE).summary is not None


def test_of_a_per_row_change_the_remaining_rows_are_shown_and_each_result_names_its_row() -> None:
    change = block(
        "a/change",
        "change",
        body="delete from public.t where id = %(id)s",
        settings={"each": True},
        confirm=Confirmation(level="type", text="count"),
    )
    plan = plan_of(step("a", block("a/preview", "preview", title="old ones"), change))
    rows = tuple({"id": number, "note": f"n{number}"} for number in (1, 2, 3))
    agent = ScriptedAgent(
        results={"a/preview": [ReadResult(rows=rows)]},
        outcomes={"a/change": [Outcome(state="ok", text="1 row"), Outcome(state="failed", text="locked")]},
        answers={"type": ["3"]},
    )
    run(plan, agent)
    texts = [record.text for record in agent.records if record.kind == "block.result"]
    assert texts[0] == "a/change: row 1 of 3 (id 1, note n1): ok, 1 row"
    assert texts[1] == "a/change: row 2 of 3 (id 2, note n2): failed, locked"
    failed = next(at for at, one in enumerate(agent.records) if one.text == texts[1])
    state = replay_records(plan, agent.records[: failed + 1])
    state.current = "a/change"
    shown = run_view(plan, state, LiveStatus(now_us=0))
    assert shown.table is not None and [row[0] for row in shown.table.rows] == ["2", "3"]
    assert shown.table.title == "old ones: 1 of 3 done, remaining rows"
    assert "-- row 2 of 3\ndelete from public.t where id = 2\n-- row 3 of 3\n" in shown.blocks[1].exact


@pytest.mark.parametrize(
    ("known", "place"),
    [
        ({"server": {"role": "primary"}, "host": {"name": "vm7", "boot_id": ""}}, "db2 on vm7"),
        ({"server": {"address": "10.0.0.5"}, "host": {"name": "vm7", "boot_id": ""}}, "db2 on 10.0.0.5"),
        ({"host": {"name": "db2", "boot_id": ""}}, "db2"),
    ],
)
def test_start_and_confirmations_name_the_host_if_the_target_name_does_not(known: dict[str, Any], place: str) -> None:
    plan = plan_of(step("a", block("a/change", "change", confirm=TYPED, title="prune")))
    _, state, agent = run(plan, ScriptedAgent(answers={"type": ["db2"]}), **known)
    texts = [record.text for record in agent.records if record.kind == "block.asked"]
    assert any(f" on {place}? " in text for text in texts)
    assert any(f"On {place}: type `db2` " in text for text in texts)
    assert run_view(plan, state, LiveStatus(now_us=0)).place == place
    assert f"on {place} (id), by ann" in report_lines(plan, agent.records, when=str)


def test_a_view_shows_the_step_its_blocks_and_their_bindings() -> None:
    change = block(
        "a/change",
        "change",
        body="delete from public.t where age > %(age)s",
        uses=("age",),
        confirm=TYPED,
        title="prune",
    )
    plan = plan_of(step("a", block("a/preview", "preview"), change, prose=(Prose("Why."),), panels=("locks",)))
    interrupt = OperatorInterrupt(verb="abort", who="ann", reason="later")
    agent = ScriptedAgent(
        results={"a/preview": [ReadResult(rows=({"id": 1, "note": "x\x1b[2J"},))]}, answers={"type": [interrupt]}
    )
    _, _, agent = run(plan, agent, inputs={"age": 5})
    asked = next(at for at, one in enumerate(agent.records) if one.kind == "block.asked" and one.block == "a/change")
    state = replay_records(plan, agent.records[: asked + 1])
    state.current = "a/change"
    question = question_view(agent.asked[-1], number=3, since_us=5)
    shown = run_view(plan, state, LiveStatus(now_us=0, question=question, driver="ann"))
    assert (shown.state, shown.current, shown.block, shown.panels) == ("waiting", "a", "a/change", ("locks",))
    assert shown.steps[0].state == "waiting"
    assert [one.state for one in shown.blocks] == ["ok", "waiting"]
    assert shown.blocks[1].exact == "delete from public.t where age > 5\n-- on 1 row of a/preview"
    assert shown.table is not None and shown.table.rows == (("1", "x␛[2J"),)
    assert shown.question is not None and shown.question.expects == "db2"


@pytest.mark.parametrize(
    ("upto", "standing"),
    [("run.planned", "planned"), ("run.started", "running"), ("run.paused", "paused"), ("run.ended", "aborted")],
)
def test_a_run_shows_its_status(upto: str, standing: str) -> None:
    plan = plan_of(step("a", block("a/manual", "manual")))
    interrupts: list[Any] = [OperatorInterrupt(verb="pause", who="ann")]
    _, _, agent = run(plan, ScriptedAgent(answers={"manual": interrupts, "choose": ["abort"]}))
    at = next(at for at, one in enumerate(agent.records) if one.kind == upto)
    assert run_view(plan, replay_records(plan, agent.records[: at + 1]), LIVE).state == standing


def test_a_view_is_limited_in_size_and_masks_secrets_in_server_messages() -> None:
    rows = tuple({"q": "y" * 5000} for _ in range(900))
    looks = {
        "a/preview": [ReadResult(rows=rows)],
        "a/check": [ReadResult(holds=True, text="password=hush " + "z" * 100_000)],
    }
    plan = plan_of(
        step("a", block("a/check", "check"), block("a/preview", "preview"), block("a/change", "change", confirm=TYPED))
    )
    state = run(plan, ScriptedAgent(results=looks))[1]
    state.ended, state.current = "", "a/change"
    encoded = msgspec.json.encode(run_view(plan, state, LIVE))
    assert len(encoded) < 200_000
    assert b"hush" not in encoded


def test_the_question_to_a_second_operator_names_the_first() -> None:
    ask = AskRequest(kind="type", text="Type db2", expects="db2", people=2)
    assert question_view(ask, number=1, since_us=0).kind == "type"
    assert question_view(ask, number=2, since_us=0, first_by="ann").kind == "second"


def finished() -> tuple[Plan, ScriptedAgent]:
    checked = block("a/check", "check", usual_s=2.0)
    dump = block("b/run", "run", usual_s=60.0, confirm=TYPED)
    before = block("a/measure", "measure", name="before")
    after = block("c/measure", "measure", settings={"against": "before"})
    plan = plan_of(
        step("a", before, checked), step("b", dump), step("c", after, block("c/manual", "manual")),
        inputs=(Input(name="keep", type="int"), Input(name="key", type="secret", secret=True)),
        sha256="ab12", source="book.md",
    )  # fmt: skip
    failed = Outcome(state="failed", text="exit 1", machine_s=10.0)
    agent = ScriptedAgent(
        results={
            "a/measure": [ReadResult(values={"cached": 100, "who": "x"}, text="cached 100", machine_s=0.5)],
            "c/measure": [ReadResult(values={"cached": 40, "who": "y"}, text="cached 40", machine_s=0.5)],
        },
        outcomes={"b/run": [failed, Outcome(state="ok", text="exit 0", machine_s=50.0)]},
        answers={"c/manual": [OperatorInterrupt(verb="skip", who="ann", reason="nobody to tell at night")]},
    )
    run(plan, agent, inputs={"keep": 3, "key": "hush"})
    return plan, agent


def test_a_summary_separates_planned_typical_actual_machine_and_human_time() -> None:
    plan, agent = finished()
    summary = summarize(plan, replay_records(plan, agent.records), {"b": TypicalDuration(55.0, 3, 52.0)})
    _, b, _ = summary.steps
    assert (b.planned_s, b.usual_s, b.usual_runs, b.machine_s, b.human_s, b.executions) == (60.0, 55.0, 3, 60.0, 6.0, 2)
    assert summary.human_s == 8.0
    assert summary.machine_s == 61.5
    assert summary.verdict == "run done; 2 deviations from the document"
    assert msgspec.json.decode(msgspec.json.encode(summary), type=RunSummary) == summary


def test_the_end_shows_what_actions_measured_and_what_the_last_one_reported() -> None:
    """The outage of a cutover, and what a failover leaves to do, are not only in the report."""
    names = {"a/begin": "", "b/heartbeat": "measured", "c/close": "closed"}
    blocks = [block(id_, "action", name=name, action="demo", title=id_[2:]) for id_, name in names.items()]
    plan = plan_of(step("a", blocks[0]), step("b", blocks[1]), step("c", blocks[2]))
    agent = ScriptedAgent(
        outcomes={
            "a/begin": [Outcome(state="ok", text="begun")],
            "b/heartbeat": [Outcome(state="ok", text="no write for 0.28s", values={"write_outage_s": 0.28})],
            "c/close": [Outcome(state="ok", text="left to do: 1. a backup", values={"left": 1})],
        }
    )
    run(plan, agent)
    shown = run_view(plan, replay_records(plan, agent.records), LIVE)
    assert shown.results == ("heartbeat: no write for 0.28s", "close: left to do: 1. a backup")
    page = "\n".join(line_text(one) for one in ended_lines(shown, 80))
    assert "no write for 0.28s" in page and "left to do: 1. a backup" in page and "begun" not in page


def test_an_interruption_is_reported_with_its_step_and_with_the_run() -> None:
    plan, agent = finished()
    at = next(place for place, one in enumerate(agent.records) if one.kind == "block.intent" and one.step == "b")
    before, later = agent.records[: at + 1], agent.records[at + 1 :]
    gone_us = 110_000_000
    death = interrupted("its agent was gone", before[-1].wall_us)
    back = [structs.replace(one, wall_us=before[-1].wall_us + gone_us) for one in (death, resumed("ann"))]
    records = [*before, *back, *(structs.replace(one, wall_us=one.wall_us + gone_us) for one in later)]
    summary = summarize(plan, replay_records(plan, records))
    assert [step.interrupted_s for step in summary.steps] == [0.0, 110.0, 0.0]
    assert as_table(summary).columns[-1] == "interrupted"
    assert "interrupted for 1m50s" in "\n".join(report_lines(plan, records, when=time_text))
    assert "interrupted" not in as_table(summarize(plan, replay_records(plan, agent.records))).columns


def test_after_a_clean_agent_exit_the_time_of_the_interruption_is_shown() -> None:
    plan, agent = finished()
    start = next(place for place, one in enumerate(agent.records) if one.kind == "run.started")
    before = agent.records[: start + 1]
    ended = structs.replace(interrupted("interrupted: the agent ends"), wall_us=before[-1].wall_us + 5_000_000)
    found = structs.replace(interrupted("its agent was gone", ended.wall_us), wall_us=ended.wall_us + 7_000_000)
    back = structs.replace(resumed("ann"), wall_us=found.wall_us)
    assert replay_records(plan, [*before, ended, found, back]).interrupted_s == 7.0


def test_the_typical_time_is_the_median_machine_time_of_completed_runs() -> None:
    def past_run(
        machine_s: float, state: str = "ok", *, mode: str = "run", rounds: int = 1, runbook: str = "book",
        identity: str = "server", about: str = "shop",
    ) -> RunSummary:  # fmt: skip
        one = StepSummary(id="a", title="A", state=state, machine_s=machine_s, human_s=900.0, rounds=rounds)
        return RunSummary(
            run="r", runbook=runbook, state="done", mode=mode, steps=(one,), identity=identity, about=about
        )  # fmt: skip

    earlier = [
        past_run(10),
        past_run(20),
        past_run(90, rounds=3),
        past_run(500, "failed"),
        past_run(1, mode="rehearse"),
        past_run(2, runbook="other"),
        past_run(3, about="mid"),
        past_run(4, identity="another server"),
    ]
    shop = ComparisonKey("book", "server", "shop")
    assert typical_durations(shop, earlier) == {"a": TypicalDuration(20.0, 3, 30.0)}
    assert typical_durations(shop, []) == {}


def test_the_story_of_a_run_shows_answers_deviations_measurements_and_the_verdict() -> None:
    plan, agent = finished()
    text = "\n".join(report_lines(plan, agent.records, when=time_text, usual={"b": TypicalDuration(55.0, 3, 52.0)}))
    for part in (
        "run r1: done",
        "on db2 (id), by ann",
        "execution 1m02s, waiting for the operator 8.0s",
        "sha256 ab12",
        "with keep=3, key=********",
        "B     ok       1m       55s (3, last 52s)  1m06s   1m         6.0s",
        "cached  100     40     -60",
        "- b/run: check again and retry, by ann",
        "- step c: skipped by ann: nobody to tell at night",
        "b/run: failed, exit 1  [10s]",
        "b/run: confirmed by ann  [operator 2.0s]",
        "Verdict: run done; 2 deviations from the document",
    ):
        assert part in text, text
    assert "hush" not in text


def test_a_change_without_a_recorded_end_is_reported_as_such() -> None:
    plan, agent = finished()
    cut = next(at for at, one in enumerate(agent.records) if one.kind == "block.intent")
    text = "\n".join(report_lines(plan, agent.records[: cut + 1], when=time_text))
    assert "b/run: intent recorded, outcome not recorded" in text
    assert text.endswith("Verdict: has not ended")


ROW = {"pid": 7, "backend_start": "2026-11-22T05:00:00Z", "query": "select 1"}


@pytest.mark.parametrize(
    ("verb", "rows", "level", "text"),
    [
        ("cancel", [ROW], "yes", ""),
        ("terminate", [ROW], "type", "target"),
        ("cancel", [ROW, {**ROW, "pid": 8}], "type", "count"),
        ("terminate", [ROW, {**ROW, "pid": 8}], "type", "count"),
    ],
)
def test_a_signal_from_a_screen_is_a_plan_with_one_change(verb: Any, rows: list[Any], level: str, text: str) -> None:
    plan = signal_plan(verb, rows)
    ((_, one),) = plan.blocks()
    assert one.confirm is not None
    assert (one.action, one.confirm.level, one.confirm.text) == ("signal-backend", level, text)
    assert one.settings["rows"] == [{"pid": row["pid"], "backend_start": ROW["backend_start"]} for row in rows]


def test_the_query_start_of_a_session_is_passed_on_if_given() -> None:
    row = {**ROW, "query_start": "2026-11-22T05:00:09Z", "state_change": None}
    ((_, one),) = signal_plan("cancel", [row]).blocks()
    named = {"pid": 7, "backend_start": ROW["backend_start"], "query_start": "2026-11-22T05:00:09Z"}
    assert one.settings["rows"] == [named]


@pytest.mark.parametrize("rows", [[], [{"pid": 7, "backend_start": None}], [{"pid": 7}]])
def test_a_session_without_certain_identity_is_not_signalled(rows: list[Any]) -> None:
    with pytest.raises(UsageError):
        signal_plan("cancel", rows)


def test_a_plan_with_one_change_runs_like_any_other() -> None:
    action_preview = ActionPreview(text="one session", exact="pg_terminate_backend(7)", count=1)
    plan = signal_plan("terminate", [ROW])
    agent = ScriptedAgent(results={"terminate/action": [ReadResult(action_preview=action_preview)]})
    state = begin(plan, agent)
    assert run_view(plan, state, LIVE).state == "planned"
    ending, _, agent = run(plan, ScriptedAgent(results=agent.results))
    assert (ending.state, [asked.expects for asked in agent.asked]) == ("done", ["db2"])
    assert agent.asked[0].text == "one session. On db2: type `db2` (the target name) to confirm, no to decline"


def test_a_declined_plan_with_one_change_ends_there() -> None:
    ending, _, agent = run(signal_plan("terminate", [ROW]), ScriptedAgent(answers={"type": ["no"]}))
    assert (ending.state, ending.text, agent.done) == ("aborted", "run aborted: terminate/action: declined by ann", [])


def test_the_rows_a_decision_is_based_on_stay_in_view() -> None:
    ways = [{"key": "on", "text": "", "goto": "next"}]
    shown = block("a/preview", "preview", name="who", title="who waits")
    choose = block("b/choose", "choose", settings={"options": ways}, uses=("who",))
    plan = plan_of(step("a", shown), step("b", choose))
    rows = ({"pid": 7, "backend_start": 1_763_784_000_000_000},)
    _, _, agent = run(plan, ScriptedAgent(results={"a/preview": [ReadResult(rows=rows)]}))
    at = next(at for at, one in enumerate(agent.records) if one.kind == "block.asked" and one.block == "b/choose")
    seen = run_view(plan, replay_records(plan, agent.records[: at + 1]), LIVE)
    assert seen.table is not None
    assert (seen.table.title, seen.table.rows) == ("who waits", (("7", "2025-11-22 04:00:00 UTC"),))
    assert seen.blocks[0].exact == "\n-- who: 1 row"


def test_the_checks_before_the_start_are_shown_with_what_they_read() -> None:
    plan = plan_of(
        step("a", block("a/check", "check", leading=True)), step("b", block("b/check", "check", leading=True))
    )
    interrupt = OperatorInterrupt(verb="abort", who="ann", reason="later")
    _, _, agent = run(plan, ScriptedAgent(answers={"start": [interrupt]}))
    at = next(at for at, one in enumerate(agent.records) if one.kind == "block.asked")
    seen = run_view(plan, replay_records(plan, agent.records[: at + 1]), LIVE)
    assert [(one.id, one.state, one.note) for one in seen.blocks] == [
        ("a/check", "ok", "passed: yes"),
        ("b/check", "ok", "passed: yes"),
    ]
