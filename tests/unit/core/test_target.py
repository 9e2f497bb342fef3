"""Which server a connection string means, as libpq would read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dba_console.agent.find_or_start import LaunchRequest
from dba_console.cli.config_file import LoadedConfig
from dba_console.core.config import Config, TargetConfig
from dba_console.core.errors import UsageError
from dba_console.core.target import Target, make_target, parse_conninfo
from dba_console.watch.probes.postgres.tick_reader import PostgresProbe

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize(
    "text",
    [
        "host=db1 dbname=app user=anna port=5433",
        "host = '/run/post gresql' dbname='it\\'s'",
        "postgresql://anna:s3%20cret@db1:5433/app?sslmode=require",
        "postgres:///app?host=/run/postgresql",
        "postgresql://db1,db2:5433/app",
        "postgresql://[::1]:5433/app",
        "postgresql://db1/app?ssl=true",
        "postgresql://db1/app?password=a+b%2B%26c&options=-c%20geqo%3Doff",
    ],
)
def test_a_connection_string_is_parsed_as_libpq_does(text: str) -> None:
    theirs = {key: str(value) for key, value in conninfo_to_dict(text).items()}
    assert parse_conninfo(text) == theirs


@given(user=TEXT, password=TEXT)
def test_any_value_quoted_for_libpq_is_read_back(user: str, password: str) -> None:
    found = parse_conninfo(make_conninfo(user=user, password=password))
    assert (found["user"], found["password"]) == (user, password)


@pytest.mark.parametrize("text", ["password=x s3cret", "postgresql://u:s3cret@[::1/app:x:y"])
def test_an_invalid_connection_string_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_conninfo(text)
    assert "s3cret" not in str(refused.value)


def test_spellings_of_one_server_address_have_one_key_and_other_addresses_another() -> None:
    environ = {"PGHOST": "db1", "PGUSER": "anna"}
    same = ["dbname=app host=db1 user=anna", "postgresql://anna@db1:5432/app", "dbname=app"]
    assert len({make_target(text, environ=environ).key for text in same}) == 1
    others = ["dbname=app port=5433", "dbname=app host=db2", "dbname=other", "dbname=app user=bert"]
    assert len({make_target(text, environ=environ).key for text in [same[0], *others]}) == 5


@pytest.mark.parametrize(
    "dsn",
    [
        "dbname=app", "dbname=app host=/run/postgresql", "postgresql:///app", "dbname=app host=@abstract",
        "dbname=app host=localhost", "dbname=app hostaddr=127.0.0.1", "dbname=app host=127.0.1.1",
        "postgresql://[::1]/app",
    ],
)  # fmt: skip
def test_an_unnamed_server_of_this_host_is_also_called_by_the_host_name(dsn: str) -> None:
    assert make_target(dsn, environ={}).name == f"app:5432@{os.uname().nodename}"
    assert make_target(dsn, name="shop", environ={}).name == "shop"


@pytest.mark.parametrize("host", ["10.0.0.1", "localhost.example", "127.example", "db2,localhost"])
def test_a_server_of_another_host_is_called_by_that_host(host: str) -> None:
    assert make_target(f"dbname=app host={host} port=54711", environ={}).name == f"app@{host}:54711"


def test_a_password_is_neither_in_the_name_nor_in_the_key_nor_in_the_repr() -> None:
    with_password = make_target("postgresql://anna:s3cret@db1/app", environ={})
    assert "s3cret" not in with_password.name + with_password.key + repr(with_password)
    assert with_password.key == make_target("postgresql://anna@db1/app", environ={}).key


def test_no_record_with_a_connection_string_shows_it() -> None:
    dsn = "host=db1 password=s3cret"
    config = Config(targets={"prod": TargetConfig(dsn=dsn)})
    request = LaunchRequest(target=Target("prod", "k", dsn), config=config)
    loaded = LoadedConfig(config, {}, Path(), True, {"targets": {"prod": {"dsn": dsn}}})
    shown = repr([config, request, make_target(dsn, environ={}), PostgresProbe(dsn), loaded])
    assert "prod" in shown
    assert "s3cret" not in shown
