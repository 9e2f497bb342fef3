"""Masks known secrets in a byte stream, in all forms in which programs print them, across chunks.

`redact` finds secrets by their context; this finds known values: plain, URL-encoded, in base64 (also as a part of
longer text, as in `user:secret`), with quotes and backslashes as in an SQL literal, escaped for JSON. Not found are
secrets that the program compressed, encrypted or split.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable

MASK = b"********"
MIN_SECRET_BYTES = 3
"""Bytes; a shorter secret is part of many words, and masking those would reveal it."""
_MIN_BASE64_CHARS = 6
"""Characters; a shorter piece of base64 occurs in too much other text."""
_URL_SAFE_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")


def too_short(secret: str) -> bool:
    """Whether this secret is too short to be masked; the caller reports that."""
    return len(secret.encode("utf-8", "surrogateescape")) < MIN_SECRET_BYTES


def encoded_forms(secret: str) -> frozenset[bytes]:
    """Return all byte strings that count as the secret.

    >>> sorted(encoded_forms("it's"))[-3:]
    [b"it''s", b"it's", b"it\\\\'s"]
    """
    plain = secret.encode("utf-8", "surrogateescape")
    if len(plain) < MIN_SECRET_BYTES:
        return frozenset()
    found = {plain, *_sql_forms(plain), *_json_forms(plain), *_url_forms(plain), *_base64_forms(plain)}
    return frozenset(form for form in found if len(form) >= MIN_SECRET_BYTES)


def _sql_forms(plain: bytes) -> set[bytes]:
    doubled = plain.replace(b"'", b"''")
    return {doubled, doubled.replace(b"\\", b"\\\\"), plain.replace(b"\\", b"\\\\").replace(b"'", b"\\'")}


def _json_forms(plain: bytes) -> set[bytes]:
    out = plain.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n").replace(b"\t", b"\\t")
    out = out.replace(b"\r", b"\\r")
    return {out, out.replace(b"/", b"\\/"), _ascii_only(out)}


def _ascii_only(escaped: bytes) -> bytes:
    """Return characters beyond ASCII as \\uXXXX, in pairs beyond the first plane."""
    parts = []
    for character in escaped.decode("utf-8", "surrogateescape"):
        if ord(character) < 128:
            parts.append(character)
            continue
        units = character.encode("utf-16-be", "surrogatepass")
        parts += [f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)]
    return "".join(parts).encode()


def _url_forms(plain: bytes) -> set[bytes]:
    found = set()
    for safe in (_URL_SAFE_BYTES, _URL_SAFE_BYTES | frozenset(b"/"), _URL_SAFE_BYTES | frozenset(b"!'()*")):
        for digits in ("%%%02X", "%%%02x"):
            encoded = "".join(chr(byte) if byte in safe else digits % byte for byte in plain).encode()
            found |= {encoded, encoded.replace(b"%20", b"+")}
    return found


def _base64_forms(plain: bytes) -> set[bytes]:
    whole = binascii.b2a_base64(plain, newline=False)
    found = {whole, whole.rstrip(b"=")}
    for before in range(3):
        # The digits of a longer text that depend on this part alone.
        digits = binascii.b2a_base64(b"\0" * before + plain, newline=False)
        found.add(digits[(8 * before + 5) // 6 : 8 * (before + len(plain)) // 6])
    found |= {form.replace(b"+", b"-").replace(b"/", b"_") for form in found}
    return {form for form in found if len(form) >= _MIN_BASE64_CHARS}


class Masker:
    """Masks one stream. The output does not depend on how the stream is split into chunks."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Ignores secrets that are too short (`too_short`)."""
        self._forms = sorted(frozenset[bytes]().union(*map(encoded_forms, secrets)), key=len, reverse=True)
        self._prefixes = {form[:length] for form in self._forms for length in range(1, len(form))}
        self._longest = max(map(len, self._forms), default=1) - 1
        self._held = b""
        self._masked = 0
        """Bytes at the start of `_held` that belong to a secret whose mask was already output."""
        self.count = 0
        """Number of masks so far."""

    def finds(self, text: bytes) -> bool:
        """Whether this complete text contains a secret."""
        return any(form in text for form in self._forms)

    def feed(self, chunk: bytes) -> bytes:
        """Return the masked stream so far, except an end that may be the start of a secret."""
        text = self._held + chunk
        return self._mask_until(text, len(text) - self._held_length(text))

    def flush(self) -> bytes:
        """Return the rest of the ended stream."""
        return self._mask_until(self._held, len(self._held))

    def _held_length(self, text: bytes) -> int:
        for length in range(min(self._longest, len(text)), 0, -1):
            if text[-length:] in self._prefixes:
                return length
        return 0

    def _mask_until(self, text: bytes, until: int) -> bytes:
        """Return `text` up to `until`, masked; hold the rest. No secret that starts before `until` is incomplete."""
        spans = self._find_spans(text)
        out, at, masked = [], 0, self._masked
        for begin, end in spans:
            if begin >= until:
                break
            if begin >= masked:
                out += [text[max(at, masked) : begin], MASK]
                self.count += 1
            masked, at = max(masked, end), max(masked, end)
        out.append(text[max(at, masked) : until])
        self._held = text[until:]
        self._masked = max(0, masked - until)
        return b"".join(out)

    def _find_spans(self, text: bytes) -> list[tuple[int, int]]:
        """Return the spans of secrets, in order; they may overlap."""
        found = []
        for form in self._forms:
            at = text.find(form)
            while at >= 0:
                found.append((at, at + len(form)))
                at = text.find(form, at + 1)
        return sorted(found)
