"""What the doctor concludes from what the server said of itself."""

from __future__ import annotations

from msgspec.structs import replace

from dba_console.cli.doctor.check import DoctorCheck, exit_code, report_text
from dba_console.cli.doctor.host import check_server
from dba_console.watch.samples.postgres import Server, Setting

PLAIN = Server(
    version_num=160004, version="16.4", system_identifier="1", in_recovery=False, timeline=1, start_us=0, now_us=1,
    current_user="watcher", database="app", superuser=False, pg_monitor=False, signal_backend=False,
    reserved_member=False, backend_pid=1, server_address=None, server_port=None, data_directory=None,
    settings=[Setting("superuser_reserved_connections", "3", None, "default")], databases=[], roles=[], tablespaces={},
    local=True,
)  # fmt: skip


def checks(server: Server | None, note: str | None = None) -> dict[str, DoctorCheck]:
    return {check.id: check for check in check_server(server, note)}


def test_an_unreachable_server_is_critical_and_shows_why() -> None:
    found = checks(None, "connection refused at db1:5432")
    assert found["connection"].status == "missing"
    assert found["connection"].text == "connection refused at db1:5432"
    assert exit_code(list(found.values())) == 3


def test_without_a_connection_no_privilege_is_reported_as_missing() -> None:
    assert checks(None)["privileges"].status == "unknown"


def test_a_plain_role_is_shown_the_required_grant() -> None:
    found = checks(PLAIN)
    assert (found["pg_monitor"].status, found["pg_monitor"].fix) == ("missing", "GRANT pg_monitor TO watcher;")
    assert found["pg_signal_backend"].fix == "GRANT pg_signal_backend TO watcher;"
    assert exit_code(list(found.values())) == 0


def test_a_role_with_an_odd_name_is_quoted_in_the_grant() -> None:
    assert checks(replace(PLAIN, current_user='My "Role"'))["pg_monitor"].fix == 'GRANT pg_monitor TO "My ""Role""";'


def test_a_superuser_lacks_no_right() -> None:
    found = checks(replace(PLAIN, superuser=True))
    assert {check.status for check in found.values()} == {"ok"}


def test_a_member_of_the_monitor_role_is_not_shown_its_grant() -> None:
    assert checks(replace(PLAIN, pg_monitor=True))["pg_monitor"].status == "ok"


def test_a_reserved_slot_needs_both_membership_and_slots() -> None:
    assert "GRANT pg_use_reserved" in (checks(PLAIN)["reserved"].fix or "")
    assert "ALTER SYSTEM" in (checks(PLAIN)["reserved"].fix or "")
    slots = [Setting("reserved_connections", "2", None, "configuration file")]
    assert "ALTER SYSTEM" not in (checks(replace(PLAIN, settings=slots))["reserved"].fix or "")
    assert checks(replace(PLAIN, settings=slots, reserved_member=True))["reserved"].status == "ok"


def test_before_16_no_grant_of_a_nonexistent_role_is_suggested() -> None:
    assert "GRANT" not in (checks(replace(PLAIN, version_num=150018))["reserved"].fix or "")


def test_a_remote_server_costs_the_host_panels_and_an_unlocated_one_is_unknown() -> None:
    elsewhere = checks(replace(PLAIN, local=False, local_note="the server runs on db2"))["local"]
    assert (elsewhere.status, elsewhere.text) == ("missing", "the server runs on db2")
    assert checks(replace(PLAIN, local=None))["local"].status == "unknown"


def test_a_pooler_is_named_with_its_limitations() -> None:
    pooler = checks(replace(PLAIN, through="PgBouncer 1.21 (transaction)"))["pooler"]
    assert "PgBouncer 1.21" in pooler.text
    assert pooler.lost is not None


def test_the_report_shows_fixes_only_for_failed_checks() -> None:
    text = report_text(check_server(replace(PLAIN, pg_monitor=True), None), "app", "read by this command")
    assert "fix: GRANT pg_signal_backend TO watcher;" in text
    assert "GRANT pg_monitor" not in text
    assert "none critical" in text
    assert "FAILED" not in text


def test_only_critical_checks_are_marked_failed() -> None:
    text = report_text(check_server(None, "refused"), "app", "read by this command")
    assert "  FAILED   refused" in text
