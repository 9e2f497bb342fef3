"""What a program says is taken in, and what nobody here understands is not taken for silence."""

from __future__ import annotations

from dba_console.agent.jobs.hearing import Hearing
from dba_console.archives.ledger import Ledger
from dba_console.probes.jobs.log import Said, Words

GERMAN = (
    "pg_restore: verbinde mit der Datenbank zur Wiederherstellung",
    "pg_restore: erstelle INDEX »public.i«",
    "pg_restore: Fehler: konnte Anfrage nicht ausführen: FEHLER:  Relation »i« existiert bereits",
)


def heard(*lines: str) -> Hearing:
    hearing, ledger = Hearing(), Ledger(None, "pg_restore", 2)
    words = Words(tuple(Said(at, line, "e", False) for at, line in enumerate(lines)), source="stderr in /x")
    hearing.hear(words, ledger, wait=False)
    return hearing


def test_a_program_that_speaks_another_language_is_not_understood() -> None:
    assert heard(*GERMAN).foreign
    assert not heard(*GERMAN, 'pg_restore: creating INDEX "public.i"').foreign, "that much is understood"


def test_silence_and_words_of_others_are_no_other_language() -> None:
    assert not heard().foreign
    assert not heard("Sicherung beginnt", "").foreign
    assert not heard("pg_restore: error: a worker process died unexpectedly").foreign
