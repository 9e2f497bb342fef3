"""Damaged pages: told when they are read, for as long as the agent runs, and not where nothing is known."""

from __future__ import annotations

import pytest

from dba_console.watch.findings import safety
from dba_console.watch.findings.rule import Rule
from tests.unit.watch.findings.judged_ticks import Watching, database, only, primary

HOUR = 3600.0
DAY = 86_400.0


def rule(name: str) -> Rule:
    return next(one for one in safety.RULES if one.name == name)


def checksums() -> Watching:
    watching = Watching(rule("checksum-failure"))
    watching.sees({"pg.server": primary()})
    return watching


def test_a_page_that_fails_while_watched_is_critical_and_its_database_named() -> None:
    watching = checksums()
    assert watching.sees({"pg.databases": database(checksum_failures=0)}) == {}
    found = only(watching.sees({"pg.databases": database(checksum_failures=1, checksum_last_failure=watching.ago(1))}))
    assert found.severity == "critical"
    assert "database appdb" in found.text
    assert found.evidence["checksum_failures_since_start"] == 1


def test_failures_of_long_before_the_agent_are_a_warning() -> None:
    watching = checksums()
    stats = database(checksum_failures=3, checksum_last_failure=watching.ago(3 * DAY))
    found = only(watching.sees({"pg.databases": stats}))
    assert (found.severity, found.evidence["checksum_failures_since_start"]) == ("warning", 0)
    assert "3 reads" in found.text


def test_a_failure_of_an_hour_before_the_agent_is_critical_all_the_same() -> None:
    watching = checksums()
    stats = database(checksum_failures=3, checksum_last_failure=watching.ago(HOUR))
    assert only(watching.sees({"pg.databases": stats})).severity == "critical"


def test_resetting_the_statistics_takes_no_failure_back() -> None:
    watching = checksums()
    failed = database(checksum_failures=2, checksum_last_failure=watching.ago(1))
    watching.sees({"pg.databases": failed})
    for _ in range(20):
        findings = watching.sees({"pg.databases": database(checksum_failures=0)})
    assert only(findings).evidence["checksum_failures"] == 2
    again = database(checksum_failures=1, checksum_last_failure=watching.ago(1))
    for _ in range(6):
        findings = watching.sees({"pg.databases": again})
    assert only(findings).evidence["checksum_failures"] == 3


def test_a_day_after_the_last_failure_it_is_a_warning_still() -> None:
    watching = checksums()
    failed_at = watching.ago(1)
    watching.sees({"pg.databases": database(checksum_failures=1, checksum_last_failure=failed_at)})
    later = database(checksum_failures=1, checksum_last_failure=failed_at)
    assert only(watching.sees({"pg.databases": later}, after_s=25 * HOUR)).severity == "warning"


def test_shared_catalogs_are_named_as_such() -> None:
    watching = checksums()
    stats = database(None, 0, checksum_failures=1, checksum_last_failure=watching.ago(1))
    assert "the shared catalogs" in only(watching.sees({"pg.databases": stats})).text


def test_counters_that_are_not_there_because_checksums_are_off_say_nothing() -> None:
    assert checksums().sees({"pg.databases": database(checksum_failures=None)}) == {}


def test_a_name_of_a_database_drives_no_terminal() -> None:
    watching = checksums()
    stats = database("\x1b[2Jx", checksum_failures=1, checksum_last_failure=watching.ago(1))
    assert "\x1b" not in only(watching.sees({"pg.databases": stats})).text


@pytest.mark.parametrize(("major", "how"), [(16, "pg_checksums --enable"), (19, "pg_enable_data_checksums()")])
def test_checksums_that_are_off_are_told_with_the_way_of_that_version(major: int, how: str) -> None:
    watching = Watching(rule("checksums-off"))
    found = only(watching.sees({"pg.server": primary(major, set={"data_checksums": "off"})}))
    assert found.severity == "info"
    assert how in found.text


@pytest.mark.parametrize("state", ["on", "inprogress-on"])
def test_checksums_that_are_on_or_on_their_way_are_not_told(state: str) -> None:
    assert Watching(rule("checksums-off")).sees({"pg.server": primary(19, set={"data_checksums": state})}) == {}
