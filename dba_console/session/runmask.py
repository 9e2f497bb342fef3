"""Secrets out of a run's records: what looks like one, and the values that are known to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dba_console.redact import redact


def text_mask(secrets: Sequence[str]) -> Callable[[str], str]:
    """A function that takes out what `redact` knows, and these values in the forms in which they may turn up."""
    known = tuple(secret for secret in secrets if secret)
    if not known:
        return redact
    from dba_console.masking import Masker

    def mask(text: str) -> str:
        masker = Masker(known)
        return redact(
            (masker.feed(text.encode("utf-8", "surrogateescape")) + masker.flush()).decode("utf-8", "replace")
        )

    return mask
