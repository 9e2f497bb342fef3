"""The runbooks there are, read by a thread of their own: a dead mount costs the list, never the screen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dba_console.errors import ConsoleError
from dba_console.plans.plan import Plan
from dba_console.redact import redact


@dataclass(frozen=True, slots=True)
class Book:
    """A runbook as it was read: `plan` is None where it does not compile, and `problems` say why."""

    id: str
    title: str
    source: str
    text: str
    plan: Plan | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BooksArrived:
    """All runbooks, or the sentence why they cannot be read."""

    books: tuple[Book, ...] = ()
    trouble: str = ""

    def find(self, book_id: str) -> Book | None:
        """The runbook of that id, None where there is none."""
        return next((book for book in self.books if book.id == book_id), None)


class Shelf:
    """Reads runbooks when they are wanted; `put` is told from the thread that read them."""

    def __init__(self, load: Callable[[], Sequence[Book]], put: Callable[[BooksArrived], None]) -> None:
        self._load = load
        self._put = put
        self._reading = threading.Lock()

    def want(self) -> None:
        """Read them again, unless they are being read."""
        if self._reading.acquire(blocking=False):
            threading.Thread(target=self._read, name="shelf", daemon=True).start()

    def _read(self) -> None:
        try:
            self._put(BooksArrived(tuple(self._load())))
        except ConsoleError as error:
            self._put(BooksArrived(trouble=redact("; ".join(filter(None, (error.message, error.hint))))))
        except Exception as error:
            # Whatever a file system raises: the screen lives on and says so.
            self._put(BooksArrived(trouble=redact(f"the runbooks cannot be read: {error}")))
        finally:
            self._reading.release()
