"""Process titles of PostgreSQL read as what they say: who is connected, from where, and what it does.

A title is `postgres: CLUSTER: USER DATABASE CLIENT STATE` for a client, `postgres: CLUSTER: KIND ...` for the server's
own processes (src/backend/utils/misc/ps_status.c, backend_startup.c, postmaster's children of 13 to 18). Names may hold
blanks and colons: where a title can be read in two ways the field is None rather than guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

CLIENT_BACKEND = "client backend"
STARTING = "starting"
"""Forked, but its title is still that of the postmaster: a connection that has not said yet who it is."""

_PREFIX = "postgres: "
_CLIENT = re.compile(r" (\[local\]|\S+\(\d+\))(?: (.*))?$", re.S)
"""The client's address and what follows. Of several the last counts: a name may look like one, a state never does."""

_KINDS = (
    "archiver", "autovacuum launcher", "autovacuum worker", "background writer", "checkpointer", "io worker", "logger",
    "logical replication apply worker", "logical replication launcher", "logical replication parallel apply worker",
    "logical replication tablesync worker", "logical replication worker", "parallel worker", "slotsync worker",
    "startup", "stats collector", "walreceiver", "walsummarizer", "walwriter",
)  # fmt: skip
_ALWAYS = (": checkpointer", ": background writer")
"""Processes that every server has in normal running, and whose title has nothing after their name."""


class ParsedTitle(NamedTuple):
    kind: str
    user: str | None = None
    database: str | None = None
    client: str | None = None
    state: str | None = None


def cluster_name(titles: Iterable[str]) -> str | None:
    """The cluster_name that stands in these titles of one server, None where there is none.

    Known from the checkpointer or background writer, whose title ends with their name, and believed only where every
    other title begins with it too.

    >>> cluster_name(["postgres: my: clu: checkpointer", "postgres: my: clu: app shop [local] idle"])
    'my: clu'
    """
    titled = [title for title in titles if title.startswith(_PREFIX)]
    for ending in _ALWAYS:
        for title in titled:
            if title.endswith(ending) and len(title) > len(_PREFIX) + len(ending) - 2:
                name = title[len(_PREFIX) : -len(ending)]
                if all(other.startswith(f"{_PREFIX}{name}: ") for other in titled):
                    return name
    return None


def parse_title(title: str, cluster: str | None = None) -> ParsedTitle:
    """What one title says.

    >>> parse_title("postgres: app shop 10.0.0.7(52114) idle in transaction")
    ParsedTitle(kind='client backend', user='app', database='shop', client='10.0.0.7', state='idle in transaction')
    >>> parse_title("postgres: walsender rep [local] streaming 0/3000148").kind
    'walsender'
    """
    if not title.startswith(_PREFIX):
        return ParsedTitle(STARTING)
    text = title[len(_PREFIX) :]
    if cluster is not None:
        text = text.removeprefix(f"{cluster}: ")
    split = _split_client(text)
    if split is None:
        return _parse_server_process(text)
    who, client, state = split
    if who == "walsender" or who.startswith("walsender "):
        return _parse_walsender(who, client, state)
    user, database = _user_and_database(who)
    return ParsedTitle(CLIENT_BACKEND, user, database, client, state)


def _split_client(text: str) -> tuple[str, str, str | None] | None:
    """What stands before the client's address, the address without its port, and the state behind it.

    Of the server's own processes only a walsender has an address, so a role called `archiver` is still a client.
    """
    found = None
    position = 0
    while (match := _CLIENT.search(text, position)) is not None:
        found = match
        position = match.start() + 1
    if found is None:
        return None
    client = re.sub(r"\(\d+\)$", "", found[1])
    return text[: found.start()], client, (found[2] or "").strip() or None


def _user_and_database(who: str) -> tuple[str | None, str | None]:
    """Both names where one blank parts them. With more blanks nobody can say where one ends: neither is told."""
    names = who.split(" ")
    return (names[0], names[1]) if len(names) == 2 else (None, None)


def _parse_walsender(who: str, client: str, state: str | None) -> ParsedTitle:
    """`walsender USER` streams, `walsender USER DATABASE` decodes. A role of that very name cannot be told apart."""
    names = who.split(" ")[1:]
    user = names[0] if len(names) in (1, 2) else None
    return ParsedTitle("walsender", user, names[1] if len(names) == 2 else None, client, state)


def _parse_server_process(text: str) -> ParsedTitle:
    """A process of the server itself, or of an extension: then its kind is what it calls itself."""
    stripped = text.strip()
    for kind in sorted(_KINDS, key=len, reverse=True):
        if _is_kind(stripped, kind):
            rest = stripped[len(kind) :].strip() or None
            if kind == "autovacuum worker":
                return ParsedTitle(kind, database=rest)
            return ParsedTitle(kind, state=rest)
    return ParsedTitle(stripped or STARTING)


def _is_kind(text: str, kind: str) -> bool:
    return text == kind or text.startswith(kind + " ")


def titles_are_updated(parsed: Iterable[ParsedTitle]) -> bool:
    """False where update_process_title is off: there are clients, and none of their titles has a state.

    With it on every client's title has one from its first moment (`initializing`, `authentication`).
    """
    clients = [title for title in parsed if title.kind == CLIENT_BACKEND]
    return not clients or any(title.state is not None for title in clients)
