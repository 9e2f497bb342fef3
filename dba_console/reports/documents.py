"""Documents made from recordings: rendered as Markdown and as one HTML file without script or outside reference, and
written completely or not at all.

In both forms every value is escaped unless a template marks it as code: a new field cannot be forgotten.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dba_console.core.atomic_files import complete_file
from dba_console.core.errors import ConsoleError, PermissionDenied, UsageError
from dba_console.core.units import human_bytes, human_duration
from dba_console.watch.drawing.time_formats import date_and_time, format_rfc3339

_TEMPLATES = Path(__file__).parent


class RedactedSession(Protocol):
    """What a document says of a session."""

    @property
    def id(self) -> str: ...
    @property
    def redacted(self) -> str:
        """Level of a redacted copy; empty for an original."""


def new_environment(*, html: bool, **filters: Callable[..., Any]) -> Environment:
    """Return an environment for the templates below this package, with the filters of all documents and these."""
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=html,
        finalize=None if html else _markdown_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "utc": utc_text,
        "local": date_and_time,
        "delta": _delta,
        "duration": human_duration,
        "bytes": human_bytes,
        "seconds_between": lambda later, earlier: (later - earlier) / 1e6,
        "fence": _fence,
        "privacy": _privacy_text,
        **filters,
    }
    return made


def _delta(seconds: float) -> str:
    """Return `+0:00:02` or `-0:00:18`, whole seconds towards zero."""
    whole = abs(int(seconds))
    return f"{'-' if seconds <= -1 else '+'}{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def utc_text(wall_us: int) -> str:
    """Return `2026-11-20 14:53:07`, UTC."""
    return format_rfc3339(wall_us)[:19].replace("T", " ")


def local_zone(wall_us: int) -> str:
    """Return the zone of this host as `CET (UTC+01:00)`; empty if it is UTC."""
    try:
        local = time.localtime(wall_us // 1_000_000)
    except (OverflowError, ValueError, OSError):
        return ""
    hours, minutes = divmod(abs(local.tm_gmtoff) // 60, 60)
    if not local.tm_gmtoff:
        return ""
    return f"{local.tm_zone} (UTC{'-' if local.tm_gmtoff < 0 else '+'}{hours:02d}:{minutes:02d})"


_PRIVACY = {
    "": "Passwords are masked; names, addresses and query texts are as recorded.",
    "secrets": "Passwords, keys and their paths are masked; other names, addresses and query texts are as recorded.",
    "names": "Passwords are masked; names, addresses and paths are pseudonyms, and values in statements are removed.",
    "all": "Names, addresses and paths are pseudonyms; statements and what people wrote are removed.",
}


def _privacy_text(sessions: Sequence[RedactedSession]) -> str:
    """Return what is masked or replaced in the texts of a document, by the sessions that it was made from."""
    if not any(one.redacted for one in sessions):
        return _PRIVACY[""]
    texts = []
    for one in sessions:
        what = f"a redacted copy (level {one.redacted})" if one.redacted else "an original"
        replaced = _PRIVACY.get(one.redacted, "What was replaced is not known.")
        texts.append(f"Session {one.id} is {what}. {replaced}")
    return " ".join(texts)


# Markdown.

_SPECIAL = re.compile(r"[\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_BLOCK_START = re.compile(r"^(\d*)([.)](?=\s|$)|[#+=-](?=[\s#+=-]|$))")
"""What begins a heading, a list, a line across, if it begins a line."""
_LINKS = re.compile(r"(?i)(?<=[a-z0-9+.-])(?=://)|(?<=www)(?=\.)")


def _markdown_value(value: Any) -> Any:
    return value if isinstance(value, Markup) else escape_markdown(str(value))


def escape_markdown(text: str) -> str:
    r"""Return text that Markdown shows as it is: no markup, HTML, link or table cell.

    >>> print(escape_markdown("<b>*x*</b> | [a](b) http://x"))
    &lt;b&gt;\*x\*&lt;/b&gt; \| \[a\](b) http\://x
    >>> print(escape_markdown("# x"), escape_markdown("1. x"))
    \# x 1\. x
    """
    text = _SPECIAL.sub(r"\\\g<0>", "".join(_ENTITIES.get(sign, sign) for sign in text.strip()))
    text = _LINKS.sub(r"\\", text)
    return _BLOCK_START.sub(r"\1\\\2", text)


def _fence(lines: Any, indent: int = 0) -> Markup:
    """Return lines of text as a block of code, which nothing in them can end."""
    body = [str(one) for one in lines]
    longest = max((len(run) for one in body for run in re.findall(r"`+", one)), default=0)
    mark = "`" * max(3, longest + 1)
    blank = " " * indent
    return Markup("\n".join(f"{blank}{one}".rstrip() for one in (f"{mark}text", *body, mark)))


# Files.


def write_documents(directory: Path, documents: Mapping[str, str], *, overwrite: bool = False) -> list[Path]:
    """Write files by name into a directory, all or none; it is created (0700). Return them (0600). Raises
    ConsoleError."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as files:
            for name, text in documents.items():
                file = files.enter_context(complete_file(directory / name, overwrite=overwrite))
                file.write(text.encode("utf-8", "replace"))
        return [directory / name for name in documents]
    except FileExistsError as error:
        if not directory.is_dir():
            raise UsageError(f"{directory} is not a directory", hint="--out names one") from None
        hint = "people may have edited it: --out names another directory, --force overwrites"
        raise UsageError(str(error), hint=hint) from None
    except PermissionError as error:
        raise PermissionDenied(f"cannot write to {directory}: {error.strerror}") from None
    except OSError as error:
        raise ConsoleError(f"cannot write to {directory}: {error.strerror or error}; nothing was left there") from error
