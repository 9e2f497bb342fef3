"""Secrets as they stand in statements, commands, documents and headers: none is shown, logged or recorded."""

from __future__ import annotations

import shlex
import signal
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path

import psycopg
import pytest

from dba_console.core.redact import MASK, redact, redact_statement
from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.following.program_arguments import command_text
from dba_console.reports.share_names import NameMap
from dba_console.reports.share_text import TextRewriter
from dba_console.watch.frames.model import Frame
from dba_console.watch.probes.postgres.query_texts import MASKED_BYTES, QueryTexts
from tests.agent.runs.small_runbooks import runbook_text
from tests.attacks.secret_forms import Form, S, harmless_texts, secret_forms
from tests.cli.console import Console
from tests.clusters import FreshCluster

LIMIT_S = 120.0
SESSIONS = 250
"""Sessions at once."""


def _masked(form: Form) -> list[str]:
    """The form masked as what it is, and as what else a caller may take it for."""
    return [redact(form.text), redact_statement(form.text)]


def test_no_form_of_a_secret_gets_through() -> None:
    leaked = [(form, shown) for form in secret_forms() for shown in _masked(form) if S in shown or MASK not in shown]
    assert not leaked


def test_what_is_masked_is_not_changed_by_masking_it_again() -> None:
    changed = [
        (once, again)
        for form in secret_forms()
        for mask in (redact, redact_statement)
        if (again := mask(once := mask(form.text))) != once
    ]
    assert not changed


def test_statements_around_one_with_a_secret_hide_nothing_of_it() -> None:
    forms = [form.text for form in secret_forms() if form.kind == "sql"]
    texts = [text for form in forms for text in (f"select 1; {form}", f"{form}; select 2", f"/* c */ {form}")]
    assert not [shown for text in texts if S in (shown := redact_statement(text))]


def test_the_literals_of_a_statement_that_was_cut_are_masked() -> None:
    """What makes them a secret may come after the end."""
    forms = [form.text for form in secret_forms() if form.kind == "sql"]
    cut = [text[: text.index(S) + length] for text in forms for length in (5, len(S))]
    shown = [redact_statement(text, cut=True) for text in cut if "'" in text]
    assert not [text for text in shown if S[:5] in text and "'" in text.partition(S[:5])[0]]


def test_text_without_a_secret_is_unchanged() -> None:
    changed = [(form.text, shown) for form in harmless_texts() if (shown := redact(form.text)) != form.text]
    changed += [
        (form.text, shown)
        for form in harmless_texts()
        if form.kind == "sql" and (shown := redact_statement(form.text)) != form.text
    ]
    assert not changed


def test_there_are_enough_forms_to_judge_by() -> None:
    assert len(secret_forms()) >= 1000 and len(harmless_texts()) >= 350


def test_a_shared_session_has_no_form_of_a_secret() -> None:
    """One that an older version recorded, with its secrets."""
    rewriter = TextRewriter(NameMap(), "secrets")
    kinds = {"sql": ("query", "text"), "text": ("text", "query", "note", "command")}
    shown = [(form, rewriter.rewrite(kind, form.text)) for form in secret_forms() for kind in kinds[form.kind]]
    assert not [(form, text) for form, text in shown if S in text]


def test_no_command_line_is_shown_with_a_secret() -> None:
    shown = []
    for form in secret_forms():
        if form.form_class == "options of programs" and not set(form.text) & set("|<;&\n()"):
            with suppress(ValueError):
                words = shlex.split(form.text)
                shown.append(command_text(words[0], words))
    assert len(shown) > 120 and not [text for text in shown if S in text]


def test_a_statement_next_to_one_with_a_secret_keeps_its_literals() -> None:
    assert redact(f"select 'seen'; alter role a password '{S}'") == "select 'seen'; alter role a password '********'"


def test_no_secret_is_in_a_recording_of_a_server_that_executed_them(
    reused_cluster: FreshCluster, tmp_path: Path
) -> None:
    """The text of a statement that failed stays in pg_stat_activity, where every agent reads it."""
    cluster, console = reused_cluster({"max_connections": 300, "logging_collector": "off"}), Console(tmp_path)
    texts = [form.text for form in secret_forms()]
    with ExitStack() as sessions, console.watching(cluster.dsn()) as agent:
        speakers = [
            sessions.enter_context(psycopg.connect(cluster.dsn(application_name="speaker"), autocommit=True))
            for _ in range(SESSIONS)
        ]
        for first in range(0, len(texts), SESSIONS):
            for speaker, text in zip(speakers, texts[first : first + SESSIONS], strict=False):
                speaker.pgconn.exec_(text.encode())
                speaker.pgconn.exec_(b"rollback") if speaker.pgconn.transaction_status else None
            agent.until(partial(_all_masked, spoken=len(texts[first : first + SESSIONS])), "all statements, masked")
        agent.end()
    _assert_no_secret(tmp_path)


def _all_masked(frame: Frame, spoken: int) -> bool:
    rows = [row.query for row in frame.sessions.rows if row.application == "speaker"]
    return len(rows) == SESSIONS and sum(MASK in (query or "") for query in rows) >= spoken * 0.9


def _assert_no_secret(directory: Path) -> None:
    written = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert not [path for path, data in written.items() if S.encode() in data]


