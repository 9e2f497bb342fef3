"""Changes of the server are reported in sentences, and nothing else is."""

from __future__ import annotations

from msgspec import structs

from dba_console.agent.agent_process import connection_slot_text, server_changes
from dba_console.watch.samples.postgres import Setting
from tests.unit.agent.test_data_locations import SERVER


def change_texts(**changed: object) -> list[str]:
    return list(server_changes(SERVER, structs.replace(SERVER, **changed)))


def test_without_a_change_nothing_is_reported() -> None:
    assert change_texts(now_us=5) == []


def test_a_restart_and_a_new_version_are_reported() -> None:
    assert change_texts(start_us=9, version_num=160001, version="16.1") == [
        "server version changed from 15.4 to 16.1",
        "the server was restarted",
    ]


def test_a_promotion_is_reported_with_its_timeline() -> None:
    standby = structs.replace(SERVER, in_recovery=True)
    primary = structs.replace(standby, in_recovery=False, timeline=2)
    assert list(server_changes(standby, primary)) == [
        "the standby was promoted: it is a primary now",
        "timeline changed from 1 to 2",
    ]


def test_a_setting_is_reported_with_old_and_new_value_and_without_secrets() -> None:
    before = structs.replace(SERVER, settings=[Setting("primary_conninfo", "host=a password=x", None, "file")])
    after = structs.replace(SERVER, settings=[Setting("primary_conninfo", "host=b password=y", None, "file")])
    (text,) = server_changes(before, after)
    assert text == "setting primary_conninfo changed from host=a password=******** to host=b password=********"


def test_another_cluster_behind_the_same_address_is_reported() -> None:
    assert "another cluster answers now" in change_texts(system_identifier="2")[0]


def test_the_connection_slot_is_named() -> None:
    assert "superuser_reserved_connections" in connection_slot_text(structs.replace(SERVER, seat="superuser"))
    assert "an ordinary connection slot" in connection_slot_text(SERVER)
