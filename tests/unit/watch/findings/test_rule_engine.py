"""Raised when it lasts, cleared when it is gone, never from a gap; silenced and acknowledged by people."""

from __future__ import annotations

from collections.abc import Iterable

from dba_console.core.thresholds import Limits
from dba_console.watch.findings.finding_events import RESTORED_GRACE_US, FindingMark
from dba_console.watch.findings.rule import Rule, RuleContext, Signal
from tests.unit.watch.findings.rule_ticks import Bench, Told, critical, kinds, warning


def test_a_signal_is_raised_at_once_if_the_rule_requires_no_duration() -> None:
    told = Told("disk-filling")
    bench = Bench(told)
    told.sees = [warning()]
    assert kinds(bench.tick()) == [("raised", "disk-filling")]
    assert bench.tick() == []


def test_a_signal_that_must_last_is_not_raised_before() -> None:
    told = Told("io-stalled", raise_after_s=3)
    bench = Bench(told)
    told.sees = [warning()]
    assert bench.ticks(3) == []
    assert kinds(bench.tick()) == [("raised", "io-stalled")]


def test_a_signal_shorter_than_its_required_duration_is_never_raised() -> None:
    told = Told("io-stalled", raise_after_s=3)
    bench = Bench(told)
    for _ in range(10):
        told.sees = [warning()]
        assert bench.ticks(2) == []
        told.sees = []
        assert bench.ticks(1) == []


def test_a_finding_is_cleared_only_after_it_was_gone_for_its_duration() -> None:
    told = Told("io-stalled", clear_after_s=5)
    bench = Bench(told)
    told.sees = [warning()]
    bench.tick()
    told.sees = []
    assert bench.ticks(4) == []
    assert bench.ids == ["io-stalled"]
    assert kinds(bench.tick()) == [("cleared", "io-stalled")]
    assert bench.ids == []


def test_a_finding_that_returns_before_it_was_cleared_is_the_same_one() -> None:
    told = Told("io-stalled", clear_after_s=5)
    bench = Bench(told)
    told.sees = [warning()]
    bench.tick()
    since_us = bench.judge.conclusions.rows[0].since_us
    told.sees = []
    bench.ticks(3)
    told.sees = [warning("still wrong")]
    assert bench.ticks(6) == []
    assert bench.judge.conclusions.rows[0].since_us == since_us


def test_a_rule_is_evaluated_only_when_its_part_was_read_again() -> None:
    told = Told("io-stalled")
    bench = Bench(told)
    told.sees = [warning()]
    bench.tick()
    for _ in range(60):
        assert bench.tick(read=False) == []
    assert told.asked == 1
    assert bench.ids == ["io-stalled"], "what was seen last holds until it is looked at again"


def test_unobserved_seconds_do_not_count_towards_raising() -> None:
    told = Told("io-stalled", raise_after_s=3)
    bench = Bench(told)
    told.sees = [warning()]
    bench.ticks(2)
    assert bench.tick(after_s=60) == []
    assert bench.ticks(2) == []
    assert kinds(bench.tick()) == [("raised", "io-stalled")]


def test_unobserved_seconds_do_not_clear_a_finding() -> None:
    told = Told("io-stalled", clear_after_s=5)
    bench = Bench(told)
    told.sees = [warning()]
    bench.tick()
    told.sees = []
    assert bench.tick(after_s=60) == []
    assert bench.ids == ["io-stalled"]


def test_a_finding_that_becomes_worse_is_reported_once() -> None:
    told = Told("disk-filling")
    bench = Bench(told)
    told.sees = [warning("80 % full")]
    bench.tick()
    told.sees = [critical("90 % full")]
    changes = bench.tick()
    assert kinds(changes) == [("changed", "disk-filling")]
    assert changes[0].finding.severity == "critical"
    assert bench.tick() == []


def test_the_numbers_of_an_open_finding_are_updated_every_few_seconds_and_not_every_tick() -> None:
    told = Told("disk-filling")
    bench = Bench(told)
    texts = []
    for second in range(12):
        told.sees = [warning(f"{80 + second} % full")]
        assert [kind for kind, _ in kinds(bench.tick())] in ([], ["raised"])
        texts.append(bench.judge.conclusions.rows[0].text)
    assert texts[:5] == ["80 % full"] * 5
    assert texts[5] == "85 % full"
    assert len(set(texts)) == 3


def test_each_subject_is_a_finding_of_its_own() -> None:
    told = Told("slot-retention")
    bench = Bench(told)
    told.sees = [warning("slot a", subject="a"), critical("slot b", subject="b")]
    assert kinds(bench.tick()) == [("raised", "slot-retention:a"), ("raised", "slot-retention:b")]


def test_a_failing_rule_is_named_and_stops_no_other() -> None:
    def fails(situation: RuleContext) -> Iterable[Signal]:
        raise ZeroDivisionError("division by zero")

    told = Told("io-stalled")
    broken = Rule(name="broken", title="broken", parts=("host.pressure",), check=fails)
    bench = Bench(told, rules=[broken])
    told.sees = [warning()]
    assert kinds(bench.tick()) == [("raised", "io-stalled")]
    assert bench.judge.conclusions.failed == ["broken: ZeroDivisionError: division by zero"]


