"""Known secrets are masked in all their forms, however the stream is cut; all else passes unchanged."""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dba_console.core.stream_masking import MASK, MIN_SECRET_BYTES, Masker, encoded_forms, too_short

# Without the sign of the mask: what masks make up with what stands beside them is no secret that was there.
SECRETS = st.text(
    st.characters(exclude_characters="*", exclude_categories=["Cs"]), min_size=MIN_SECRET_BYTES, max_size=20
)
PIECES = st.lists(st.binary(max_size=40), max_size=6)

without_deadline = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def masked(secrets: Sequence[str], chunks: Sequence[bytes]) -> bytes:
    masker = Masker(secrets)
    return b"".join(map(masker.feed, chunks)) + masker.flush()


def chunks_of(text: bytes, places: Sequence[int]) -> list[bytes]:
    """The text in chunks that end at those places."""
    ends = sorted({place % (len(text) + 1) for place in places} | {len(text)})
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize(
    "form",
    [
        "p'w\\ /+ü\"x",
        urllib.parse.quote("p'w\\ /+ü\"x", safe=""),
        urllib.parse.quote("p'w\\ /+ü\"x"),
        urllib.parse.quote_plus("p'w\\ /+ü\"x"),
        urllib.parse.quote("p'w\\ /+ü\"x", safe="").lower(),
        base64.b64encode("p'w\\ /+ü\"x".encode()).decode(),
        base64.urlsafe_b64encode("p'w\\ /+ü\"x".encode()).decode(),
        "p''w\\ /+ü\"x",
        "p''w\\\\ /+ü\"x",
        "p\\'w\\\\ /+ü\"x",
        json.dumps("p'w\\ /+ü\"x")[1:-1],
        json.dumps("p'w\\ /+ü\"x", ensure_ascii=False)[1:-1],
    ],
)
def test_every_secret_form_is_masked(form: str) -> None:
    assert masked(["p'w\\ /+ü\"x"], [b"before " + form.encode() + b" after"]) == b"before " + MASK + b" after"


@pytest.mark.parametrize("user", ["", "u", "us", "use", "app_user"])
def test_base64_of_text_that_contains_a_secret_does_not_reveal_it(user: str) -> None:
    secret = "a longer secret of mine"
    reported = base64.b64encode(f"{user}:{secret}@host".encode())
    out = masked([secret], [reported])
    assert MASK in out
    # At most a few characters at either end, which hold some bits of their neighbours.
    assert len(out) - len(MASK) <= len(reported) - len(base64.b64encode(secret.encode())) + 6


@without_deadline
@given(SECRETS, PIECES, st.lists(st.integers(0, 10_000), max_size=20), st.data())
def test_no_form_of_a_secret_gets_through_any_split(
    secret: str, pieces: list[bytes], places: list[int], data: st.DataObject
) -> None:
    known = sorted(encoded_forms(secret))
    text = b"".join(piece + data.draw(st.sampled_from(known)) for piece in pieces)
    out = masked([secret], chunks_of(text, places))
    for part in out.split(MASK):
        assert not any(form in part for form in known)


@without_deadline
@given(st.lists(st.text("ab", min_size=MIN_SECRET_BYTES, max_size=6), min_size=1, max_size=3), st.data())
def test_how_a_stream_is_split_changes_nothing(secrets: list[str], data: st.DataObject) -> None:
    """Few letters, so that secrets overlap themselves and one another."""
    text = data.draw(st.text("abc", max_size=60)).encode()
    places = data.draw(st.lists(st.integers(0, 60), max_size=10))
    assert masked(secrets, chunks_of(text, places)) == masked(secrets, [text])


@without_deadline
@given(SECRETS, st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
def test_text_without_a_secret_passes_unchanged(secret: str, text: bytes, places: list[int]) -> None:
    if not any(form in text for form in encoded_forms(secret)):
        assert masked([secret], chunks_of(text, places)) == text


def test_only_a_possible_start_of_a_secret_is_held_back() -> None:
    masker = Masker(["hunter22"])
    assert masker.feed(b"a line\nhunt") == b"a line\n"
    assert masker.feed(b"s\n") == b"hunts\n"
    assert masker.feed(b"hunter2") == b""
    assert masker.feed(b"2 rest") == MASK + b" rest"
    assert masker.count == 1


def test_overlapping_secrets_are_masked_completely() -> None:
    assert masked(["abcd", "cdef"], [b"x abcdef y"]) == b"x " + MASK + b" y"
    assert masked(["abc", "abcdef"], [b"x abc", b"def y"]) == b"x " + MASK + b" y"
    assert masked(["abc"], [b"abcabc"]) == MASK + MASK


def test_a_secret_that_is_too_short_is_detected_and_skipped() -> None:
    assert too_short("ab")
    assert not too_short("abc")
    assert masked(["", "ab"], [b"a table"]) == b"a table"
