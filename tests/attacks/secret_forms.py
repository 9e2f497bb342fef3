"""Forms of a secret (secret_forms.txt), and texts without one (harmless_texts.txt)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

S = "Zq7hunter2x"
_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|(.))")


class Form(NamedTuple):
    """One text: `kind` is what its caller says it is, sql or text."""

    kind: str
    form_class: str
    text: str


def _unescaped(line: str) -> str:
    return _ESCAPE.sub(
        lambda match: chr(int(match[1], 16)) if match[1] else {"n": "\n", "t": "\t"}.get(match[2], match[2]), line
    )


def _read(name: str) -> Iterator[Form]:
    kind = form_class = ""
    for line in Path(__file__).with_name(name).read_text().splitlines():
        if line.startswith("## "):
            kind, form_class = line[3:].split(": ", 1)
        elif line and not (line.startswith("# ") and not kind):
            yield Form(kind, form_class, _unescaped(line).replace("§", S))


@cache
def secret_forms() -> tuple[Form, ...]:
    """Return the forms with the secret `S`."""
    return tuple(dict.fromkeys(_read("secret_forms.txt")))


@cache
def harmless_texts() -> tuple[Form, ...]:
    """Return texts in which nothing is masked."""
    return tuple(_read("harmless_texts.txt"))
