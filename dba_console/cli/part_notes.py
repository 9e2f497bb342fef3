"""A note of a part as commands print it: the sentence, and apart from it what would help."""

from __future__ import annotations

_HINT_MARK = "\nhint: "


def split_note(note: str | None, otherwise: str) -> tuple[str, str | None]:
    """Sentence and hint of a note; `otherwise` where there is no note.

    >>> split_note("it is full\\nhint: wait", "?"), split_note(None, "no answer")
    (('it is full', 'wait'), ('no answer', None))
    """
    sentence, _, hint = (note or otherwise).partition(_HINT_MARK)
    return " ".join(sentence.split()), hint or None
