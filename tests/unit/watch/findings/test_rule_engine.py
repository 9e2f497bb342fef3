"""Raised when it lasts, cleared when it is gone, never from a gap; silenced and acknowledged by people."""

from __future__ import annotations

from collections.abc import Iterable

from dba_console.watch.findings.finding_events import RESTORED_GRACE_US, FindingMark
from dba_console.watch.findings.rule import Rule, RuleContext, Signal
from dba_console.watch.findings.thresholds import Limits
from tests.unit.watch.findings.rule_ticks import EngineTicks, ScriptedRule, critical, kinds, ticks_of, warning


def test_a_signal_is_raised_at_once_if_the_rule_requires_no_duration() -> None:
    ticks = ticks_of("disk-filling", warning())
    assert kinds(ticks.tick()) == [("raised", "disk-filling")]
    assert ticks.tick() == []


def test_a_signal_that_must_last_is_not_raised_before() -> None:
    ticks = ticks_of("io-stalled", warning(), raise_after_s=3)
    assert ticks.ticks(3) == []
    assert kinds(ticks.tick()) == [("raised", "io-stalled")]


def test_a_signal_shorter_than_its_required_duration_is_never_raised() -> None:
    ticks = ticks_of("io-stalled", raise_after_s=3)
    for _ in range(10):
        ticks.signal(warning())
        assert ticks.ticks(2) == []
        ticks.signal()
        assert ticks.ticks(1) == []


def test_a_finding_is_cleared_only_after_it_was_gone_for_its_duration() -> None:
    ticks = ticks_of("io-stalled", warning(), clear_after_s=5)
    ticks.tick()
    ticks.signal()
    assert ticks.ticks(4) == []
    assert ticks.ids == ["io-stalled"]
    assert kinds(ticks.tick()) == [("cleared", "io-stalled")]
    assert ticks.ids == []


def test_a_finding_that_returns_before_it_was_cleared_is_the_same_one() -> None:
    ticks = ticks_of("io-stalled", warning(), clear_after_s=5)
    ticks.tick()
    since_us = ticks.engine.conclusions.rows[0].since_us
    ticks.signal()
    ticks.ticks(3)
    ticks.signal(warning("still wrong"))
    assert ticks.ticks(6) == []
    assert ticks.engine.conclusions.rows[0].since_us == since_us


def test_a_rule_is_evaluated_only_when_its_part_was_read_again() -> None:
    ticks = ticks_of("io-stalled", warning())
    ticks.tick()
    for _ in range(60):
        assert ticks.tick(read=False) == []
    assert ticks.scripted[0].asked == 1
    assert ticks.ids == ["io-stalled"], "what was seen last holds until it is looked at again"


def test_unobserved_seconds_do_not_count_towards_raising() -> None:
    ticks = ticks_of("io-stalled", warning(), raise_after_s=3)
    ticks.ticks(2)
    assert ticks.tick(after_s=60) == []
    assert ticks.ticks(2) == []
    assert kinds(ticks.tick()) == [("raised", "io-stalled")]


def test_unobserved_seconds_do_not_clear_a_finding() -> None:
    ticks = ticks_of("io-stalled", warning(), clear_after_s=5)
    ticks.tick()
    ticks.signal()
    assert ticks.tick(after_s=60) == []
    assert ticks.ids == ["io-stalled"]


def test_a_finding_that_becomes_worse_is_reported_once() -> None:
    ticks = ticks_of("disk-filling", warning("80 % full"))
    ticks.tick()
    ticks.signal(critical("90 % full"))
    changes = ticks.tick()
    assert kinds(changes) == [("changed", "disk-filling")]
    assert changes[0].finding.severity == "critical"
    assert ticks.tick() == []


def test_the_numbers_of_an_open_finding_are_updated_every_few_seconds_and_not_every_tick() -> None:
    ticks = ticks_of("disk-filling")
    texts = []
    for second in range(12):
        ticks.signal(warning(f"{80 + second} % full"))
        assert [kind for kind, _ in kinds(ticks.tick())] in ([], ["raised"])
        texts.append(ticks.engine.conclusions.rows[0].text)
    assert texts[:5] == ["80 % full"] * 5
    assert texts[5] == "85 % full"
    assert len(set(texts)) == 3