def test_no_secret_is_in_what_a_run_and_its_operators_leave(
    cluster: Cluster, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Printed by a command, pasted as notes: in the session, its log and journal, the reports and the shared copy."""
    console, made = Console(tmp_path / "home"), tmp_path_factory.mktemp("made")
    lines = [form.text for form in secret_forms() if "\n" not in form.text]
    printed = made / "forms.txt"
    printed.write_text("\n".join(lines) + "\n")
    document = made / "forms.md"
    document.write_text(runbook_text("forms", f"## Print\n\n```sh {{run confirm=yes as=out}}\ncat {printed}\n```\n"))
    with console.watching(cluster.dsn()) as agent:
        done = console.run(
            "runbook", "run", str(document), "--dsn", cluster.dsn(), "--confirm", "print=yes", "--yes", "--plain",
            timeout=LIMIT_S,
        )  # fmt: skip
        assert done.code == 0 and done.out.count(MASK) > len(lines) / 4, done
        agent.end()
    chat = "".join(f"{datetime.now():%H:%M:%S} bob: {line}\n" for line in lines)
    noted = console.run("session", "import-notes", "last", "--zone", "local", stdin=chat, timeout=LIMIT_S)
    assert noted.code == 0, noted
    outputs = [done.out, done.err, noted.out, noted.err]
    for arguments in (
        ("session", "show", "last"),
        ("session", "export", "last", "--format", "csv", "--out", str(made / "export.csv")),
        ("report", "postmortem", "last", "--out", str(made / "report")), ("runbook", "runs", "last"),
        ("session", "share", "last", "--level", "secrets", "--out", str(made / "shared.zip"), "--yes"),
    ):  # fmt: skip
        shown = console.run(*arguments, timeout=LIMIT_S)
        assert shown.code == 0, shown
        outputs += [shown.out, shown.err]
    assert not [line for text in outputs for line in text.splitlines() if S in line]
    printed.unlink()
    with zipfile.ZipFile(made / "shared.zip") as shared:
        shared.extractall(made / "shared")
    _assert_no_secret(made)
    for raw in (tmp_path / "home").rglob("steps/**/out.log"):
        raw.unlink()  # what the command printed, byte for byte; documented so
    _assert_no_secret(tmp_path / "home")


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


WORDS = (
    "password", "passw", "pass", "pwd", "secret", "token", "api_key", "key", "authorization: ", "cookie: ", "://a:",
    "https://", "parameters: $1 = '", "Key (password)=(", "curl -u ", "sshpass -p", "echo a | ", "<password>",
    "a:5432:b:user:", "select secret ", "set my.token to ", "values (", "-----BEGIN PRIVATE KEY-----", "eyJaaaaaaaa.",
    "md5", "$6$", "--password ",
)  # fmt: skip
FILLERS = (
    "", "/*", "*/", "/**/", "--", "'", "''", '"', "\\'", '\\"', "$$", "$a$", "\n", " ", "=", ": ", "(", ")", "@", ",",
    ";", "[", "{", "<", "|", "-", "_", ".", "/", "\\", "::", "`", "a", " = '", "=>", "\\\n", "b'c",
)  # fmt: skip
SHORT, LONG = 4_000, 40_000
"""Bytes."""
SUSPICIOUS_S = 0.012
"""CPU time of a short text; most take a tenth of it. Only such a piece is tried in a long text."""
CPU_LIMIT_S = 4
"""A long text takes at most 0.2 s. One whose time grows with the square of its length took 8 s, before."""


@contextmanager
def _limited_cpu_time(text: str) -> Iterator[None]:
    def too_slow(*_: object) -> None:
        raise AssertionError(f"masking takes too long: {text[:60]!r} …")

    before = signal.signal(signal.SIGVTALRM, too_slow)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_the_time_of_masking_grows_no_faster_than_the_text() -> None:
    """Whoever may open a session writes such a text: every word that a search begins with, and the beginning of every
    form of a secret, repeated with every sign between."""
    beginnings = sorted({form.text[: form.text.index(S)][-20:] for form in secret_forms()} - {""})
    for number, piece in enumerate([*(word + filler for word in WORDS for filler in FILLERS), *beginnings]):
        mask = redact if number % 2 else redact_statement
        began = time.process_time()
        mask(piece * (SHORT // len(piece)))
        if time.process_time() - began > SUSPICIOUS_S:
            text = piece * (LONG // len(piece))
            with _limited_cpu_time(text):
                mask(text)


def test_the_masking_of_a_tick_is_bounded_and_the_rest_follows() -> None:
    texts = QueryTexts()
    texts.begin_tick()
    hostile = [b"password/*" * 400 + str(number).encode() for number in range(60)]
    shown = [texts.text(raw, cut=False, codec="utf-8", kind=None) for raw in hostile]
    left = [raw for raw, text in zip(hostile, shown, strict=True) if text is None]
    assert len(hostile) - len(left) == MASKED_BYTES // len(hostile[0]) + 1
    while left:
        texts.begin_tick()
        late = [raw for raw in left if texts.text(raw, cut=False, codec="utf-8", kind=None) is None]
        assert len(late) < len(left)
        left = late


@pytest.mark.parametrize("text", [f"password=it's{S}", f"password=a''{S}", f'password=a"{S}', f"password=********-{S}"])
def test_a_quote_within_a_value_does_not_end_it(text: str) -> None:
    assert S not in redact(text)


def test_text_in_nested_dollar_quotes_is_masked_too() -> None:
    text = f"do $a$ begin execute $b$ do $c$ begin execute $d$ select login('{S}') $d$; end $c$ $b$; end $a$; -- secret"
    assert S not in redact(text)
