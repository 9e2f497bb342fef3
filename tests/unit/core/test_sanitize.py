"""Whatever others call themselves, it drives no terminal and stays to be recognised."""

from __future__ import annotations

import json
import sys
import unicodedata

import msgspec
import pytest

from dba_console.core.sanitize import clean, escape_json


@pytest.fixture(scope="module")
def every_sign() -> str:
    return "".join(map(chr, range(sys.maxunicode + 1)))


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\x9b31m", "a\u202eb", "\u200b", "\ud800", "\U000e0041", "\x7f"])
def test_terminal_control_characters_become_visible_signs(text: str) -> None:
    assert clean(text).isprintable()
    assert clean(clean(text)) == clean(text)


def test_no_unprintable_character_passes(every_sign: str) -> None:
    assert clean(every_sign).isprintable()


def test_every_unicode_space_becomes_a_plain_space(every_sign: str) -> None:
    blanks = [sign for sign in every_sign if unicodedata.category(sign) == "Zs"]
    assert clean("".join(blanks)) == " " * len(blanks)


def test_variation_selectors_are_removed() -> None:
    assert clean("❤\ufe0f") == "❤"


def test_text_in_any_script_stays_readable() -> None:
    assert clean("заказы 表 طلب") == "заказы 表 طلب"


@pytest.mark.parametrize("sign", [*"\x1b\x7f\x9b\u200b\u2028\u202e\u2060\ufeff\U000e0041"])
def test_json_has_the_same_text_without_terminal_control_characters(sign: str) -> None:
    encoded = escape_json(msgspec.json.encode({"name": f"a{sign}b漢é"}).decode())
    assert encoded.isprintable() and "漢é" in encoded
    assert json.loads(encoded) == {"name": f"a{sign}b漢é"}
