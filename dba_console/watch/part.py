"""What a part of a sample is: one declaration of what is read, how often, and what its fields are.

A part of the server is a struct whose fields have the names of the columns, and queries in SQL files beside the module
that declares it. The kind of a name is an annotation of its field, so that a shared copy can replace it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple


@dataclass(frozen=True, slots=True)
class PartKind:
    """A part: `reading` is the struct it decodes to, `every_s` its interval in seconds."""

    name: str
    reading: type[Any]
    every_s: int
    meaning: str
    """What it reads, as in `pg_stat_io`: for notes and the documentation."""
    first: bool = True
    """Read at once on a new connection; else it changes slowly, and is read a tick later."""


@dataclass(frozen=True, slots=True)
class Query:
    """A statement of a part: `NAME.sql`, and `NAME_160000.sql` for servers from that version number on."""

    name: str
    rows: str = ""
    """The list of the reading that its rows are; empty: its only row has fields of the reading itself. Of two such
    queries with a column of the same name the later one counts, unless it is NULL."""
    missing: str = ""
    """What is unknown if the query is refused: then its fields have their defaults. Empty for the first query of a
    part: the whole part is unknown if that is refused."""
    in_batches: bool = False
    """Too expensive for one tick: the first query lists objects (oid, name, whether it may be read), and this one reads
    a value of each, a few at a time. The rows of the reading are name and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPart(PartKind):
    """A part read from the server: its fields are the columns of its queries, by name."""

    queries: tuple[Query, ...]
    needs_all_stats: bool = False
    """Of other roles' sessions some columns are NULL without pg_monitor: a note says so."""
    finish: Callable[[], Callable[[Any], Any]] | None = None
    """Called for each connection; returns what completes each reading, for instance from the one before."""

    @property
    def sent_at_once(self) -> list[Query]:
        """The first one must succeed for the part to exist; each other may fail separately, and a note says so."""
        return [query for query in self.queries if not query.in_batches]


class NameKind(NamedTuple):
    """Annotation of a text that is a name: what it names."""

    kind: str


ApplicationName = Annotated[str, NameKind("application")]
DatabaseName = Annotated[str, NameKind("database")]
HostName = Annotated[str, NameKind("host")]
RelationName = Annotated[str, NameKind("relation")]
SlotName = Annotated[str, NameKind("slot")]
SubscriptionName = Annotated[str, NameKind("subscription")]
TablespaceName = Annotated[str, NameKind("tablespace")]
UserName = Annotated[str, NameKind("user")]
