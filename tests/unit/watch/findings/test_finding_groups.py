"""Findings with a common cause are grouped into one, named after the root."""

from __future__ import annotations

from dba_console.watch.findings.finding_groups import (
    FindingGroup,
    SignalTracker,
    TrackedSignal,
    cause_paths,
    conjunction_between,
    find_causes,
    group_text,
)
from dba_console.watch.findings.finding_groups import group_by_cause as joined_by
from dba_console.watch.findings.rule import CausalLink, Signal, same_evidence
from tests.unit.watch.findings.rule_ticks import EngineTicks, ScriptedRule, critical, kinds, warning

LINKS = (
    CausalLink("full", "stalled"),
    CausalLink("stalled", "reclaim", ", while "),
    CausalLink("queue", "idle", ": ", same_evidence("root_pid", "pid")),
    CausalLink("reclaim", "full"),
)


def _tracks(**signals: Signal) -> list[TrackedSignal]:
    tracks = SignalTracker()
    for at, (name, signal) in enumerate(signals.items()):
        tracks.update(ScriptedRule(name).rule, [signal], 1_000_000 + at, 1_000_000 + at)
    return tracks.raised


def join(tracks: list[TrackedSignal], links: tuple[CausalLink, ...]) -> list[FindingGroup]:
    return joined_by(tracks, find_causes(tracks, links), links)


def test_recurring_parts_are_reported_once() -> None:
    full, stalled = ScriptedRule("connections-filling", clear_after_s=2), ScriptedRule("io-stalled")
    engine_ticks = EngineTicks(full, stalled)
    stalled.signals = [warning("I/O is stalled")]
    engine_ticks.tick()
    reported = []
    for _ in range(4):
        full.signals = [warning("Connections fill")]
        reported += engine_ticks.ticks(5)
        full.signals = []
        reported += engine_ticks.ticks(5)
    assert kinds(reported) == [("changed", "io-stalled")]


def test_grouped_findings_stay_grouped_while_both_last() -> None:
    mine, idle = warning("queue", evidence={"root_pid": 7}), warning("idle", evidence={"pid": 7})
    before = find_causes(_tracks(queue=mine, idle=idle), LINKS)
    later = _tracks(queue=warning("queue"), idle=idle)
    assert find_causes(later, LINKS) == {}
    held = cause_paths(before)
    assert [cause.key for cause in find_causes(later, LINKS, held).values()] == [("idle", "")]


def test_a_grouped_finding_stays_with_its_root_when_the_link_between_them_ends() -> None:
    held = cause_paths(find_causes(_tracks(full=critical(), stalled=warning(), reclaim=warning()), LINKS[:2]))
    causes = find_causes(_tracks(full=critical(), reclaim=warning()), LINKS[:2], held)
    assert {effect: cause.key for effect, cause in causes.items()} == {("full", ""): ("reclaim", "")}


def test_a_part_that_only_waits_to_clear_is_not_raised_again_when_its_cause_has_gone() -> None:
    full = ScriptedRule("connections-filling", clear_after_s=30)
    stalled = ScriptedRule("io-stalled", clear_after_s=3)
    engine_ticks = EngineTicks(full, stalled)
    full.signals, stalled.signals = [critical("Connections fill")], [warning("I/O is stalled")]
    engine_ticks.tick()
    full.signals, stalled.signals = [], []
    assert kinds(engine_ticks.ticks(20)) == [("cleared", "io-stalled")]
    full.signals = [critical("Connections fill")]
    assert kinds(engine_ticks.tick()) == [("raised", "connections-filling")]


def test_an_effect_that_keeps_its_name_names_the_finding() -> None:
    links = (CausalLink("wraparound", "horizon", keeps_name=True), CausalLink("horizon", "idle"))
    [joined] = join(_tracks(wraparound=critical(), horizon=warning(), idle=warning()), links)
    assert joined.named_after.rule.name == "wraparound"
    assert joined.root.rule.name == "idle"


