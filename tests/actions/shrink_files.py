"""Files that are to be removed, and a context in which no server runs and no file is open."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dba_console.actions.action import ActionContext, ActionResult
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.shrink.candidate import SUFFIX
from dba_console.actions.shrink.stepwise_truncate import MIB, DiskProbe
from dba_console.actions.shrink_file import ShrinkFile, ShrinkFileSettings

ACTION = ShrinkFile()


def context_without_processes(directory: Path) -> ActionContext:
    """A context whose /proc shows mounts and no process: what other tests on this machine do is not seen."""
    proc = directory / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "mountinfo").write_bytes(Path("/proc/self/mountinfo").read_bytes())
    return ActionContext(proc=str(proc))


def big_file(directory: Path, mib: int = 40, name: str = "oldest.dump") -> Path:
    path = directory / name
    with path.open("wb") as file:
        for _ in range(mib):
            file.write(os.urandom(1024) * 1024)
    return path


def settings(path: Path, **more: Any) -> ShrinkFileSettings:
    return ShrinkFileSettings(path=str(path), **more)


def refusal(path: Path, context: ActionContext, **more: Any) -> str:
    """Why it is not done; empty where it may be."""
    return ACTION.preview(settings(path, **more), context).refusal or ""


def never() -> bool:
    return False


def shorter_than(path: Path, than_mib: int) -> Callable[[], bool]:
    """True as soon as what is left of the file has been cut."""
    left = path.with_name(path.name + SUFFIX)
    return lambda: left.exists() and left.stat().st_size < than_mib * MIB


@dataclass
class ScriptedControl:
    """A control that keeps the reported progress. What it waits for are events, never times."""

    stop: Callable[[], bool] = never
    pause: Callable[[], bool] = never
    pauses: int = 0
    """Times pause_asked says yes."""
    progress: list[str] = field(default_factory=list)

    def stop_requested(self) -> bool:
        return self.stop()

    def pause_requested(self) -> bool:
        self.pauses -= 1
        return self.pauses >= 0 or self.pause()

    def report_progress(self, text: str, done: float | None = None, total: float | None = None, unit: str = "") -> None:
        self.progress.append(text)

    def wait(self, seconds: float) -> bool:
        return False


@dataclass
class SteadyDisk(DiskProbe):
    """A disk on which each operation takes a millisecond."""

    commits: list[float] = field(default_factory=list)
    """What the next commits take; then a millisecond each."""
    asked: int = 0
    """Commits of the database."""

    def commit(self) -> float:
        return self.commits.pop(0) if self.commits else 0.001

    def database_commit(self) -> float | None:
        return None


def perform_shrink(
    path: Path, context: ActionContext, control: ScriptedControl | None = None, **more: Any
) -> tuple[ActionPreview, ActionResult]:
    """Preview and execute the action; it must not be refused."""
    wanted = settings(path, **more)
    action_preview = ACTION.preview(wanted, context)
    assert action_preview.refusal is None, action_preview.refusal
    return action_preview, ACTION.act(wanted, action_preview, context, control or ScriptedControl())


SMALL_STEPS: dict[str, Any] = {"step": "2MB"}
