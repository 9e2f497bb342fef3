"""No secret comes through, and nothing else is touched."""

from __future__ import annotations

import time

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


TOKEN = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8cF0hJ2kL4"


@pytest.mark.parametrize(
    "token",
    [
        *(f"gh{letter}_{TOKEN}" for letter in "opsur"),
        f"github_pat_11ABCDEFG0_{TOKEN}",
        "glpat-ab12cd34ef56gh78ij90",
        f"sk-{TOKEN}",
        f"sk-proj-abc-_{TOKEN}",
        f"sk-ant-api03-{TOKEN}-x_y",
        f"sk_live_{TOKEN}",
        f"rk_live_{TOKEN}",
        "xoxb-123456789012-1234567890123-abcdefGHIJKL",
        f"npm_{TOKEN}",
        f"hvs.CAESI{TOKEN}",
        f"AIzaSy{TOKEN}",
        f"SG.{TOKEN[:22]}.{TOKEN}",
        "AKIAIOSFODNN7EXAMPLE",
        "ASIAIOSFODNN7EXAMPLE",
        f"hf_{TOKEN[:34]}",
        f"whsec_{TOKEN}",
        f"AGE-SECRET-KEY-1{TOKEN}",
        f"dckr_pat_{TOKEN}",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "eyJhbGciOiJkaXIifQ..AxY8DCtDaGlsbGljb3RoZQ.KDlTtXchhZTGufMYmOYGS4HffxPSUrfmqCHXaI9wOGY.9hH0vgRfYgPnAHOd8stkvw",
    ],
)
@pytest.mark.parametrize("around", ["{}", "select '{}'", "curl -H X:{} https://x", "application={};", "/{}/\n"])
def test_a_token_is_recognised_by_its_form(token: str, around: str) -> None:
    text = around.format(token)
    shown = redact(text)
    assert token[-12:] not in shown and shown.startswith(around.partition("{")[0])
    assert redact(shown) == shown


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", "PGP "])
def test_a_private_key_is_masked_to_its_end(kind: str) -> None:
    block = " BLOCK" if kind == "PGP " else ""
    begin, end = (f"-----{edge} {kind}PRIVATE KEY{block}-----" for edge in ("BEGIN", "END"))
    for breaks in ("\n", "\\n", " "):
        text = breaks.join((begin, TOKEN, TOKEN, end, "after"))
        shown = redact(text)
        assert TOKEN not in shown and shown.endswith(f"{end}{breaks}after")
        assert redact(shown) == shown
    assert TOKEN not in redact(f"select '{begin}\n{TOKEN}\n{TOKEN[:9]}")


@pytest.mark.parametrize(
    "text",
    [
        "disk-usage-of-2024-01-01-and-more is a task-list-with-20-entries",
        "slot sk-prod-replica-number-01 is inactive; risk-free-rate-table-2024",
        "asiatic_customers_2024 and ASIA_PACIFIC_REGION_2024",
        "npm_config_cache_directory_2024_11",
        "select * from eyjafjallajokull.measurements_of_2010",
        "msg.payload_length_1234567890 in hvs_stations.temperature_2024_q1",
        "-----BEGIN CERTIFICATE-----",
    ],
)
def test_a_name_that_begins_like_a_token_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "piece",
    ["eyJ", "eyJaaaaaaaa.", "sk-", "sk-a", "ghp_", "ghp_a-", "xoxb-", "-----BEGIN PRIVATE KEY-----", "AKIA", "SG."],
)
def test_long_text_of_pieces_of_tokens_is_read_quickly(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    began = time.process_time()
    redact(text)
    redact(f"{text} x")
    assert time.process_time() - began < 2


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
