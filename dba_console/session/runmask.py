"""Secrets out of a run's records: what looks like one, and the values that are known to be."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from dba_console.redact import redact


def text_mask(secrets: Sequence[str]) -> Callable[[str], str]:
    """A function that takes out what `redact` knows, and these values in the forms in which they may turn up.

    Secrets of one or two signs are not looked for (masking.too_short): whoever takes them in says so.
    """
    known = tuple(secret for secret in secrets if secret)
    if not known:
        return redact
    from dba_console.masking import Masker

    unused = Masker(known)

    def mask(text: str) -> str:
        masker = copy.copy(unused)  # its forms are made once
        data = masker.feed(text.encode("utf-8", "surrogateescape")) + masker.flush()
        return redact(data.decode("utf-8", "replace"))

    return mask
