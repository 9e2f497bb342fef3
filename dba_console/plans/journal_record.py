"""What a run remembers: the records its journal is made of, from which its state can be told again."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class JournalRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a run's journal, before its chain is added. Kinds:

    run.planned run.started run.paused run.resumed run.interrupted run.ended · step.started step.ended ·
    block.started block.seen block.asked block.answered block.intent block.result block.settled block.skipped ·
    wait.began wait.held · repeat.round · choose.taken · rows.chosen · input.given · undo.offered undo.settings
    undo.began undo.ended · deviation (skip, jump, adhoc, retry) · person.took ·
    journal.began journal.reopened journal.fallback journal.home

    Those of `journal.` are the journal's own, and mean nothing to the walk.
    """

    kind: str
    text: str
    """One sentence for session.log."""
    step: str = ""
    block: str = ""
    execution: int = 0
    round: int = 0
    state: str = ""
    who: str | None = None
    fields: dict[str, Any] = {}
    wall_us: int = 0
    """Set by who writes it; 0 before."""
    mono_us: int = 0
