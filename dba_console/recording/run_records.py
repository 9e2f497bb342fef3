"""The lines of a run's journal: one record each, numbered and chained by hash.

    hash(n) = sha256(hash(n-1) || the line without its hash), hash(0) = sha256 of the run's id

A line is written and checked as the bytes it is, so that no other way of writing JSON can make it look changed.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from dba_console.core.decoding import convert, from_json
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.recording.plan import JournalRecord
from dba_console.watch.samples.event import Event

BEGAN = "journal.began"
"""The first record: what the run is, and the digests of the document and the plan it began with."""
REOPENED = "journal.reopened"
"""Another agent goes on with it; `torn` in its fields: the bytes of a line cut short that stands before it."""
FALLBACK = "journal.fallback"
RETURNED_TO_DISK = "journal.home"
STARTED = "run.started"
ENDED = "run.ended"

_HASH = b',"hash":"'
_encode = msgspec.json.Encoder().encode
"""Keeps the order of names, for a row's is that of its columns; the chain is over the bytes as they are written."""
_DETAILS = 4096
"""Bytes of a record's fields that go into the session's event as well; what is more stays in the journal."""
_RESERVED = ("run", "seq", "hash", "step", "block", "execution", "round", "state")


class RunAbout(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run is: written once, with its first record."""

    run: str
    runbook: str
    title: str = ""
    mode: str = "run"
    target: str = ""
    """Name people read."""
    target_key: str = ""
    conninfo: str = ""
    """Connection string without secrets (target.without_secrets): where the run is resumed."""
    host: str = ""
    boot_id: str = ""
    """The kernel's, so that monotonic times of two boots are never compared."""
    program_version: str = ""
    who: str = ""
    source: str = ""
    runbook_sha256: str = ""
    """Of runbook.md, as the run began with it."""
    plan_sha256: str = ""
    """Of plan.json."""


_NAMES = frozenset({"kind", "step", "block", "state"})
"""Of a record: the program's words and the document's."""
_KEPT = (frozenset(RunAbout.__struct_fields__) - {"title", "who", "source"}) | frozenset(
    (
        "server",
        "identity",
        "mark",
        "inputs",
        "value",
        "question",
        "what",
        "goto",
        "to",
        "item",
        "name",
        "steps",
        "sha256",
        "undo",
    )
)
"""Of its fields."""


class JournalLine(NamedTuple):
    """A record with its place in the chain."""

    seq: int
    record: JournalRecord
    hash: str
    raw: bytes
    """Without the line end."""


class ChainError(Exception):
    """A line that is not the next one of the chain; the text says what is wrong."""


def first_hash(run: str) -> str:
    """What the first record is chained to."""
    return hashlib.sha256(run.encode()).hexdigest()


def masked(record: JournalRecord, mask: Callable[[str], str]) -> JournalRecord:
    """The record as it may be kept: every text in it masked, its fields of plain JSON.

    By what it is made of a run is gone on with: the document's own names, who the server is, what was given for inputs
    that are no secret, what an act left for its undo. A password that is an everyday word would make others of them,
    so known secrets are not looked for there; what looks like one is masked all the same.
    """
    plain = msgspec.to_builtins(record, enc_hook=str)
    record_fields = plain.pop("fields", {})
    fields = masked_value({name: value for name, value in record_fields.items() if name not in _KEPT}, mask)
    fields |= {name: masked_value(value, redact) for name, value in record_fields.items() if name in _KEPT}
    texts = {name: value if name in _NAMES else masked_value(value, mask) for name, value in plain.items()}
    return convert({**texts, "fields": fields}, JournalRecord)


def masked_value(value: Any, mask: Callable[[str], str], unmasked: frozenset[str] = frozenset()) -> Any:
    """Plain JSON with every text in it masked, but for what stands under the names that are kept."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {
            mask(str(key)): one if key in unmasked else masked_value(one, mask, unmasked) for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [masked_value(one, mask, unmasked) for one in value]
    return value


def chain(record: JournalRecord, seq: int, head: str) -> JournalLine:
    """The record as line `seq` after the hash `head`."""
    bare = _encode({"seq": seq, **msgspec.to_builtins(record, enc_hook=str)})
    digest = _digest(head, bare)
    return JournalLine(seq, record, digest, bare[:-1] + _HASH + digest.encode() + b'"}')


def check(raw: bytes, seq: int, head: str) -> JournalLine:
    """The line, if it is number `seq` after `head`. Raises Misfit."""
    bare, sign, rest = raw.rpartition(_HASH)
    try:
        record = from_json(raw, JournalRecord)
        found = int(msgspec.json.decode(raw).get("seq", -1))
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        raise ChainError(f"record {seq}: it cannot be read") from None
    if found > seq:
        raise ChainError(f"record {seq}: missing")
    digest = _digest(head, bare + b"}")
    if not sign or rest != digest.encode() + b'"}':
        raise ChainError(
            f"record {seq}: it was changed or put in, or the one before it was removed ({clean(record.kind)})"
        )
    if found != seq:
        raise ChainError(f"record {seq}: it calls itself {found}")
    return JournalLine(seq, record, digest, raw)


def _digest(head: str, bare: bytes) -> str:
    return hashlib.sha256(bytes.fromhex(head) + bare).hexdigest()


def same(one: JournalRecord, other: JournalRecord) -> bool:
    """Whether they say the same, whenever they were written."""
    timeless = [msgspec.structs.replace(record, wall_us=0, mono_us=0) for record in (one, other)]
    return timeless[0] == timeless[1]


def event_of(line: JournalLine, run: str, tag: str) -> Event:
    """The record as the session tells it: with its number and hash, which bind the journal to the session's chain."""
    record = line.record
    named = {
        "step": record.step, "block": record.block, "execution": record.execution, "round": record.round,
        "state": record.state,
    }  # fmt: skip
    details: dict[str, Any] = {"run": run, "seq": line.seq, "hash": line.hash}
    details |= {name: value for name, value in named.items() if value}
    if len(_encode(record.fields)) <= _DETAILS:
        details |= {name: value for name, value in record.fields.items() if name not in _RESERVED}
    return Event(
        wall_us=record.wall_us, mono_us=record.mono_us, kind=record.kind, text=record.text, tag=tag,
        severity=_severity(record), who=record.who, details=details,
    )  # fmt: skip


def _severity(record: JournalRecord) -> str:
    """A run that failed, a step of unknown end and a journal in memory are worth a second look afterwards."""
    if record.state in ("failed", "unknown", "refused") or record.kind in (FALLBACK, "run.interrupted"):
        return "warning"
    return "info"


# Secrets out of a run's records: what looks like one, and the values that are known to be.


class TextMask:
    """Takes out what `redact` knows, and these values in the forms in which they may turn up.

    Secrets of one or two signs are not looked for (masking.too_short): whoever takes them in says so.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        secrets_set = tuple(secret for secret in secrets if secret)
        self._unused = None
        if secrets_set:
            from dba_console.core.stream_masking import Masker

            self._unused = Masker(secrets_set)  # its forms are made once

    def __call__(self, text: str) -> str:
        if self._unused is None:
            return redact(text)
        data = text.encode("utf-8", "surrogateescape")
        if self._unused.finds(data):
            masker = copy.copy(self._unused)
            data = masker.feed(data) + masker.flush()
        return redact(data.decode("utf-8", "replace"))

    def finds(self, data: bytes) -> bool:
        """Whether one of the values is in it."""
        return self._unused is not None and self._unused.finds(data)
