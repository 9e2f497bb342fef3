"""Secrets out of a stream of bytes: wherever they stand, in the forms in which programs print them, across chunks.

`redact` finds secrets by what stands around them; this finds secrets that are known. Their forms: as they are,
URL-encoded, in base64 (also as a part of something longer, as in `user:secret`), with quotes and backslashes as in a
literal of SQL, escaped for JSON. Not found is what was compressed, encrypted or cut up by the program that printed it.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable

MASK = b"********"
MIN_SECRET_BYTES = 3
"""Bytes; a shorter secret is in every other word, and masking those would tell it."""
_MIN_BASE64_CHARS = 6
"""Characters; a shorter piece of base64 stands in too much that is no secret."""
_URL_SAFE_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")


def too_short(secret: str) -> bool:
    """Whether this secret cannot be masked; whoever takes it in says so."""
    return len(secret.encode("utf-8", "surrogateescape")) < MIN_SECRET_BYTES


def encoded_forms(secret: str) -> frozenset[bytes]:
    """All byte strings that are taken for the secret.

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
    """Characters beyond ASCII as \\uXXXX, in pairs beyond the first plane."""
    parts = []
    for sign in escaped.decode("utf-8", "surrogateescape"):
        if ord(sign) < 128:
            parts.append(sign)
            continue
        units = sign.encode("utf-16-be", "surrogatepass")
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
        # Of the digits of a longer text, those that this part alone decides.
        digits = binascii.b2a_base64(b"\0" * before + plain, newline=False)
        found.add(digits[(8 * before + 5) // 6 : 8 * (before + len(plain)) // 6])
    found |= {form.replace(b"+", b"-").replace(b"/", b"_") for form in found}
    return {form for form in found if len(form) >= _MIN_BASE64_CHARS}


class Masker:
    """One stream. What comes out does not depend on how the stream was cut into chunks."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Secrets that are too short are passed over (`too_short`)."""
        self._forms = sorted(frozenset[bytes]().union(*map(encoded_forms, secrets)), key=len, reverse=True)
        self._prefixes = {form[:length] for form in self._forms for length in range(1, len(form))}
        self._longest = max(map(len, self._forms), default=1) - 1
        self._held = b""
        self._masked = 0
        """So many bytes at the beginning of `_held` belong to a secret whose mask is out already."""
        self.count = 0
        """Masks put in so far."""

    def finds(self, text: bytes) -> bool:
        """Whether a secret is in this text, which is all there is of it."""
        return any(form in text for form in self._forms)

    def feed(self, chunk: bytes) -> bytes:
        """The stream so far, but for its end where that could be the beginning of a secret."""
        text = self._held + chunk
        return self._mask_until(text, len(text) - self._held_length(text))

    def flush(self) -> bytes:
        """The stream has ended: the rest of it."""
        return self._mask_until(self._held, len(self._held))

    def _held_length(self, text: bytes) -> int:
        for length in range(min(self._longest, len(text)), 0, -1):
            if text[-length:] in self._prefixes:
                return length
        return 0

    def _mask_until(self, text: bytes, until: int) -> bytes:
        """`text` up to `until`, masked; the rest is held. Nothing that begins before `until` is still open."""
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
        """Where secrets stand, in order; they may overlap."""
        found = []
        for form in self._forms:
            at = text.find(form)
            while at >= 0:
                found.append((at, at + len(form)))
                at = text.find(form, at + 1)
        return sorted(found)
