"""Damaged pages are reported when read, for as long as the agent runs, and not where nothing is known."""

from __future__ import annotations

import pytest

from tests.unit.watch.findings.reading_ticks import ReadingTicks, database, only, primary

HOUR = 3600.0
DAY = 86_400.0


def checksums() -> ReadingTicks:
    ticks = ReadingTicks("checksum-failure")
    ticks.tick({"pg.server": primary()})
    return ticks


def test_failures_long_before_the_agent_are_a_warning() -> None:
    ticks = checksums()
    stats = database(checksum_failures=3, checksum_last_failure=ticks.ago(3 * DAY))
    found = only(ticks.tick({"pg.databases": stats}))
    assert (found.severity, found.evidence["checksum_failures_since_start"]) == ("warning", 0)
    assert "3 reads" in found.text


def test_a_failure_an_hour_before_the_agent_is_still_critical() -> None:
    ticks = checksums()
    stats = database(checksum_failures=3, checksum_last_failure=ticks.ago(HOUR))
    assert only(ticks.tick({"pg.databases": stats})).severity == "critical"


def test_resetting_the_statistics_does_not_clear_a_failure() -> None:
    ticks = checksums()
    failed = database(checksum_failures=2, checksum_last_failure=ticks.ago(1))
    ticks.tick({"pg.databases": failed})
    for _ in range(20):
        findings = ticks.tick({"pg.databases": database(checksum_failures=0)})
    assert only(findings).evidence["checksum_failures"] == 2
    again = database(checksum_failures=1, checksum_last_failure=ticks.ago(1))
    for _ in range(6):
        findings = ticks.tick({"pg.databases": again})
    assert only(findings).evidence["checksum_failures"] == 3


def test_a_day_after_the_last_failure_it_is_still_a_warning() -> None:
    ticks = checksums()
    failed_at = ticks.ago(1)
    ticks.tick({"pg.databases": database(checksum_failures=1, checksum_last_failure=failed_at)})
    later = database(checksum_failures=1, checksum_last_failure=failed_at)
    assert only(ticks.tick({"pg.databases": later}, after_s=25 * HOUR)).severity == "warning"


def test_shared_catalogs_are_named_as_such() -> None:
    ticks = checksums()
    stats = database(None, 0, checksum_failures=1, checksum_last_failure=ticks.ago(1))
    assert "the shared catalogs" in only(ticks.tick({"pg.databases": stats})).text


def test_counters_missing_because_checksums_are_off_raise_nothing() -> None:
    assert checksums().tick({"pg.databases": database(checksum_failures=None)}) == {}


def test_a_database_name_does_not_control_the_terminal() -> None:
    ticks = checksums()
    stats = database("\x1b[2Jx", checksum_failures=1, checksum_last_failure=ticks.ago(1))
    assert "\x1b" not in only(ticks.tick({"pg.databases": stats})).text


@pytest.mark.parametrize(("major", "how"), [(16, "pg_checksums --enable"), (19, "pg_enable_data_checksums()")])
def test_disabled_checksums_are_reported_with_how_that_version_enables_them(major: int, how: str) -> None:
    ticks = ReadingTicks("checksums-off")
    found = only(ticks.tick({"pg.server": primary(major, set={"data_checksums": "off"})}))
    assert found.severity == "info"
    assert how in found.text


@pytest.mark.parametrize("state", ["on", "inprogress-on"])
def test_checksums_enabled_or_being_enabled_are_not_reported(state: str) -> None:
    assert ReadingTicks("checksums-off").tick({"pg.server": primary(19, set={"data_checksums": state})}) == {}
