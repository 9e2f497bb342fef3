"""The lines of a run's journal: one record each, numbered and chained by hash (hash_chain)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from dba_console.core.decoding import convert, from_json
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.recording.hash_chain import ChainError, ChainHead, open_line, seal_line
from dba_console.recording.plan import JournalRecord
from dba_console.watch.samples.event import Event

BEGAN = "journal.began"
"""The first record: description of the run, and digests of its document and plan."""
REOPENED = "journal.reopened"
"""Another agent continues it; `torn` in its fields: bytes of a truncated line before it."""
FALLBACK = "journal.fallback"
RETURNED_TO_DISK = "journal.home"
STARTED = "run.started"
ENDED = "run.ended"

_encode = msgspec.json.Encoder().encode
"""Keeps the order of names, because a row's is that of its columns; the hash covers the bytes as written."""
_DETAILS = 4096
"""Maximum bytes of a record's fields in the session's event; larger fields are only in the journal."""
_RESERVED = ("run", "seq", "hash", "step", "block", "execution", "round", "state")


class RunAbout(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Description of a run, written with its first record."""

    run: str
    runbook: str
    title: str = ""
    mode: str = "run"
    target: str = ""
    """Display name."""
    target_key: str = ""
    conninfo: str = ""
    """Connection string without secrets (target.without_secrets), used to resume the run."""
    host: str = ""
    boot_id: str = ""
    """Boot id of the kernel: monotonic times of two boots are not comparable."""
    program_version: str = ""
    who: str = ""
    source: str = ""
    runbook_sha256: str = ""
    """Of runbook.md at the start of the run."""
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
    """A record with its position in the hash chain."""

    seq: int
    record: JournalRecord
    hash: str
    raw: bytes
    """Without the line end."""

    @property
    def head(self) -> ChainHead:
        """Return the head of the chain after it."""
        return ChainHead(self.seq, self.hash)


def masked(record: JournalRecord, mask: Callable[[str], str]) -> JournalRecord:
    """Return the record for storage: every text masked, fields as plain JSON.

    A resumed run needs some fields unchanged: names of the document, the server identity, inputs that are not secret,
    undo data. A password that is an everyday word would change them, so known secrets are not masked there; text that
    looks like a secret is.
    """
    plain = msgspec.to_builtins(record, enc_hook=str)
    record_fields = plain.pop("fields", {})
    fields = masked_value({name: value for name, value in record_fields.items() if name not in _KEPT}, mask)
    fields |= {name: masked_value(value, redact) for name, value in record_fields.items() if name in _KEPT}
    texts = {name: value if name in _NAMES else masked_value(value, mask) for name, value in plain.items()}
    return convert({**texts, "fields": fields}, JournalRecord)


def masked_value(value: Any, mask: Callable[[str], str], unmasked: frozenset[str] = frozenset()) -> Any:
    """Return plain JSON with every text masked, except under the names that are kept."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {
            mask(str(key)): one if key in unmasked else masked_value(one, mask, unmasked) for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [masked_value(one, mask, unmasked) for one in value]
    return value


def chain(record: JournalRecord, head: ChainHead) -> JournalLine:
    """Return the record as the line after `head`."""
    bare = _encode({"seq": head.seq + 1, **msgspec.to_builtins(record, enc_hook=str)})
    raw, (seq, digest) = seal_line(bare, head)
    return JournalLine(seq, record, digest, raw)


def check(raw: bytes, head: ChainHead) -> JournalLine:
    """Return the line if it is the next one after `head`. Raises ChainError."""
    bare, digest = open_line(raw)
    try:
        record = from_json(raw, JournalRecord)
        found = int(msgspec.json.decode(raw).get("seq", -1))
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        raise ChainError(f"record {head.seq + 1}: cannot be parsed") from None
    seq, digest = head.check(bare, found, digest, "record", clean(record.kind))
    return JournalLine(seq, record, digest, raw)


def same(one: JournalRecord, other: JournalRecord) -> bool:
    """Return whether two records are equal except for their times."""
    timeless = [msgspec.structs.replace(record, wall_us=0, mono_us=0) for record in (one, other)]
    return timeless[0] == timeless[1]


def event_of(line: JournalLine, run: str, tag: str) -> Event:
    """Return the record as a session event, with its number and hash, which link the journal to the session's chain."""
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
    """Return the severity: warning for a failed run, an unknown outcome and a journal in memory."""
    if record.state in ("failed", "unknown", "refused") or record.kind in (FALLBACK, "run.interrupted"):
        return "warning"
    return "info"


# Mask secrets in a run's records: text that looks like one, and known values.


class TextMask:
    """Masks what `redact` recognises, and these values in all forms in which they may appear.

    Secrets of one or two characters are not masked (masking.too_short): the caller warns about them.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        secrets_set = tuple(secret for secret in secrets if secret)
        self._unused = None
        if secrets_set:
            from dba_console.core.stream_masking import Masker

            self._unused = Masker(secrets_set)  # its forms are computed once

    def __call__(self, text: str) -> str:
        if self._unused is None:
            return redact(text)
        data = text.encode("utf-8", "surrogateescape")
        if self._unused.finds(data):
            masker = copy.copy(self._unused)
            data = masker.feed(data) + masker.flush()
        return redact(data.decode("utf-8", "replace"))

    def finds(self, data: bytes) -> bool:
        """Return whether one of the values is in the text."""
        return self._unused is not None and self._unused.finds(data)
