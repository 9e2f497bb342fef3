"""Where runbooks lie: those shipped, and those of the configured directories, which come first."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from dba_console.core.errors import RunbookError
from dba_console.core.paths import trust_problem
from dba_console.recording.plan import Plan
from dba_console.runbooks.blocks import NAME
from dba_console.runbooks.compile import CheckResult, check_text, compile_text, read_document
from dba_console.runbooks.problems import Problem, suggest

SHIPPED = Path(__file__).resolve().parent / "documents"
SUFFIX = ".md"
MOST = 1_000
"""Documents of one directory that are looked at."""


class LibraryEntry(Struct, frozen=True, kw_only=True):
    """A runbook of the library."""

    id: str
    """The name of its file without `.md`, by which it is called."""
    path: Path
    shipped: bool
    shadows: tuple[Path, ...] = ()
    """Files of the same name further down, which are not used."""

    @property
    def origin(self) -> str:
        """Where it is from: `shipped`, or its directory."""
        return "shipped" if self.shipped else str(self.path.parent)


class ListedRunbook(Struct, frozen=True, kw_only=True):
    """A runbook as a list shows it."""

    entry: LibraryEntry
    title: str
    answers: tuple[str, ...] = ()
    plan: Plan | None = None
    """None where it has problems."""
    problems: tuple[Problem, ...] = ()

    @property
    def error(self) -> str:
        """Why it cannot be run, in a sentence; empty where it can."""
        if not self.problems:
            return ""
        more = f", and {len(self.problems) - 1} more" if len(self.problems) > 1 else ""
        return f"line {self.problems[0].line}: {self.problems[0].text}{more}"


class RunbookDocument(Struct, frozen=True, kw_only=True):
    """A document, by its name or its file."""

    path: Path
    text: str
    entry: LibraryEntry | None = None
    """None: a file, not one of the library."""

    @property
    def source(self) -> str:
        """How it is called in messages and in the plan."""
        return str(self.path)

    def checked(self, actions: Mapping[str, Any] | None = None) -> CheckResult:
        return check(self.path, self.text, actions)

    def plan(self, actions: Mapping[str, Any] | None = None) -> Plan:
        """Its plan. Raises RunbookError."""
        return compile_text(self.text, self.source, actions)


def entries(directories: Sequence[str] = ()) -> list[LibraryEntry]:
    """Every runbook by its name, sorted. `directories` come first, in their order; what they hide is told.

    A directory that cannot be read, or that others may write, is passed over; `unreadable` names it.
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
    """Every runbook with its title and what it answers; one that cannot be read is listed with the reason."""
    return [load_entry(entry, actions) for entry in entries(directories)]


def load_entry(entry: LibraryEntry, actions: Mapping[str, Any] | None = None) -> ListedRunbook:
    """One runbook of the library, read. Never raises."""
    try:
        text = read_document(entry.path, shipped=entry.shipped)
    except RunbookError as error:
        return ListedRunbook(entry=entry, title="", problems=(Problem(line=1, text=error.message),))
    checked = check(entry.path, text, actions)
    return ListedRunbook(
        entry=entry, title=checked.title, answers=checked.answers, plan=checked.plan, problems=checked.problems
    )


def check(path: Path, text: str, actions: Mapping[str, Any] | None = None) -> CheckResult:
    """Everything wrong with a document; in a library its id is the name of its file."""
    checked = check_text(text, str(path), actions)
    if checked.id and path.suffix == SUFFIX and checked.id != path.stem:
        line = next((at for at, text_line in enumerate(text.splitlines(), 1) if text_line.strip().startswith("id")), 1)
        problem = Problem(line=line, text=f"the id is {checked.id!r}, and the file is called {path.name}",
                          hint=f"call it {checked.id}{SUFFIX}: a runbook is called by its file")  # fmt: skip
        problems = tuple(sorted((*checked.problems, problem), key=lambda one: one.line))
        return CheckResult(None, problems, checked.title, checked.id, checked.answers)
    return checked


def find(name: str, directories: Sequence[str] = ()) -> RunbookDocument:
    """The document of a name of the library, or of a file: whatever has a `/` or ends in `.md` is a file.

    Raises RunbookError: nothing is called so, or it cannot be read.
    """
    if "/" in name or name.endswith(SUFFIX):
        path = Path(os.path.expanduser(name))
        shipped = path.resolve().is_relative_to(SHIPPED.resolve())
        return RunbookDocument(path=path, text=read_document(path, shipped=shipped))
    by_id = {entry.id: entry for entry in entries(directories)}
    entry = by_id.get(name)
    if entry is None:
        hint = f"./{name} for a file of that name" if Path(name).is_file() else suggest(name, by_id, what="there are")
        raise RunbookError(f"no runbook is called {name!r}", hint=hint or "`dba-console runbook list` lists them")
    return RunbookDocument(path=entry.path, text=read_document(entry.path, shipped=entry.shipped), entry=entry)


def is_shipped(name: str, text: str) -> bool:
    """Whether `text` is, byte for byte, the document of that name that comes with the console."""
    try:
        return (SHIPPED / f"{name}{SUFFIX}").read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False


def answering(finding: str, rows: Sequence[ListedRunbook]) -> list[ListedRunbook]:
    """Runbooks that can be run and say that they answer a finding of this rule."""
    rule = finding.partition(":")[0]
    return [row for row in rows if rule in row.answers and not row.problems]


def unreadable(directories: Sequence[str]) -> list[str]:
    """A sentence for each configured directory that cannot be read."""
    sentences = []
    for directory in directories:
        path = os.path.expanduser(directory)
        if os.path.isdir(path) and (why := trust_problem(path)) is not None:
            sentences.append(f"the runbooks of {directory} (runbooks.path) are not used: {why.text}; `{why.fix}`")
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
    # README.md and the like may lie beside them.
    return [directory / name for name in names[:MOST] if NAME.fullmatch(name.removesuffix(SUFFIX))]
