"""Why the server is not heard, as the agent tells it: never by the words of the server, which speaks any language.

The kinds are those of the probe's failures; `silent` is a server that keeps the connection and does not answer. Where
a recording does not have the kind yet, it is known by the hint the agent's sentence ends with.
"""

from __future__ import annotations

from typing import NamedTuple

from dba_console.frames.picture import Picture
from dba_console.probes.postgres.connect_errors import HINTS, KINDS
from dba_console.samples.agent_health import AgentHealth

_NOT_YET = "not connected yet"
"""The first tick of an agent: nothing has been tried."""


class Outage(NamedTuple):
    """`kind` as in probes/postgres/connect_errors.py, lost or silent; `text` without the hint, which is in `help`."""

    kind: str
    text: str
    help: str | None
    refused_by: str | None = None
    """With no_slots, whose slots are gone: server, role, database or pooler; None where it was not recorded."""

    @property
    def reason(self) -> str:
        """The text without where it was tried: libpq says `connection to server ... failed: REASON`.

        >>> Outage("refused", 'connection to server at "db2", port 5432 failed: Connection refused', None).reason
        'Connection refused'
        """
        return self.text.rpartition(" failed: ")[2]

    @property
    def refuses_console(self) -> bool:
        """The server is there and refuses the console: nobody else need be touched."""
        return self.kind in ("auth", "ssl", "unknown_host", "no_slots")


def find_outage(picture: Picture) -> Outage | None:
    """Why nothing is heard in this tick; None where the server answers, or nothing was tried yet."""
    sessions, server = picture.latest.get("pg.activity"), picture.latest.get("pg.server")
    if sessions is None or sessions.part.status not in ("timeout", "error"):
        return None
    if sessions.part.status == "timeout":
        return Outage("silent", sessions.part.note or "it does not answer", None)
    if server is None or server.part.status not in ("error", "timeout"):
        return None
    note = server.part.note or ""
    if note == _NOT_YET or server.part.at_us < sessions.part.at_us - 1_000_000:
        return None  # an answer that could not be read is no outage
    hint = next((hint for hint in KINDS if note.endswith(hint)), None)
    text = note.removeprefix("lost: ") if hint is None else note.removesuffix(hint).removesuffix(": ")
    own = picture.now("self", AgentHealth)
    if own is not None and own.outage in HINTS:
        return Outage(own.outage, text, hint, own.refused_by)
    return Outage("lost" if note.startswith("lost: ") else KINDS.get(hint or "", "other"), text, hint)
