"""Raised when it lasts, cleared when it is gone, never from a gap; silenced and acknowledged by people."""

from __future__ import annotations

from collections.abc import Iterable

from dba_console.core.thresholds import Limits
from dba_console.watch.findings.finding_events import RESTORED_GRACE_US, FindingMark
from dba_console.watch.findings.rule import Rule, RuleContext, Signal
from tests.unit.watch.findings.rule_ticks import EngineTicks, ScriptedRule, critical, kinds, warning


def test_a_signal_is_raised_at_once_if_the_rule_requires_no_duration() -> None:
    scripted = ScriptedRule("disk-filling")
    engine_ticks = EngineTicks(scripted)
    scripted.signals = [warning()]
    assert kinds(engine_ticks.tick()) == [("raised", "disk-filling")]
    assert engine_ticks.tick() == []


def test_a_signal_that_must_last_is_not_raised_before() -> None:
    scripted = ScriptedRule("io-stalled", raise_after_s=3)
    engine_ticks = EngineTicks(scripted)
    scripted.signals = [warning()]
    assert engine_ticks.ticks(3) == []
    assert kinds(engine_ticks.tick()) == [("raised", "io-stalled")]


def test_a_signal_shorter_than_its_required_duration_is_never_raised() -> None:
    scripted = ScriptedRule("io-stalled", raise_after_s=3)
    engine_ticks = EngineTicks(scripted)
    for _ in range(10):
        scripted.signals = [warning()]
        assert engine_ticks.ticks(2) == []
        scripted.signals = []
        assert engine_ticks.ticks(1) == []


def test_a_finding_is_cleared_only_after_it_was_gone_for_its_duration() -> None:
    scripted = ScriptedRule("io-stalled", clear_after_s=5)
    engine_ticks = EngineTicks(scripted)
    scripted.signals = [warning()]
    engine_ticks.tick()
    scripted.signals = []
    assert engine_ticks.ticks(4) == []
    assert engine_ticks.ids == ["io-stalled"]
    assert kinds(engine_ticks.tick()) == [("cleared", "io-stalled")]
    assert engine_ticks.ids == []


def test_a_finding_that_returns_before_it_was_cleared_is_the_same_one() -> None:
    scripted = ScriptedRule("io-stalled", clear_after_s=5)
    engine_ticks = EngineTicks(scripted)
    scripted.signals = [warning()]
    engine_ticks.tick()
    since_us = engine_ticks.engine.conclusions.rows[0].since_us
    scripted.signals = []
    engine_ticks.ticks(3)
    scripted.signals = [warning("still wrong")]
    assert engine_ticks.ticks(6) == []
    assert engine_ticks.engine.conclusions.rows[0].since_us == since_us


def test_a_rule_is_evaluated_only_when_its_part_was_read_again() -> None:
    scripted = ScriptedRule("io-stalled")
    engine_ticks = EngineTicks(scripted)
    scripted.signals = [warning()]
    engine_ticks.tick()
    for _ in range(60):
        assert engine_ticks.tick(read=False) == []
    assert scripted.asked == 1
    assert engine_ticks.ids == ["io-stalled"], "what was seen last holds until it is looked at again"


def test_unobserved_seconds_do_not_count_towards_raising() -> None:
    scripted = ScriptedRule("io-stalled", raise_after_s=3)
    engine_ticks = EngineTicks(scripted)
    scripted.signals = [warning()]
    engine_ticks.ticks(2)
    assert engine_ticks.tick(after_s=60) == []
    assert engine_ticks.ticks(2) == []
    assert kinds(engine_ticks.tick()) == [("raised", "io-stalled")]


def test_unobserved_seconds_do_not_clear_a_finding() -> None:
    scripted = ScriptedRule("io-stalled", clear_after_s=5)
    engine_ticks = EngineTicks(scripted)
    scripted.signals = [warning()]
    engine_ticks.tick()
    scripted.signals = []
    assert engine_ticks.tick(after_s=60) == []
    assert engine_ticks.ids == ["io-stalled"]