def test_a_disabled_rule_is_not_evaluated() -> None:
    told = Told("io-stalled")
    bench = Bench(told, limits=Limits(off=["io-stalled"]))
    told.sees = [warning()]
    assert bench.ticks(3) == []
    assert told.asked == 0


def test_a_start_time_known_from_the_reading_is_used() -> None:
    told = Told("idle-in-transaction")
    bench = Bench(told)
    bench.tick()
    began = bench.wall_us - 3_600_000_000
    told.sees = [warning(since_us=began)]
    bench.tick()
    assert bench.judge.conclusions.rows[0].since_us == began


def test_an_acknowledgement_lasts_until_the_finding_clears() -> None:
    told = Told("disk-filling", clear_after_s=1)
    bench = Bench(told)
    told.sees = [warning()]
    bench.tick()
    change = bench.judge.acknowledge("disk-filling", "ann", "ordered disks", bench.wall_us)
    assert change is not None and change.finding.state == "acknowledged"
    bench.ticks(20)
    row = bench.judge.conclusions.rows[0]
    assert (row.state, row.who, row.note) == ("acknowledged", "ann", "ordered disks")
    told.sees = []
    bench.ticks(3)
    told.sees = [warning()]
    assert kinds(bench.tick()) == [("raised", "disk-filling")]
    assert bench.judge.conclusions.rows[0].state == "open"


def test_a_finding_that_is_not_open_cannot_be_acknowledged() -> None:
    assert Bench().judge.acknowledge("disk-filling", "ann", "", 1) is None


def test_a_silence_expires_and_that_is_reported() -> None:
    told = Told("disk-filling")
    bench = Bench(told)
    told.sees = [critical()]
    bench.tick()
    assert bench.judge.silence("disk-filling", bench.wall_us + 5_000_000, "ann", "", bench.wall_us) is not None
    assert bench.ticks(4) == []
    assert bench.states == ["silenced"]
    assert kinds(bench.ticks(2)) == [("unsilenced", "disk-filling")]
    assert bench.states == ["open"]


def test_a_rule_may_be_silenced_before_it_raises_anything() -> None:
    told = Told("slot-retention")
    bench = Bench(told)
    bench.tick()
    said = bench.judge.silence("slot-retention", bench.wall_us + 60_000_000, "ann", "rebuild", bench.wall_us)
    assert said is not None and (said.finding.state, said.finding.who) == ("silenced", "ann")
    told.sees = [warning(subject="a")]
    changes = bench.tick()
    assert kinds(changes) == [("raised", "slot-retention:a")]
    assert changes[0].finding.state == "silenced"


def test_a_silence_may_be_revoked() -> None:
    told = Told("disk-filling")
    bench = Bench(told)
    told.sees = [warning()]
    bench.tick()
    bench.judge.silence("disk-filling", bench.wall_us + 60_000_000, "ann", "", bench.wall_us)
    change = bench.judge.unsilence("disk-filling", "ann", bench.wall_us)
    assert change is not None and change.finding.state == "open"
    assert bench.judge.unsilence("disk-filling", "ann", bench.wall_us) is None


def test_an_unknown_rule_cannot_be_silenced() -> None:
    assert Bench().judge.silence("no-such-rule", 10, "ann", "", 1) is None


def test_an_acknowledgement_is_valid_for_the_next_agent_whatever_it_reads_first() -> None:
    told, slow = Told("disk-filling"), Told("slot-retention")
    bench = Bench(told, slow)
    slow.sees = [warning()]
    bench.tick()
    bench.judge.acknowledge("slot-retention", "ann", "its replica is built", bench.wall_us)
    said = bench.judge.marks.to_save()

    told.sees, slow.sees = [warning()], []
    after = Bench(told, slow)
    after.judge.marks.restore(said, bench.wall_us)
    after.ticks(20)
    slow.sees = [warning()]
    after.tick()
    assert dict(zip(after.ids, after.states, strict=True)) == {"disk-filling": "open", "slot-retention": "acknowledged"}


def test_an_acknowledgement_ends_if_the_next_agent_does_not_see_the_finding() -> None:
    told = Told("disk-filling")
    bench = Bench(told)
    bench.tick()
    bench.judge.marks.restore(
        {"acknowledged": {"slot-retention": FindingMark(who="ann", note="", set_us=1)}}, bench.wall_us
    )
    told.sees = [warning()]
    bench.ticks(1 + RESTORED_GRACE_US // 1_000_000)
    assert bench.judge.marks.to_save()["acknowledged"] == {}


def test_a_failing_rule_gives_a_short_reason_without_secrets() -> None:
    class Failing(Told):
        def _look(self, situation: RuleContext) -> Iterable[Signal]:
            raise KeyError("connection 'password=hunter2'\x1b[2J" + "x" * 5000)

    bench = Bench(Failing("disk-filling"))
    bench.tick()
    (why,) = bench.judge.conclusions.failed
    assert why.startswith("disk-filling: KeyError") and len(why) < 400
    assert "hunter2" not in why and "\x1b" not in why
