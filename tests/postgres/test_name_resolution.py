"""A host name is looked up where only the lane waits for it, and libpq goes to the addresses found."""

from __future__ import annotations

from pathlib import Path

import pytest

from dba_console.watch.probes.postgres.connect import addresses_of, resolve_hosts
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed


def lookup(name: str) -> list[str]:
    known = {"db1": ["10.0.0.1", "fd00::1"], "db2": ["10.0.0.2"]}
    if name not in known:
        raise OSError("no such name")
    return known[name]


def test_each_address_of_a_name_is_tried() -> None:
    options = resolve_hosts({"host": "db1", "port": "5433"}, lookup)
    assert options == {"host": "db1,db1", "hostaddr": "10.0.0.1,fd00::1", "port": "5433"}


def test_each_address_keeps_the_port_of_its_host() -> None:
    options = resolve_hosts({"host": "db1,/run/pg,db2", "port": "1,2,3"}, lookup)
    assert options["host"] == "db1,db1,/run/pg,db2"
    assert options["hostaddr"] == "10.0.0.1,fd00::1,,10.0.0.2"
    assert options["port"] == "1,1,2,3"


def test_of_several_hosts_the_one_without_an_address_is_skipped() -> None:
    assert resolve_hosts({"host": "gone,db2", "port": "1,2"}, lookup)["hostaddr"] == "10.0.0.2"


def test_a_name_without_an_address_fails_before_libpq_is_called() -> None:
    with pytest.raises(ConnectFailed, match='host name "gone"') as failed:
        resolve_hosts({"host": "gone"}, lookup)
    assert failed.value.kind == "unknown_host"


@pytest.mark.parametrize("host", ["/run/postgresql", "127.0.0.1", "::1", "@abstract"])
def test_a_host_that_is_not_a_name_is_unchanged(host: str) -> None:
    assert resolve_hosts({"host": host}, lookup) == {"host": host}


def test_a_given_address_is_not_looked_up() -> None:
    options = {"host": "gone", "hostaddr": "10.0.0.9"}
    assert resolve_hosts(options, lookup) == options


def test_the_host_from_the_environment_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db2")
    assert resolve_hosts({"user": "u"}, lookup)["hostaddr"] == "10.0.0.2"


def test_the_host_from_a_service_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "services").write_text("[app]\nhost=db2\nport=6543\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    options = resolve_hosts({"service": "app"}, lookup)
    assert (options["hostaddr"], options["port"]) == ("10.0.0.2", "6543")


def test_the_name_of_this_host_has_an_address() -> None:
    assert set(addresses_of("localhost")) & {"127.0.0.1", "::1"}
