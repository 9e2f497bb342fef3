"""Messages of a program are read, and a message that is not understood still counts as one."""

from __future__ import annotations

from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.following.dump_progress import MessageFeed
from dba_console.jobs.following.stderr_reader import NewMessages
from dba_console.keeper.output_log_reader import StampedLine

GERMAN = (
    "pg_restore: verbinde mit der Datenbank zur Wiederherstellung",
    "pg_restore: erstelle INDEX »public.i«",
    "pg_restore: Fehler: konnte Anfrage nicht ausführen: FEHLER:  Relation »i« existiert bereits",
)


def received(*lines: str) -> MessageFeed:
    hearing, ledger = MessageFeed(), ObjectProgress(None, "pg_restore", 2)
    words = NewMessages(tuple(StampedLine(at, "e", line) for at, line in enumerate(lines)), source="stderr in /x")
    hearing.feed(words, ledger, wait=False)
    return hearing


def test_messages_in_another_language_are_not_understood() -> None:
    assert received(*GERMAN).is_not_english
    assert not received(*GERMAN, 'pg_restore: creating INDEX "public.i"').is_not_english, "that much is understood"


def test_silence_and_messages_of_others_are_not_another_language() -> None:
    assert not received().is_not_english
    assert not received("Sicherung beginnt", "").is_not_english
    assert not received("pg_restore: error: a worker process died unexpectedly").is_not_english
