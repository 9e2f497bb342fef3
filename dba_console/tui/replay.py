"""The feed of a recording: nothing arrives by itself, everything is asked for."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal

from dba_console.tui.archive import Archive
from dba_console.tui.feed import LinkChanged, Mailbox, Request, Session
from dba_console.tui.past import open_recording, resolve_time
from dba_console.tui.recorded_runs import read_runs


class ReplayFeed:
    """A recorded session. `name` is what the header calls it."""

    has_present = False

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self.mailbox = Mailbox()
        self.session = Session(name, directory=directory)
        self.archive = Archive(lambda: open_recording(directory), self.mailbox, resolve_time)

    @property
    def refusal(self) -> str | None:
        """A recording is evidence."""
        return "this is a recording: nothing can be added to it"

    def start(self) -> None:
        self.mailbox.put(LinkChanged("recording", session=self.session))
        threading.Thread(target=read_runs, args=(self._directory, self.mailbox.put), name="runs", daemon=True).start()

    def send(self, kind: Literal["mark", "note"], text: str, occurred_us: int | None) -> str | None:
        return self.refusal

    def ask(self, request: Request) -> str | None:
        return self.refusal

    def close(self) -> None:
        self.archive.close()
