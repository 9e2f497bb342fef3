"""Search a finished shared copy for every original name, in any case, also URL-encoded and in base64.

It reads the finished file as a recipient does, and knows nothing of how it was made.
"""

from __future__ import annotations

import html
import json
import re
import sqlite3
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import msgspec
from msgspec import Raw

from dba_console.core.decoding import packed_decoder
from dba_console.core.errors import Damaged
from dba_console.core.stream_masking import encoded_forms
from dba_console.recording.layout import DATABASE, SAMPLES
from dba_console.recording.points import unpack_points
from dba_console.recording.recording import LONGEST_VALUE, Recording
from dba_console.recording.sample_block import SampleBlock, SampleRecord
from dba_console.recording.store import TABLES
from dba_console.reports.share_index import NameIndex
from dba_console.reports.share_names import ordinary_words

_ENCODED = 8
"""Shortest piece of an encoded original that is searched for: shorter ones occur by chance."""
_HEX_DIGITS = 12
"""Shortest original in hexadecimal that is searched for: a shorter one occurs in digests by chance."""
_RUN = re.compile(rf"[A-Za-z0-9+/_=%-]{{{_ENCODED},}}")
_CHUNK = 1 << 20
_BREAK = re.compile(rb"[\0-/:-@\[-`{-\x7f]")
"""A byte that belongs to no word."""
_KNOWN_TEXTS = 200_000
_ARRAYS = frozenset(bytes([first]) for first in (*range(0x90, 0xA0), 0xDC, 0xDD))
"""First bytes of an array in MessagePack."""
_split = packed_decoder(list[Raw]).decode
"""Returns the encoded members of an array."""


class OriginalSearch:
    """Searches text for originals."""

    def __init__(self, originals: Iterable[str], inside: Container[str] = ()) -> None:
        """`inside`: those that are searched for within longer words too."""
        self._index = NameIndex(ordinary_words())
        self._encoded: dict[str, list[tuple[str, str]]] = {}
        for original in originals:
            self._add(original, original in inside)

    def _add(self, original: str, inside: bool) -> None:
        lowered = original.lower()
        spelled = {quote(lowered, safe=""), quote(lowered), quote_plus(lowered), json.dumps(lowered)[1:-1]}
        spelled |= {unicodedata.normalize(form, lowered) for form in ("NFC", "NFD")}
        for form in {original, lowered, original.upper(), html.escape(lowered), *spelled}:
            self._index.add(form, original, inside=inside)
        for case in {original, original.upper(), lowered}:
            for encoded in encoded_forms(case):
                form = encoded.decode("utf-8", "replace")
                # The others contain the original, and are found as words.
                if len(form) >= _ENCODED and lowered not in form.lower() and lowered not in unquote(form).lower():
                    self._encoded.setdefault(form[:_ENCODED], []).append((form, original))
                    if form == form.lower():
                        self._index.add(form, original)
            digits = case.encode().hex()
            if len(digits) >= _HEX_DIGITS:
                for form in (digits, digits.upper()):
                    self._encoded.setdefault(form[:_ENCODED], []).append((form, original))

    def find(self, text: str) -> str | None:
        """Return an original that is in the text, None if none is."""
        for _, _, original in self._index.find(text):
            return original
        for run in _RUN.finditer(text):
            if "%" not in run[0] and (run[0].isalpha() and run[0].islower()):
                continue  # a plain word; what is encoded without a capital was searched for as a word
            for at in range(run.start(), run.end() - _ENCODED + 1):
                for form, original in self._encoded.get(text[at : at + _ENCODED], ()):
                    if text.startswith(form, at):
                        return original
        return None


def search(
    directory: Path, originals: Iterable[str], inside: Container[str], progress: Callable[[float], None]
) -> list[str]:
    """Return what was found in the extracted session, as `"NAME" in PLACE`; at most ten."""
    engine = OriginalSearch(originals, inside)
    known: set[str] = set()
    found: list[str] = []
    for place, text in _texts(directory, progress):
        if text in known:
            continue
        if len(known) < _KNOWN_TEXTS:
            known.add(text)
        original = engine.find(text)
        if original is not None:
            found.append(f'"{original}" in {place}')
            if len(found) == 10:
                break
    return found


def _texts(directory: Path, progress: Callable[[float], None]) -> Iterator[tuple[str, str]]:
    """Yield every text of the session with its place."""
    yield "the name of the session", directory.name
    yield from _stored_texts(directory)
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        yield f"the name {name}", name
        if path.is_file() and path.name not in (SAMPLES, DATABASE):
            with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
                yield from ((name, line) for line in iter(lambda: file.readline(_CHUNK), ""))
    yield from _sample_texts(directory, progress)


def _stored_texts(directory: Path) -> Iterator[tuple[str, str]]:
    connection = sqlite3.connect(f"file:{quote(str(directory / DATABASE))}?mode=ro", uri=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
    try:
        for table in sorted(TABLES):
            for row in connection.execute(f"SELECT * FROM {table}"):
                yield from ((f"the table {table}", value) for value in row if isinstance(value, str))
    finally:
        connection.close()
    # Also what no row has any more: deleted rows, the schema.
    raw = (directory / DATABASE).read_bytes()
    at = 0
    while at < len(raw):
        end = _BREAK.search(raw, at + _CHUNK)  # never within a word
        until = len(raw) if end is None else end.end()
        yield f"the bytes of {DATABASE}", raw[at:until].decode("utf-8", "replace")
        at = until


def _sample_texts(directory: Path, progress: Callable[[float], None]) -> Iterator[tuple[str, str]]:
    recording = Recording.open(directory)
    seen: set[bytes] = set()
    try:
        entries = recording.stored.blocks()
        for number, entry in enumerate(entries):
            progress(number / len(entries))
            yield from _block_texts(SampleBlock(recording.stored.block(entry.first_seq)), seen)
            points = recording.stored.points(entry.first_seq)
            for _, point in unpack_points(points) if points else ():
                yield from (("a name of chart values", name) for name in point)
        for block in tail_blocks(recording.stored.tail()):
            yield from _block_texts(block, seen)
    finally:
        recording.close()


def tail_blocks(rows: list[bytes]) -> list[SampleBlock]:
    """Return the blocks of records that are in no index yet; records without their first one are left out."""
    blocks: list[SampleBlock] = []
    for row in rows:
        record = SampleRecord.read(row)
        try:
            if blocks and blocks[-1].base_seq == record.base_seq:
                blocks[-1].append(record)
            else:
                blocks.append(SampleBlock(row))
        except Damaged:
            continue
    return blocks


def _block_texts(block: SampleBlock, seen: set[bytes]) -> Iterator[tuple[str, str]]:
    for sample in block.samples():
        for part in sample.parts:
            if part.note:
                yield f"a note of {part.name}", part.note
            if part.reading is not None:
                yield from ((part.name, text) for text in _new_texts(part.reading, seen))


def _new_texts(encoded: Raw, seen: set[bytes]) -> Iterator[str]:
    """Yield the strings of a reading, without rows that were yielded before, as those of idle sessions."""
    for field in _split(encoded):
        for row in _split(field) if bytes(field)[:1] in _ARRAYS else [field]:
            key = bytes(row)
            if key not in seen:
                if len(seen) < _KNOWN_TEXTS:
                    seen.add(key)
                yield from _strings(msgspec.msgpack.decode(row))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            if isinstance(one, str):
                yield one
            elif isinstance(one, list | dict):
                yield from _strings(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if isinstance(name, str):
                yield name
            yield from _strings(one)
