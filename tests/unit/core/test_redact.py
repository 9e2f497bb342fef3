"""No secret comes through, and nothing else is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.core.redact import redact

SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        "host=db password=hunter2 user=app",
        "host=db password = 'hunter2' user=app",
        "password='with a blank and \\' hunter2'",
        "sslpassword=hunter2",
        "PGPASSWORD=hunter2 pg_dump app",
        "postgresql://app:hunter2@db1:5432/app?sslmode=require",
        "could not connect to postgres://app:hunter2@[::1]/x: refused",
        "postgresql://db1/app?user=app&password=hunter2",
        "ALTER ROLE app PASSWORD 'hunter2'",
        "create user app encrypted password E'hunter2' valid until 'infinity'",
        "ALTER ROLE app PASSWORD $$hunter2$$",
        "ALTER ROLE app PASSWORD $x$hunter2$x$ LOGIN",
        "alter role app\n  password\n  'hunter2 cut by the serv",
        "CREATE SUBSCRIPTION s CONNECTION 'host=a password=hunter2' PUBLICATION p",
        "create server s options (password 'hunter2')",
        "CREATE SUBSCRIPTION s CONNECTION 'host=a password=''hunter2'' user=b' PUBLICATION p",
        "CREATE SUBSCRIPTION s CONNECTION 'host=a password=''hunter2''' PUBLICATION p",
        "CREATE SUBSCRIPTION s CONNECTION 'password=''with a blank hunter2 cut by the serv",
        r"CREATE SUBSCRIPTION s CONNECTION E'password=\'with a blank hunter2\'' PUBLICATION p",
        "host=db password='with a blank hunter2 cut by the serv",
        "alter role app password U&'hunter2'",
        "alter role app password/* new */'hunter2'",
        "curl --fail -u backup:hunter2 -T %p https://store/%f",
        "curl --user='backup:hunter2' -T %p https://store/%f",
        "AWS_SECRET_ACCESS_KEY=hunter2 aws s3 cp %p s3://wal/%f",
        "store put --secret-access-key 'hunter2' %p",
        "backup --passphrase hunter2 %p",
        "RESTIC_PASSWORD='a b hunter2' restic backup %p",
    ],
)
def test_a_password_in_any_form_is_masked(text: str) -> None:
    shown = redact(text)
    assert SECRET not in shown
    assert "********" in shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "verifier",
    [
        "md5" + "0123456789abcdef" * 2,
        "SCRAM-SHA-256$4096:c2FsdA==$c3RvcmVk:c2VydmVy",
    ],
)
def test_stored_password_verifiers_are_masked_everywhere(verifier: str) -> None:
    assert verifier not in redact(f"update pg_authid set rolpassword = '{verifier}'")
    assert verifier not in redact(f"select '{verifier}'")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "select * from passwords where id = 4",
        "https://www.postgresql.org/docs/18/",
        'password authentication failed for user "app"',
        "user=app dbname=app host=/run/postgresql",
    ],
)
def test_text_without_a_secret_is_unchanged(text: str) -> None:
    assert redact(text) == text


@given(st.text())
def test_redacting_twice_changes_nothing_further(text: str) -> None:
    once = redact(f"password={text}")
    assert redact(once) == once


def test_endless_comments_are_read_quickly() -> None:
    text = "alter role app password" + "/* */" * 200 + "x"
    assert redact(text) == text
