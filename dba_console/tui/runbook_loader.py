"""The runbooks there are, read by a thread of their own: a dead mount costs the list, never the screen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dba_console.errors import ConsoleError
from dba_console.plans.plan import Plan
from dba_console.redact import redact

if TYPE_CHECKING:
    from dba_console.runbook.library import LibraryEntry


@dataclass(frozen=True, slots=True)
class LoadedRunbook:
    """A runbook as it was read: `plan` is None where it does not compile, and `problems` say why."""

    id: str
    title: str
    source: str
    text: str
    plan: Plan | None = None
    problems: tuple[str, ...] = ()
    origin: str = ""
    """Where it is from, in short: `shipped`, or its directory."""


@dataclass(frozen=True, slots=True)
class RunbooksArrived:
    """All runbooks, or the sentence why they cannot be read."""

    runbooks: tuple[LoadedRunbook, ...] = ()
    problem: str = ""

    def find(self, runbook_id: str) -> LoadedRunbook | None:
        """The runbook of that id, None where there is none."""
        return next((book for book in self.runbooks if book.id == runbook_id), None)


class RunbookLoader:
    """Reads runbooks when they are wanted; `put` is told from the thread that read them."""

    def __init__(self, load: Callable[[], RunbooksArrived], put: Callable[[RunbooksArrived], None]) -> None:
        self._load = load
        self._put = put
        self._reading = threading.Lock()

    def request_read(self) -> None:
        """Read them again, unless they are being read."""
        if self._reading.acquire(blocking=False):
            threading.Thread(target=self._read, name="shelf", daemon=True).start()

    def _read(self) -> None:
        try:
            self._put(self._load())
        except ConsoleError as error:
            self._put(RunbooksArrived(problem=redact("; ".join(filter(None, (error.message, error.hint))))))
        except Exception as error:
            # Whatever a file system raises: the screen lives on and says so.
            self._put(RunbooksArrived(problem=redact(f"the runbooks cannot be read: {error}")))
        finally:
            self._reading.release()


def read_runbooks(directories: Sequence[str]) -> RunbooksArrived:
    """The runbooks shipped and those of the directories; what of them cannot be read is said.

    Settings of actions are not checked here: the agent compiles a document again before anything is run.
    """
    from dba_console.runbook import library  # loads the parsers, which a screen without runbooks does without

    runbooks = tuple(_read_runbook(entry) for entry in library.entries(directories))
    return RunbooksArrived(runbooks, "; ".join(library.unreadable(directories)))


def _read_runbook(entry: LibraryEntry) -> LoadedRunbook:
    from dba_console.runbook.compile import read_document
    from dba_console.runbook.library import check

    try:
        text = read_document(entry.path, shipped=entry.shipped)
    except ConsoleError as error:
        return LoadedRunbook(entry.id, entry.id, str(entry.path), "", None, (error.message,))
    checked = check(entry.path, text)
    problems = tuple(f"line {one.line}: {one.text}" for one in checked.problems)
    return LoadedRunbook(
        entry.id, checked.title or entry.id, str(entry.path), text, checked.plan, problems, entry.origin
    )
