"""The feed of a recording: nothing arrives by itself, everything is asked for."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal

from dba_console.tui.feed import AgentConnectionChanged, FindingOrRunRequest, Mailbox, Session
from dba_console.tui.recorded_runs import read_runs
from dba_console.tui.recording_reader import RecordingReader
from dba_console.tui.recording_source import open_recording, resolve_time


class ReplayFeed:
    """A recorded session. `name` is what the header calls it."""

    can_go_live = False

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self.mailbox = Mailbox()
        self.session = Session(name, directory=directory)
        self.recording = RecordingReader(lambda: open_recording(directory), self.mailbox, resolve_time)

    @property
    def refusal(self) -> str | None:
        """A recording is evidence."""
        return "this is a recording: nothing can be added to it"

    def start(self) -> None:
        self.mailbox.put(AgentConnectionChanged("recording", session=self.session))
        threading.Thread(target=read_runs, args=(self._directory, self.mailbox.put), name="runs", daemon=True).start()

    def send(self, kind: Literal["mark", "note"], text: str, occurred_us: int | None) -> str | None:
        return self.refusal

    def send_request(self, request: FindingOrRunRequest) -> str | None:
        return self.refusal

    def close(self) -> None:
        self.recording.close()
