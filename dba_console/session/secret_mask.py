"""Secrets out of a run's records: what looks like one, and the values that are known to be."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from dba_console.redact import redact


class TextMask:
    """Takes out what `redact` knows, and these values in the forms in which they may turn up.

    Secrets of one or two signs are not looked for (masking.too_short): whoever takes them in says so.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        secrets_set = tuple(secret for secret in secrets if secret)
        self._unused = None
        if secrets_set:
            from dba_console.stream_masking import Masker

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
