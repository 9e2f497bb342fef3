"""The hash chain of the session's events, gaps and lines of output, and of a run's records.

    hash(n) = sha256(hash(n-1) || record n), hash(0) = sha256 of the chain's name

so that a changed, removed or inserted record is detected. A removed end is not: therefore the newest hash of each chain
is also written elsewhere. A record is hashed as bytes, so no different formatting of equal values causes a mismatch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

_HASH = b',"hash":"'
_END = b'"}'


class ChainError(Exception):
    """A record that is not the next one of its chain; the text is the problem."""


class ChainHead(NamedTuple):
    """Number of records so far, and the hash of the newest one."""

    seq: int
    hash: str
    """Hexadecimal."""

    @classmethod
    def of(cls, name: str) -> ChainHead:
        """Return the head before the first record."""
        return cls(0, hashlib.sha256(name.encode()).hexdigest())

    def after(self, record: bytes) -> ChainHead:
        """Return the head after one more record."""
        return ChainHead(self.seq + 1, hashlib.sha256(bytes.fromhex(self.hash) + record).hexdigest())

    def after_all(self, records: Iterable[bytes]) -> ChainHead:
        """Return the head after all these records."""
        head = self
        for record in records:
            head = head.after(record)
        return head

    def check(self, record: bytes, seq: int, hash_: str, what: str, kind: str) -> ChainHead:
        """Return the head after the record if it is the next one, with that number and hash. Raises ChainError.

        `what` and `kind` are for the message: `event 17: missing`.
        """
        head = self.after(record)
        if seq > head.seq:
            raise ChainError(f"{what} {head.seq}: missing")
        if hash_ != head.hash:
            raise ChainError(f"{what} {head.seq}: changed or inserted, or the {what} before it was removed ({kind})")
        if seq != head.seq:
            raise ChainError(f"{what} {head.seq}: its number is {seq}")
        return head


def seal_line(bare: bytes, head: ChainHead) -> tuple[bytes, ChainHead]:
    """Return a JSON object with its hash as last member, and the head after it."""
    head = head.after(bare)
    return bare[:-1] + _HASH + head.hash.encode() + _END, head


def open_line(line: bytes) -> tuple[bytes, str]:
    """Return the JSON object without its hash, and the hash; an empty hash if it has none."""
    bare, _, rest = line.rpartition(_HASH)
    return bare + b"}", rest.removesuffix(_END).decode("ascii", "replace") if rest.endswith(_END) else ""