def test_each_subject_is_a_finding_of_its_own() -> None:
    ticks = ticks_of("slot-retention", warning("slot a", subject="a"), critical("slot b", subject="b"))
    assert kinds(ticks.tick()) == [("raised", "slot-retention:a"), ("raised", "slot-retention:b")]


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
    ticks = ticks_of("io-stalled", warning(), limits=Limits(off=["io-stalled"]))
    assert ticks.ticks(3) == []
    assert ticks.scripted[0].asked == 0


def test_a_start_time_known_from_the_reading_is_used() -> None:
    ticks = ticks_of("idle-in-transaction")
    ticks.tick()
    began = ticks.wall_us - 3_600_000_000
    ticks.signal(warning(since_us=began))
    ticks.tick()
    assert ticks.engine.conclusions.rows[0].since_us == began


def test_an_acknowledgement_lasts_until_the_finding_clears() -> None:
    ticks = ticks_of("disk-filling", warning(), clear_after_s=1)
    ticks.tick()
    change = ticks.engine.acknowledge("disk-filling", "ann", "ordered disks", ticks.wall_us)
    assert change is not None and change.finding.state == "acknowledged"
    ticks.ticks(20)
    row = ticks.engine.conclusions.rows[0]
    assert (row.state, row.who, row.note) == ("acknowledged", "ann", "ordered disks")
    ticks.signal()
    ticks.ticks(3)
    ticks.signal(warning())
    assert kinds(ticks.tick()) == [("raised", "disk-filling")]
    assert ticks.engine.conclusions.rows[0].state == "open"


def test_a_finding_that_is_not_open_cannot_be_acknowledged() -> None:
    assert EngineTicks().engine.acknowledge("disk-filling", "ann", "", 1) is None


def test_a_silence_expires_and_that_is_reported() -> None:
    ticks = ticks_of("disk-filling", critical())
    ticks.tick()
    assert ticks.engine.silence("disk-filling", ticks.wall_us + 5_000_000, "ann", "", ticks.wall_us) is not None
    assert ticks.ticks(4) == []
    assert ticks.states == ["silenced"]
    assert kinds(ticks.ticks(2)) == [("unsilenced", "disk-filling")]
    assert ticks.states == ["open"]


def test_a_rule_may_be_silenced_before_it_raises_anything() -> None:
    ticks = ticks_of("slot-retention")
    ticks.tick()
    message = ticks.engine.silence("slot-retention", ticks.wall_us + 60_000_000, "ann", "rebuild", ticks.wall_us)
    assert message is not None and (message.finding.state, message.finding.who) == ("silenced", "ann")
    ticks.signal(warning(subject="a"))
    changes = ticks.tick()
    assert kinds(changes) == [("raised", "slot-retention:a")]
    assert changes[0].finding.state == "silenced"


def test_a_silence_may_be_revoked() -> None:
    ticks = ticks_of("disk-filling", warning())
    ticks.tick()
    ticks.engine.silence("disk-filling", ticks.wall_us + 60_000_000, "ann", "", ticks.wall_us)
    change = ticks.engine.unsilence("disk-filling", "ann", ticks.wall_us)
    assert change is not None and change.finding.state == "open"
    assert ticks.engine.unsilence("disk-filling", "ann", ticks.wall_us) is None


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
    ticks = ticks_of("disk-filling")
    ticks.tick()
    ticks.engine.marks.restore({"acknowledged": {"slot-retention": FindingMark(who="ann", note="")}}, ticks.wall_us)
    ticks.signal(warning())
    ticks.ticks(1 + RESTORED_GRACE_US // 1_000_000)
    assert ticks.engine.marks.to_save()["acknowledged"] == {}


def test_a_failing_rule_gives_a_short_reason_without_secrets() -> None:
    class Failing(ScriptedRule):
        def _check(self, context: RuleContext) -> Iterable[Signal]:
            raise KeyError("connection 'password=hunter2'\x1b[2J" + "x" * 5000)

    engine_ticks = EngineTicks(Failing("disk-filling"))
    engine_ticks.tick()
    (why,) = engine_ticks.engine.conclusions.failed
    assert why.startswith("disk-filling: KeyError") and len(why) < 400
    assert "hunter2" not in why and "\x1b" not in why