def test_effect_and_cause_are_one_finding_named_after_the_root() -> None:
    full = critical("full", effect="Connections fill (244 of 247)")
    stalled = warning("stalled", cause="queries wait for I/O")
    reclaim = warning("reclaim", cause="the page cache fell 4 GB")
    [joined] = join(_tracks(full=full, stalled=stalled, reclaim=reclaim), LINKS)
    assert joined.root.rule.name == "reclaim"
    assert joined.severity == "critical"
    words = {("full", "stalled"): " because ", ("stalled", "reclaim"): ", while "}
    text = group_text(joined, lambda effect, cause: words[effect.rule.name, cause.rule.name])
    assert text == "Connections fill (244 of 247) because queries wait for I/O, while the page cache fell 4 GB"


def test_an_unlinked_finding_stays_separate() -> None:
    joined = join(_tracks(full=warning("full"), other=warning("other")), LINKS)
    assert sorted(one.root.rule.name for one in joined) == ["full", "other"]


def test_circular_links_are_followed_once() -> None:
    joined = join(_tracks(full=warning(), stalled=warning(), reclaim=warning()), LINKS)
    assert [one.root.rule.name for one in joined] == ["reclaim"]


def test_a_conditional_link_groups_only_what_it_applies_to() -> None:
    mine = warning("queue", evidence={"root_pid": 7})
    assert len(join(_tracks(queue=mine, idle=warning("idle", evidence={"pid": 7})), LINKS)) == 1
    assert len(join(_tracks(queue=mine, idle=warning("idle", evidence={"pid": 8})), LINKS)) == 2
    assert len(join(_tracks(queue=warning("queue"), idle=warning("idle")), LINKS)) == 2, "unknown is not equal"


def test_a_second_effect_of_the_same_cause_is_at_the_end_of_the_sentence() -> None:
    links = (CausalLink("full", "stalled"), CausalLink("slow", "stalled"))
    full, stalled, slow = critical("full"), warning("stalled"), warning("slow")
    [joined] = join(_tracks(stalled=stalled, full=full, slow=slow), links)
    assert group_text(joined, lambda a, b: conjunction_between(a, b, links)) == "full because stalled; slow"


def test_every_signal_is_in_exactly_one_finding() -> None:
    tracks = _tracks(full=warning(), stalled=warning(), slow=warning(), other=warning())
    joined = join(tracks, (CausalLink("full", "stalled"), CausalLink("slow", "stalled")))
    assert sorted(track.id for one in joined for track in one.tracks) == sorted(track.id for track in tracks)


def test_a_finding_whose_cause_is_found_later_is_grouped_with_it_and_not_cleared() -> None:
    full, stalled = ScriptedRule("connections-filling"), ScriptedRule("io-stalled")
    engine_ticks = EngineTicks(full, stalled)
    full.signals = [critical("Connections fill")]
    assert kinds(engine_ticks.tick()) == [("raised", "connections-filling")]
    stalled.signals = [warning("I/O is stalled")]
    assert kinds(engine_ticks.tick()) == [("joined", "connections-filling"), ("raised", "io-stalled")]
    row = engine_ticks.engine.conclusions.rows[0]
    assert row.chain == ["connections-filling", "io-stalled"]
    assert row.severity == "critical"
    assert row.text == "Connections fill because I/O is stalled"


def test_a_finding_group_starts_with_its_first_part() -> None:
    full, stalled = ScriptedRule("connections-filling"), ScriptedRule("io-stalled")
    engine_ticks = EngineTicks(full, stalled)
    full.signals = [critical()]
    engine_ticks.tick()
    began = engine_ticks.wall_us
    engine_ticks.ticks(5)
    stalled.signals = [warning()]
    engine_ticks.tick()
    assert engine_ticks.engine.conclusions.rows[0].since_us == began


def test_the_evidence_of_every_part_is_in_the_finding_group() -> None:
    full, stalled = ScriptedRule("connections-filling"), ScriptedRule("io-stalled")
    engine_ticks = EngineTicks(full, stalled)
    full.signals = [critical(evidence={"used": 244}, series=("connections.used",))]
    stalled.signals = [warning(evidence={"psi_full_pct": 61.0}, series=("io.psi_full_pct",), runbook="cache-drop")]
    engine_ticks.tick()
    row = engine_ticks.engine.conclusions.rows[0]
    assert row.evidence == {"used": 244, "psi_full_pct": 61.0}
    assert row.series == ["connections.used", "io.psi_full_pct"]
    assert row.runbook == "cache-drop"
