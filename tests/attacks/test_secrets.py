"""Secrets as they stand in statements, commands, documents and headers: none is shown, logged or recorded."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from dba_console.core.redact import redact
from dba_console.recording.recording import Recording
from tests.agent.runs.small_runbooks import runbook_text
from tests.cli.console import Console
from tests.clusters import FreshCluster

S = "Zq7hunter2x"
LIMIT_S = 120.0

STATEMENTS = (
    f"ALTER ROLE app PASSWORD '{S}'",
    f"alter role app password -- new one\n '{S}'",
    f"ALTER ROLE app PASSWORD 'a'\n '{S}'",
    f"ALTER ROLE app ENCRYPTED PASSWORD E'{S}'",
    f"ALTER ROLE app PASSWORD U&'{S}'",
    f"ALTER ROLE app PASSWORD $${S}$$",
    f"ALTER ROLE app PASSWORD $x${S}$x$",
    f"alter role app password/* x */'{S}'",
    f"CREATE USER app PASSWORD'{S}'",
    f"create role app login password '{S}' valid until 'infinity'",
    f"/* {{}} */ alter user app with password '{S}'",
    f"ALTER USER MAPPING FOR app SERVER s OPTIONS (SET password '{S}')",
    f"CREATE USER MAPPING FOR app SERVER s OPTIONS (user 'a', password '{S}')",
    f"create server s foreign data wrapper f options (password '{S}')",
    f"create server s foreign data wrapper f options (api_key '{S}')",
    f"CREATE SUBSCRIPTION s CONNECTION 'host=a password={S}' PUBLICATION p",
    f"CREATE SUBSCRIPTION s CONNECTION 'host=a password=''{S}''' PUBLICATION p",
    f"CREATE SUBSCRIPTION s CONNECTION 'postgresql://u:{S}@h/d' PUBLICATION p",
    f"alter subscription s connection 'password={S} host=a'",
    f"select dblink('host=x password=abc;{S}', 'select 1')",
    f"select dblink_connect('host=x password=abc,{S} user=a')",
    f"select dblink('password=a&{S}', 'x')",
    f"select dblink('password=a){S}', 'x')",
    f"select login(password => '{S}')",
    f"select login(password := '{S}')",
    f"select login(user => 'a', passwd => '{S}')",
    f"call set_user_password('bob', '{S}')",
    f"select crypt('{S}', gen_salt('bf'))",
    f"select pgp_sym_encrypt('x', '{S}')",
    f"select pgp_sym_decrypt(d, '{S}')",
    f"select hmac('x', '{S}', 'sha256')",
    f"select encrypt('{S}', 'k', 'aes') as password",
    f"INSERT INTO users(name, password) VALUES ('bob', '{S}')",
    f"insert into users (pwd) values ('{S}')",
    f"update users set password = '{S}' where id = 1",
    f"update users set pwd_hash = crypt('{S}', 'x')",
    f"update t set api_key = '{S}'",
    f"update t set access_token = '{S}', b = 'c'",
    f"update t set \"secret\" = '{S}'",
    f"select * from users where passwd = '{S}'",
    f"select * from s where session_token = '{S}'",
    f"merge into users u using (select '{S}' as password) n on true when matched then do nothing",
    f"SET my.token = '{S}'",
    f"set session app.api_key to '{S}'",
    f"select set_config('app.secret', '{S}', false) as secret",
    f"alter system set primary_conninfo = 'host=a password={S}'",
    f"alter database d set my.password = '{S}'",
    f'select \'{{"password": "{S}"}}\'::json',
    f'select \'{{"access_token":"{S}"}}\'',
    f"/* password: {S} */ select 1",
    f"select 1 /* token={S} */",
    f"do $$ begin alter role a password '{S}'; end $$",
    f"do $x$ begin perform login(password => '{S}'); end $x$",
    f"prepare p as update users set password = '{S}'",
    f"copy (select 1) to program 'curl -u backup:{S} https://s'",
    f"copy t from program 'sshpass -p {S} ssh h cat'",
    f"copy t to program 'mysql -p{S} x'",
    f"copy t to program 'PGPASSWORD={S} psql'",
    f"copy t to program 'curl -H \"Authorization: Bearer {S}\" https://x'",
    f"security label on role a is 'password={S}'",
    f"comment on role a is 'password: {S}'",
    f"select 1; alter role a password '{S}'; select 2",
    f"with n as (select '{S}'::text as password) select * from n",
    f"explain update users set password = '{S}'",
    f"execute set_password('{S}')",
    f"table t; create user a password '{S}'",
)
TEXTS = (
    f"host=db password={S} user=app",
    f"password = '{S}'",
    f"password='with a blank and \\' {S}'",
    f"sslpassword={S}",
    f"PGPASSWORD={S} pg_dump app",
    f"RESTIC_PASSWORD='a b {S}' restic backup %p",
    f"passfile=x password={S},host=b",
    f"postgresql://app:{S}@db1:5432/app?sslmode=require",
    f"postgres://u:a@b{S}@host/db",
    f"postgresql://db1/app?user=app&password={S}",
    f"https://{S}TOKEN99@host/repo.git",
    f"https://u:{S}@host/",
    f"curl --fail -u backup:{S} -T %p https://store/%f",
    f"curl --user='backup:{S}' https://x",
    f"curl -H 'X-Api-Key: {S}' https://x",
    f"curl -H 'Authorization: Basic {S}' https://x",
    f"Authorization: Bearer {S}",
    f"proxy-authorization: {S}",
    f"invalid token: Bearer {S}",
    f"sshpass -p {S} rsync a b",
    f"sshpass -p'{S}' ssh h",
    f"sshpass -e -p {S} ssh h",
    f"mysql -u root -p{S} db",
    f"mysqldump -h db -p'{S}' shop",
    f"mariadb-dump --password={S} x",
    f"AWS_SECRET_ACCESS_KEY={S} aws s3 cp %p s3://wal/%f",
    f"AWS_SESSION_TOKEN={S} aws",
    f"GITHUB_TOKEN={S} git pull",
    f"store put --secret-access-key '{S}' %p",
    f"backup --passphrase {S} %p",
    f"backup --api-key {S}",
    f"tool --auth-token={S}",
    f"password: {S}",
    f'  api_key: "{S}"',
    f'{{"password": "{S}"}}',
    f"{{'secret': '{S}'}}",
    f"client_secret={S}",
    f"private_key = {S}",
    f"azure_storage_account_key={S}",
    f"set my_password={S}",
    f"ERROR: syntax error\nLINE 1: ALTER ROLE app PASSWORD '{S}'",
    f"AZURE_ACCOUNT_KEY={S}",
    f"encryption-key={S}",
    f"db.password={S}",
    f"spring.datasource.password: {S}",
    f"--password {S}",
    f"PASSWORD='{S}",
)
FORMS = [text.replace("{}", "x") for text in (*STATEMENTS, *TEXTS)]
SHOWN_LATER = ("merge into", "set_config(", "with n as", "u:a@b", "https://", " as password", "PASSWORD99")
"""What makes it a secret comes after it: cut off before, nobody can tell."""
CUT = [
    text[: text.index(S) + len(S)]
    for text in FORMS
    if text.index(S) + len(S) < len(text) and not any(late in text for late in SHOWN_LATER)
]


@pytest.mark.parametrize("text", [*FORMS, *CUT])
def test_no_encoding_of_the_secret_gets_through(text: str) -> None:
    shown = redact(text)
    assert S not in shown and "********" in shown
    assert redact(shown) == shown


def test_there_are_a_hundred_and_fifty_secret_forms() -> None:
    assert len(FORMS) + len(CUT) >= 150


@pytest.mark.parametrize(
    "text",
    [
        "select * from orders where id = 4711 and name = 'bob'", "alter table a add primary key (id)",
        "create index on t (key, value) where kind = 'x'", "select 'a' as b, count(*) from pg_stat_activity",
        'password authentication failed for user "app"', "https://www.postgresql.org/docs/18/",
        "insert into users (name) values ('bob')", "select to_tsvector('english', 'a cat')", "postgresql://app@db1/x",
        "rsync --password-file=/etc/x a b"[:5], "the basic idea", "user=app dbname=app host=/run/postgresql",
    ],
)  # fmt: skip
def test_text_without_a_secret_is_unchanged(text: str) -> None:
    assert redact(text) == text


def test_a_statement_next_to_one_with_a_secret_keeps_its_literals() -> None:
    assert redact(f"select 'seen'; alter role a password '{S}'") == "select 'seen'; alter role a password '********'"


def test_no_secret_is_in_a_recording_of_a_server_that_executed_them(
    reused_cluster: FreshCluster, tmp_path: Path
) -> None:
    """The text of a statement that failed stays in pg_stat_activity, where every agent reads it."""
    cluster, console = reused_cluster({"max_connections": 300, "logging_collector": "off"}), Console(tmp_path)
    asked = [text for text in FORMS if "\x00" not in text]
    with ExitStack() as sessions:
        for text in asked:
            session = sessions.enter_context(psycopg.connect(cluster.dsn(), autocommit=True))
            session.pgconn.exec_(text.encode())
        done = console.run("record", cluster.dsn(), "--for", "3s", timeout=LIMIT_S)
        assert done.code == 0, done
    (directory,) = console.sessions.iterdir()
    recording = Recording.open(directory)
    try:
        picture = recording.picture_at(recording.last_us)
        assert picture is not None
        sessions_seen = repr([part.value() for part in picture.current.values()])
    finally:
        recording.close()
    assert sessions_seen.count("********") >= len(asked) / 2
    assert S not in sessions_seen
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert S.encode() not in written


def test_a_setting_with_a_secret_name_is_in_no_recording_and_no_journal(
    reused_cluster: FreshCluster, tmp_path: Path
) -> None:
    secrets = {"my.token": S, "ext.api_key": S, "primary_conninfo": f"host=db1 password={S}",
               "ssl_passphrase_command": f"echo {S}"}  # fmt: skip
    cluster, console = reused_cluster({"logging_collector": "off", **secrets}), Console(tmp_path)
    listing = tmp_path / "settings.md"
    names = ", ".join(f"'{name}'" for name in (*secrets, "work_mem"))
    listing.write_text(
        runbook_text("settings", f"## Look\n\n```sql {{preview}}\nselect name, setting, boot_val from pg_settings\n"
             f"where name in ({names})\n```\n\n```sql {{preview title=\"files\"}}\nselect name, setting\n"
             f"from pg_file_settings where name in ({names})\n```\n")
    )  # fmt: skip
    with console.watching(cluster.dsn()):
        done = console.run("runbook", "rehearse", str(listing), "--dsn", cluster.dsn(), "--plain", timeout=LIMIT_S)
    assert done.code == 0 and "my.token" in done.out and "4096" in done.out, done
    assert S not in done.out + done.err
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert S.encode() not in written


@pytest.mark.parametrize(
    "text",
    [
        "/**/" * 25_000 + "x password", "/* " * 30_000 + "password", "select password, " + "_" * 100_000,
        "password 'a'" + "\n" * 100_000, "-" * 100_000 + " password", "secret-" * 15_000, "mysql " * 17_000,
        "a." * 50_000 + " ://", "x-key:" * 17_000, "select secret " + "".join(f"$t{n}$" for n in range(15_000)),
        "password " * 12_000, "password=x " * 10_000, "password=" + ",a" * 50_000, "select secret" + "'" * 100_000,
        "token" * 20_000 + "=", "https://" * 12_000, "authorization " * 7_000, "bearer " * 14_000,
        "(" * 100_000 + "password", "mysql-" * 17_000,
    ],
    ids=lambda text: text[:12].replace("/", "|"),
)  # fmt: skip
def test_no_text_takes_long_to_mask(text: str) -> None:
    """Whoever may open a session writes such a text. What grows with the square of its length would take minutes."""
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize("text", [f"password=it's{S}", f"password=a''{S}", f'password=a"{S}', f"password=********-{S}"])
def test_a_quote_within_a_value_does_not_end_it(text: str) -> None:
    assert S not in redact(text)


def test_text_in_nested_dollar_quotes_is_masked_too() -> None:
    text = f"do $a$ begin execute $b$ do $c$ begin execute $d$ select login('{S}') $d$; end $c$ $b$; end $a$; -- secret"
    assert S not in redact(text)
