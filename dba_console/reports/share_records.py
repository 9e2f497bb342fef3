"""For shared copies: declares which fields of samples, events and run records hold names, and replaces them.

A string that is not declared here is text, so a new field cannot pass unseen: names that were learnt elsewhere are
replaced in it too.
"""

from __future__ import annotations

import shlex
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw, Struct

from dba_console.core.decoding import packed_decoder
from dba_console.core.errors import Damaged
from dba_console.recording.journal import LogLine
from dba_console.recording.plan import JournalRecord
from dba_console.reports.share_names import is_ordinary
from dba_console.reports.share_text import TextRewriter, holds_secret
from dba_console.watch.part import NameKind
from dba_console.watch.samples import console, postgres
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import PARTS, Part, Sample

Walk = Callable[[Any], Any]
"""Returns a decoded value with its strings rewritten."""
_SEEN = 50_000
_NIL = b"\xc0"
_encode = msgspec.msgpack.Encoder().encode
_split = packed_decoder(list[Raw]).decode
"""Returns the encoded members of an array."""

_FIELDS = {
    "user": "user", "usename": "user", "role": "user", "rolname": "user", "owner": "user", "who": "user",
    "driver": "user", "operator": "user", "author": "user", "current_user": "user", "login": "user",
    "database": "database", "datname": "database", "dbname": "database", "application": "application",
    "application_name": "application",
    "client": "host", "client_addr": "host", "client_hostname": "host", "host": "host", "hostname": "host",
    "relation": "relation", "relname": "relation", "table": "relation", "index": "relation", "sequence": "relation",
    "schema": "schema", "nspname": "schema", "slot": "slot", "slot_name": "slot", "tablespace": "tablespace",
    "spcname": "tablespace", "query": "query", "statement": "query", "node": "node", "cluster": "node",
    "standby": "application", "subscription": "subscription", "mount": "path", "directory": "path", "path": "path",
    "data_directory": "path", "target_key": "key", "note": "text", "series": "series", "reason": "note",
    "system_identifier": "identifier", "boot_id": "identifier",
}  # fmt: skip
"""Fields of readings, members of details and evidence, and fields of records, by their names; others are text."""
_SETTINGS = {
    "cluster_name": "node", "application_name": "application", "primary_slot_name": "slot", "data_directory": "path",
    "config_file": "path", "hba_file": "path", "log_directory": "path", "listen_addresses": "host",
    "unix_socket_directories": "host", "temp_tablespaces": "tablespace", "synchronous_standby_names": "standbys",
    "default_tablespace": "tablespace", "recovery_target_name": "node", "synchronized_standby_slots": "standbys",
    "search_path": "relation", "role": "user", "session_authorization": "user", "unix_socket_group": "user",
    "pgaudit.role": "user", "cron.database_name": "database",
}  # fmt: skip
"""Values of settings that are not text."""
WRITTEN_BY_PEOPLE = frozenset(
    ("note", "mark", "finding.acknowledged", "finding.silenced", "deviation", "block.answered")
)
"""Kinds of events and records whose text has words of a person."""


def _declared_kind(hint: Any, otherwise: str) -> str:
    """Return what an annotated text names."""
    return next((each.kind for each in getattr(hint, "__metadata__", ()) if isinstance(each, NameKind)), otherwise)


