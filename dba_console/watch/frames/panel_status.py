"""Status, note and age of a panel, from the parts it is read from."""

from __future__ import annotations

from typing import TypeVar

from dba_console.core.units import human_duration
from dba_console.watch.frames.picture import Picture
from dba_console.watch.panel import PanelFrame
from dba_console.watch.samples import postgres
from dba_console.watch.samples.sample import PARTS

P = TypeVar("P", bound=PanelFrame)

STALE_TICKS = 3
STALE_CADENCES = 2
NOT_READ = "not read yet"
NOT_ON_THIS_HOST = "the server does not run on this host: run dba-console there to see this"
DAMAGED = "the reading cannot be decoded: it is damaged, or another version wrote it"


def stale_after_s(picture: Picture, name: str) -> float:
    """Return the age at which a part is stale: three ticks or two of its intervals, whichever is longer."""
    kind = PARTS.get(name)
    cadence_s = 1.0 if kind is None else float(kind.every_s)
    return max(STALE_TICKS * max(1.0, picture.tick_us / 1e6), STALE_CADENCES * cadence_s)


def is_fresh(picture: Picture, name: str) -> bool:
    """Check whether the newest reading of the part succeeded and is recent."""
    return part_status(picture, name)[0] == "ok"


def part_status(picture: Picture, name: str) -> tuple[str, str | None]:
    """Return status and note of a part: those of its newest reading, `stale` if that is too old."""
    latest = picture.latest.get(name)
    if latest is None:
        server = picture.now("pg.server", postgres.Server)
        if name.startswith("host.") and server is not None and server.local is False:
            return "unsupported", server.local_note or NOT_ON_THIS_HOST
        return "stale", NOT_READ
    age_s = (picture.mono_us - latest.part.at_us) / 1e6
    if latest.part.status != "ok":
        return latest.part.status, latest.part.note
    if latest.value() is None:
        return "error", DAMAGED if latest.damaged else NOT_READ
    if age_s > stale_after_s(picture, name):
        return "stale", f"last read {human_duration(age_s)} ago"
    return "ok", latest.part.note


def fill_status(panel: P, picture: Picture, name: str, *others: str) -> P:
    """Set the panel's status and age from its main part, and add the notes of every part that is not ok.

    Further parts never change the status: one failing part hides no other.
    """
    panel.status, note = part_status(picture, name)
    panel.age_s = picture.age_s(name)
    notes = [note] if note else []
    for other in others:
        status, its_note = part_status(picture, other)
        if status == "ok" or (status == "stale" and other not in picture.latest):
            continue
        text = f"{PARTS[other].meaning}: {its_note or status}"
        if its_note not in notes:
            notes.append(text)
    panel.note = "; ".join(notes) or None
    return panel


def add_note(panel: PanelFrame, note: str | None) -> None:
    """Append a sentence to the panel's note."""
    if note:
        panel.note = f"{panel.note}; {note}" if panel.note else note