def test_a_finding_that_becomes_worse_is_reported_once() -> None:
    scripted = ScriptedRule("disk-filling")
    engine_ticks = EngineTicks(scripted)
    scripted.signals = [warning("80 % full")]
    engine_ticks.tick()
    scripted.signals = [critical("90 % full")]
    changes = engine_ticks.tick()
    assert kinds(changes) == [("changed", "disk-filling")]
    assert changes[0].finding.severity == "critical"
    assert engine_ticks.tick() == []


def test_the_numbers_of_an_open_finding_are_updated_every_few_seconds_and_not_every_tick() -> None:
    scripted = ScriptedRule("disk-filling")
    engine_ticks = EngineTicks(scripted)
    texts = []
    for second in range(12):
        scripted.signals = [warning(f"{80 + second} % full")]
        assert [kind for kind, _ in kinds(engine_ticks.tick())] in ([], ["raised"])
        texts.append(engine_ticks.engine.conclusions.rows[0].text)
    assert texts[:5] == ["80 % full"] * 5
    assert texts[5] == "85 % full"
    assert len(set(texts)) == 3


def test_each_subject_is_a_finding_of_its_own() -> None:
    scripted = ScriptedRule("slot-retention")
    engine_ticks = EngineTicks(scripted)
    scripted.signals = [warning("slot a", subject="a"), critical("slot b", subject="b")]
    assert kinds(engine_ticks.tick()) == [("raised", "slot-retention:a"), ("raised", "slot-retention:b")]


def test_a_failing_rule_is_named_and_stops_no_other() -> None:
    def fails(context: RuleContext) -> Iterable[Signal]:
        raise ZeroDivisionError("division by zero")

    scripted = ScriptedRule("io-stalled")
    broken = Rule(name="broken", title="broken", parts=("host.pressure",), check=fails)
    engine_ticks = EngineTicks(scripted, rules=[broken])
    scripted.signals = [warning()]
    assert kinds(engine_ticks.tick()) == [("raised", "io-stalled")]
    assert engine_ticks.engine.conclusions.failed == ["broken: ZeroDivisionError: division by zero"]


def test_a_disabled_rule_is_not_evaluated() -> None:
    scripted = ScriptedRule("io-stalled")
    engine_ticks = EngineTicks(scripted, limits=Limits(off=["io-stalled"]))
    scripted.signals = [warning()]
    assert engine_ticks.ticks(3) == []
    assert scripted.asked == 0


def test_a_start_time_known_from_the_reading_is_used() -> None:
    scripted = ScriptedRule("idle-in-transaction")
    engine_ticks = EngineTicks(scripted)
    engine_ticks.tick()
    began = engine_ticks.wall_us - 3_600_000_000
    scripted.signals = [warning(since_us=began)]
    engine_ticks.tick()
    assert engine_ticks.engine.conclusions.rows[0].since_us == began


def test_an_acknowledgement_lasts_until_the_finding_clears() -> None:
    scripted = ScriptedRule("disk-filling", clear_after_s=1)
    engine_ticks = EngineTicks(scripted)
    scripted.signals = [warning()]
    engine_ticks.tick()
    change = engine_ticks.engine.acknowledge("disk-filling", "ann", "ordered disks", engine_ticks.wall_us)
    assert change is not None and change.finding.state == "acknowledged"
    engine_ticks.ticks(20)
    row = engine_ticks.engine.conclusions.rows[0]
    assert (row.state, row.who, row.note) == ("acknowledged", "ann", "ordered disks")
    scripted.signals = []
    engine_ticks.ticks(3)
    scripted.signals = [warning()]
    assert kinds(engine_ticks.tick()) == [("raised", "disk-filling")]
    assert engine_ticks.engine.conclusions.rows[0].state == "open"


def test_a_finding_that_is_not_open_cannot_be_acknowledged() -> None:
    assert EngineTicks().engine.acknowledge("disk-filling", "ann", "", 1) is None