class RecordRewriter:
    """Rewrites records of a session."""

    def __init__(self, rewriter: TextRewriter) -> None:
        self.text = rewriter
        self._parts: dict[str, dict[str, tuple[int, Walk, Walk | None]]] = {}
        self._seen: dict[tuple[Walk, bytes], Raw] = {}
        self._pending_revert = self._walk_of_struct(console.PendingRevertNow)

    def end_learning(self) -> None:
        """Replace from now on what was learnt."""
        self._seen.clear()
        self.text.end_learning()

    def index_late_names(self) -> bool:
        """Replace also names that were found only when text was rewritten; return False if there are none."""
        kinds = ((name, self.text.names.stored.names[name].kind) for name in self.text.names.late)
        found = any(kind != "column" and not is_ordinary(kind, name) for name, kind in kinds)
        if found:
            self._seen.clear()
            self.text.index_names()
        return found

    def sample(self, sample: Sample) -> Sample:
        """Return the sample. Raises Damaged if a reading cannot be decoded."""
        # Findings quote the queries of sessions, which are known once the sessions were read.
        parts = {id(part): self._part(part) for part in sorted(sample.parts, key=lambda one: one.name != "pg.activity")}
        return msgspec.structs.replace(sample, parts=[parts[id(part)] for part in sample.parts])

    def _part(self, part: Part) -> Part:
        note = None if part.note is None else self.text.rewrite("text", part.note)
        if part.reading is None:
            return msgspec.structs.replace(part, note=note)
        try:
            reading = self._reading(part.name, part.reading)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
            raise Damaged(f"cannot decode {part.name}: {error}") from error
        return Part(part.name, part.status, note, part.at_us, part.took_us, reading)

    def _reading(self, name: str, reading: Raw) -> Raw:
        """Return the encoded reading. Fields without a string are not decoded, and rows that were seen before, as those
        of idle sessions, only once."""
        if name not in self._parts:
            self._parts[name] = self._field_walks(PARTS[name].reading) if name in PARTS else {}
        if name not in PARTS:
            return self._recoded(reading, self.generic)
        walks = self._parts[name]
        fields = _split(reading)
        newer = range(len(PARTS[name].reading.__struct_fields__), len(fields))
        for at, walk, row_walk in [*walks.values(), *((at, self.generic, None) for at in newer)]:
            if at >= len(fields) or bytes(fields[at]) == _NIL:
                continue
            if row_walk is None:
                fields[at] = self._recoded(fields[at], walk)
            else:
                rows = [self._recoded(row, row_walk) for row in _split(fields[at])]
                fields[at] = Raw(_encode(rows))
        return Raw(_encode(fields))

    def _recoded(self, raw: Raw, walk: Walk) -> Raw:
        key = (walk, bytes(raw))
        found = self._seen.get(key)
        if found is None:
            if len(self._seen) >= _SEEN:
                self._seen.clear()
            found = self._seen[key] = Raw(_encode(walk(msgspec.msgpack.decode(raw))))
        return found

    def _field_walks(self, struct: type[Struct]) -> dict[str, tuple[int, Walk, Walk | None]]:
        """Return the position of each field with strings, how it is rewritten, and how one of its rows is."""
        hints = get_type_hints(struct, include_extras=True)
        found: dict[str, tuple[int, Walk, Walk | None]] = {}
        for at, name in enumerate(struct.__struct_fields__):
            walk = self._walk_of(hints[name], _FIELDS.get(name, "text"))
            if walk is not None:
                rows = get_origin(hints[name]) in (list, tuple)
                row_walk = self._walk_of(get_args(hints[name])[0], _FIELDS.get(name, "text")) if rows else None
                found[name] = (at, walk, row_walk)
        return found

    def event(self, event: Event) -> Event:
        """Return the event; its number is given when it is written."""
        return msgspec.structs.replace(
            event,
            text=self._said(event.kind, event.text),
            tag=self.text.rewrite("text", event.tag),
            who=None if event.who is None else self.text.rewrite("user", event.who),
            details=self.details(event.details, "note" if event.kind in WRITTEN_BY_PEOPLE else "text"),
        )

    def _said(self, kind: str, text: str) -> str:
        return self.text.rewrite("note" if kind in WRITTEN_BY_PEOPLE else "text", text)

    def record(self, record: JournalRecord) -> JournalRecord:
        """Return a record of a run."""
        text = self.text.rewrite
        return msgspec.structs.replace(
            record,
            text=self._said(record.kind, record.text),
            step=text("text", record.step),
            block=text("text", record.block),
            who=None if record.who is None else text("user", record.who),
            fields=self.details(record.fields),
        )

    def line(self, line: LogLine) -> LogLine:
        """Return a line of output."""
        text = self.text.rewrite
        return line._replace(
            tag=text("text", line.tag), text=text("text", line.text), run=text("text", line.run),
            block=text("text", line.block),
        )  # fmt: skip

    def details(self, members: dict[str, Any], note: str = "text") -> dict[str, Any]:
        """Return the members of a JSON object; what they are is known by their names. `note`: what `note` is."""
        return {self.text.rewrite("text", name): self._member(name, value, note) for name, value in members.items()}

    def _member(self, name: str, value: Any, note: str) -> Any:
        kind = note if name == "note" else _FIELDS.get(name, "query" if name.endswith("_query") else "text")
        if isinstance(value, str) and holds_secret(name):
            return self.text.rewrite("command", value)
        return self.generic(value, kind)

    def generic(self, value: Any, kind: str = "text") -> Any:
        """Return JSON with its strings rewritten."""
        if isinstance(value, str):
            return self.text.rewrite(kind, value)
        if isinstance(value, list | tuple):
            return self._arguments(value) or [self.generic(one, kind) for one in value]
        if isinstance(value, dict):
            return self.details(value)
        return value

    def _arguments(self, values: Sequence[Any]) -> list[str] | None:
        """Return the arguments of a command, which name things by the option before them; None for another list."""
        if not any(isinstance(one, str) and one.startswith("-") for one in values):
            return None
        words = [str(one) for one in values]
        made = shlex.split(self.text.rewrite("text", shlex.join(words)))
        return made if len(made) == len(words) else None

    def _walk_of(self, hint: Any, kind: str) -> Walk | None:
        """Return how values of a type are rewritten, None if they contain no string."""
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            walks = [self._walk_of(one, kind) for one in arguments if one is not type(None)]
            found = next((walk for walk in walks if walk is not None), None)
            return None if found is None else lambda value: found(value) if value is not None else None
        if origin is Annotated:
            return self._walk_of(arguments[0], _declared_kind(hint, kind))
        if hint is postgres.Setting:
            return self._walk_setting
        if hint is console.PendingRevertNow:
            return self._walk_pending_revert
        if isinstance(hint, type) and issubclass(hint, Struct):
            return self._walk_of_struct(hint)
        if origin in (list, tuple):
            one = self._walk_of(arguments[0], kind)
            return None if one is None else lambda value: [one(item) for item in value]
        if origin is dict:
            return self._walk_of_dict(
                arguments[1], _declared_kind(arguments[1], kind), _declared_kind(arguments[0], "text")
            )
        if hint is str:
            return lambda value: self.text.rewrite(kind, value) if isinstance(value, str) else value
        return (lambda value: self.generic(value)) if hint is Any else None

    def _walk_of_dict(self, hint: Any, kind: str, keys: str) -> Walk:
        if kind == "text" and keys == "text":
            return self.details
        text = self.text.rewrite
        return lambda value: {text(keys, name): self.generic(one, kind) for name, one in value.items()}

    def _walk_of_struct(self, struct: type[Struct]) -> Walk | None:
        walks = [(at, walk) for at, walk, _ in self._field_walks(struct).values()]
        count = len(struct.__struct_fields__)
        if not walks:
            return None
        if not struct.__struct_config__.array_like:
            by_name = {name: walk for name, (_, walk, _) in self._field_walks(struct).items()}
            return lambda row: {name: by_name.get(name, self.generic)(value) for name, value in row.items()}

        def rewrite(row: list[Any]) -> list[Any]:
            for at, walk in walks:
                if at < len(row) and row[at] is not None:
                    row[at] = walk(row[at])
            if len(row) > count:  # fields of a newer version
                row[count:] = self.generic(row[count:])
            return row

        return rewrite

    def _walk_setting(self, row: list[Any]) -> list[Any]:
        row[1] = self._setting(row[0], row[1])
        return row

    def _walk_pending_revert(self, row: list[Any]) -> list[Any]:
        old, new = (None if value is None else self._setting(row[1], value) for value in row[3:5])
        if self._pending_revert is not None:
            row = self._pending_revert(row)
        row[3:5] = old, new
        return row

    def _setting(self, name: str, value: str) -> str:
        """Return the value of a setting of the server."""
        if holds_secret(name):
            return self.text.rewrite("command", value)
        return self.text.rewrite(_SETTINGS.get(name, "text"), value)
