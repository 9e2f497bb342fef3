"""Library of runbooks: the configured directories, which take precedence, and the shipped runbooks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from dba_console.core.errors import RunbookError, suggest
from dba_console.core.paths import trust_problem
from dba_console.recording.plan import Plan
from dba_console.runbooks.compile import CheckResult, check_text, compile_text, read_document
from dba_console.runbooks.problems import Problem
from dba_console.runbooks.schema import NAME

SHIPPED = Path(__file__).resolve().parent / "documents"
SUFFIX = ".md"
MOST = 1_000
"""Maximum documents read from one directory."""


class LibraryEntry(Struct, frozen=True, kw_only=True):
    """A runbook of the library."""

    id: str
    """Name of its file without `.md`."""
    path: Path
    shipped: bool
    shadows: tuple[Path, ...] = ()
    """Files of the same name in later directories, which are not used."""

    @property
    def origin(self) -> str:
        """Return `shipped`, or its directory."""
        return "shipped" if self.shipped else str(self.path.parent)


class ListedRunbook(Struct, frozen=True, kw_only=True):
    """A runbook as listed."""

    entry: LibraryEntry
    text: str = ""
    """The document; empty if it cannot be read."""
    title: str = ""
    answers: tuple[str, ...] = ()
    plan: Plan | None = None
    """None if it has problems."""
    problems: tuple[Problem, ...] = ()

    @property
    def error(self) -> str:
        """Return why it cannot run; empty if it can."""
        if not self.problems:
            return ""
        more = f", and {len(self.problems) - 1} more" if len(self.problems) > 1 else ""
        return f"{self.problems[0]}{more}"


class RunbookDocument(Struct, frozen=True, kw_only=True):
    """A document, found by name or file."""

    path: Path
    text: str
    entry: LibraryEntry | None = None
    """None: a file outside the library."""

    @property
    def source(self) -> str:
        """Return its name in messages and in the plan."""
        return str(self.path)

    def checked(self, actions: Mapping[str, Any] | None = None) -> CheckResult:
        return check(self.path, self.text, actions)

    def plan(self, actions: Mapping[str, Any] | None = None) -> Plan:
        """Return its plan. Raises RunbookError."""
        return compile_text(self.text, self.source, actions)


def entries(directories: Sequence[str] = ()) -> list[LibraryEntry]:
    """Return every runbook, sorted by name. `directories` take precedence, in order; hidden files are listed.

    A directory that cannot be read, or that other users can write, is skipped; see `unreadable`.
    """
    found: dict[str, LibraryEntry] = {}
    for directory, shipped in [*((Path(os.path.expanduser(one)), False) for one in directories), (SHIPPED, True)]:
        if not shipped and trust_problem(directory) is not None:
            continue
        for path in _documents(directory):
            first = found.get(path.stem)
            if first is None:
                found[path.stem] = LibraryEntry(id=path.stem, path=path, shipped=shipped)
            elif first.path.resolve() != path.resolve():
                found[path.stem] = LibraryEntry(
                    id=first.id, path=first.path, shipped=first.shipped, shadows=(*first.shadows, path)
                )
    return [found[name] for name in sorted(found)]


def listed(directories: Sequence[str] = (), actions: Mapping[str, Any] | None = None) -> list[ListedRunbook]:
    """Return every runbook with its title and answered findings; an unreadable one is listed with the reason."""
    return [load_entry(entry, actions) for entry in entries(directories)]


def load_entry(entry: LibraryEntry, actions: Mapping[str, Any] | None = None) -> ListedRunbook:
    """Return one runbook of the library, checked. Never raises."""
    try:
        text = read_document(entry.path, shipped=entry.shipped)
    except RunbookError as error:
        return ListedRunbook(entry=entry, problems=(Problem(line=0, text=error.message),))
    checked = check(entry.path, text, actions)
    return ListedRunbook(
        entry=entry, text=text, title=checked.title, answers=checked.answers, plan=checked.plan,
        problems=checked.problems,
    )  # fmt: skip


def check(path: Path, text: str, actions: Mapping[str, Any] | None = None) -> CheckResult:
    """Check a document; its id must equal the name of its file."""
    checked = check_text(text, str(path), actions)
    if checked.id and path.suffix == SUFFIX and checked.id != path.stem:
        line = next((at for at, text_line in enumerate(text.splitlines(), 1) if text_line.strip().startswith("id")), 1)
        problem = Problem(line=line, text=f"the id is {checked.id!r}, but the file is named {path.name}",
                          hint=f"rename the file to {checked.id}{SUFFIX}")  # fmt: skip
        problems = tuple(sorted((*checked.problems, problem), key=lambda one: one.line))
        return CheckResult(None, problems, checked.title, checked.id, checked.answers)
    return checked


def find(name: str, directories: Sequence[str] = ()) -> RunbookDocument:
    """Return the document with this name from the library, or from a file: a name with `/` or ending in `.md`.

    Raises RunbookError if it does not exist or cannot be read.
    """
    if "/" in name or name.endswith(SUFFIX):
        path = Path(os.path.expanduser(name))
        shipped = path.resolve().is_relative_to(SHIPPED.resolve())
        return RunbookDocument(path=path, text=read_document(path, shipped=shipped))
    by_id = {entry.id: entry for entry in entries(directories)}
    entry = by_id.get(name)
    if entry is None:
        hint = f"./{name} for a file of that name" if Path(name).is_file() else suggest(name, by_id, what="available:")
        raise RunbookError(f"unknown runbook {name!r}", hint=hint or "`dba-console runbook list` lists them")
    return RunbookDocument(path=entry.path, text=read_document(entry.path, shipped=entry.shipped), entry=entry)


def is_shipped(name: str, text: str) -> bool:
    """Return whether `text` equals the shipped document of that name, byte for byte."""
    try:
        return (SHIPPED / f"{name}{SUFFIX}").read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False


def answering(finding: str, rows: Sequence[ListedRunbook]) -> list[ListedRunbook]:
    """Return the runbooks that can run and answer a finding of this rule."""
    rule = finding.partition(":")[0]
    return [row for row in rows if rule in row.answers and not row.problems]


def unreadable(directories: Sequence[str]) -> list[str]:
    """Return a message for each configured directory that cannot be used."""
    sentences = []
    for directory in directories:
        path = os.path.expanduser(directory)
        if os.path.isdir(path) and (why := trust_problem(path)) is not None:
            sentences.append(f"cannot use the runbooks of {directory} (runbooks.path): {why.text}; `{why.fix}`")
            continue
        try:
            os.scandir(path).close()
        except OSError as error:
            sentences.append(f"cannot read the runbooks of {directory} (runbooks.path): {error.strerror}")
    return sentences


def _documents(directory: Path) -> list[Path]:
    try:
        names = sorted(entry.name for entry in os.scandir(directory) if entry.name.endswith(SUFFIX))
    except OSError:
        return []
    # README.md and similar files are not runbooks.
    return [directory / name for name in names[:MOST] if NAME.fullmatch(name.removesuffix(SUFFIX))]