def test_a_silence_expires_and_that_is_reported() -> None:
    scripted = ScriptedRule("disk-filling")
    engine_ticks = EngineTicks(scripted)
    scripted.signals = [critical()]
    engine_ticks.tick()
    assert (
        engine_ticks.engine.silence("disk-filling", engine_ticks.wall_us + 5_000_000, "ann", "", engine_ticks.wall_us)
        is not None
    )
    assert engine_ticks.ticks(4) == []
    assert engine_ticks.states == ["silenced"]
    assert kinds(engine_ticks.ticks(2)) == [("unsilenced", "disk-filling")]
    assert engine_ticks.states == ["open"]


def test_a_rule_may_be_silenced_before_it_raises_anything() -> None:
    scripted = ScriptedRule("slot-retention")
    engine_ticks = EngineTicks(scripted)
    engine_ticks.tick()
    message = engine_ticks.engine.silence(
        "slot-retention", engine_ticks.wall_us + 60_000_000, "ann", "rebuild", engine_ticks.wall_us
    )
    assert message is not None and (message.finding.state, message.finding.who) == ("silenced", "ann")
    scripted.signals = [warning(subject="a")]
    changes = engine_ticks.tick()
    assert kinds(changes) == [("raised", "slot-retention:a")]
    assert changes[0].finding.state == "silenced"


def test_a_silence_may_be_revoked() -> None:
    scripted = ScriptedRule("disk-filling")
    engine_ticks = EngineTicks(scripted)
    scripted.signals = [warning()]
    engine_ticks.tick()
    engine_ticks.engine.silence("disk-filling", engine_ticks.wall_us + 60_000_000, "ann", "", engine_ticks.wall_us)
    change = engine_ticks.engine.unsilence("disk-filling", "ann", engine_ticks.wall_us)
    assert change is not None and change.finding.state == "open"
    assert engine_ticks.engine.unsilence("disk-filling", "ann", engine_ticks.wall_us) is None


def test_an_unknown_rule_cannot_be_silenced() -> None:
    assert EngineTicks().engine.silence("no-such-rule", 10, "ann", "", 1) is None


def test_an_acknowledgement_is_valid_for_the_next_agent_whatever_it_reads_first() -> None:
    scripted, slow = ScriptedRule("disk-filling"), ScriptedRule("slot-retention")
    engine_ticks = EngineTicks(scripted, slow)
    slow.signals = [warning()]
    engine_ticks.tick()
    engine_ticks.engine.acknowledge("slot-retention", "ann", "its replica is built", engine_ticks.wall_us)
    message = engine_ticks.engine.marks.to_save()

    scripted.signals, slow.signals = [warning()], []
    after = EngineTicks(scripted, slow)
    after.engine.marks.restore(message, engine_ticks.wall_us)
    after.ticks(20)
    slow.signals = [warning()]
    after.tick()
    assert dict(zip(after.ids, after.states, strict=True)) == {"disk-filling": "open", "slot-retention": "acknowledged"}


def test_an_acknowledgement_ends_if_the_next_agent_does_not_see_the_finding() -> None:
    scripted = ScriptedRule("disk-filling")
    engine_ticks = EngineTicks(scripted)
    engine_ticks.tick()
    engine_ticks.engine.marks.restore(
        {"acknowledged": {"slot-retention": FindingMark(who="ann", note="")}}, engine_ticks.wall_us
    )
    scripted.signals = [warning()]
    engine_ticks.ticks(1 + RESTORED_GRACE_US // 1_000_000)
    assert engine_ticks.engine.marks.to_save()["acknowledged"] == {}


def test_a_failing_rule_gives_a_short_reason_without_secrets() -> None:
    class Failing(ScriptedRule):
        def _check(self, context: RuleContext) -> Iterable[Signal]:
            raise KeyError("connection 'password=hunter2'\x1b[2J" + "x" * 5000)

    engine_ticks = EngineTicks(Failing("disk-filling"))
    engine_ticks.tick()
    (why,) = engine_ticks.engine.conclusions.failed
    assert why.startswith("disk-filling: KeyError") and len(why) < 400
    assert "hunter2" not in why and "\x1b" not in why
