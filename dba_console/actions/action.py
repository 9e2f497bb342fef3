"""The base class of an action: preview, act, settle an unknown outcome, undo; and the context an action runs in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from msgspec import Struct

from dba_console.actions.action_preview import ActionPreview
from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.errors import Unsupported

if TYPE_CHECKING:
    from dba_console.actions.acting_connection import ActingConnection
    from dba_console.core.config import Config
    from dba_console.watch.frames.model import Frame


@dataclass(frozen=True, slots=True)
class ActionContext:
    """What an action runs with. Tests pass their own directories instead of /proc and /sys."""

    connection: ActingConnection | None = None
    """None: no server is needed, or none can be reached."""
    server_is_local: bool = True
    """The server is proven to run on this host."""
    frame: Frame | None = None
    """Newest frame of the agent, for values that are already measured."""
    clock: Clock = SYSTEM
    proc: str = "/proc"
    sys: str = "/sys"
    directory: str | None = None
    """Directory of this execution in the session; an action may keep its state there."""
    run: str = ""
    """Id of the run; its pending reverts are saved under this id."""
    runbook: str = ""
    run_directory: str = ""
    confirmed_by: str = ""
    """Operator who confirmed it."""
    target: str = ""
    target_key: str = ""
    reverts_directory: str | None = None
    """Directory of pending reverts; None: in the state directory."""
    config: Config | None = None
    """Configuration of the agent, for its clusters."""

    def require_connection(self) -> ActingConnection:
        """Return the connection. Raises Unsupported if there is none."""
        if self.connection is None:
            raise Unsupported(
                "this acts on a server, and the run has no server",
                hint="name one: dba-console runbook run NAME --dsn DSN",
            )
        return self.connection


class Control(Protocol):
    """Requests of the operator to a running action, and its progress reports."""

    def stop_requested(self) -> bool:
        """Whether the operator asked it to stop at the next safe point."""

    def pause_requested(self) -> bool:
        """Whether the operator asked it to pause; it waits until this is False again."""

    def report_progress(self, text: str, done: float | None = None, total: float | None = None, unit: str = "") -> None:
        """Report what it is doing and why it waits; shown, not recorded each time."""

    def wait(self, seconds: float) -> bool:
        """Wait; return True as soon as a stop is requested."""


def named_objects_text(found: Sequence[str], gone: Sequence[str], missing: str, known: str) -> str:
    """Return the text of a preview: the first objects, and names that were not found, with what is `known` instead."""
    more = [f"And {len(found) - 5} more."] if len(found) > 5 else []
    absent = [f"{missing}: {', '.join(gone[:5])}; {known}."] if gone else []
    return " ".join([*found[:5], *more, *absent])


class ActionResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of an action."""

    state: str
    """ok, failed, stopped, unknown, or refused: the program that was asked refused, and nothing was changed."""
    text: str
    values: dict[str, Any] = {}
    """Measured after, with the names of the preview where they mean the same."""
    undo: dict[str, Any] | None = None
    """What the undo needs; None: it cannot be undone (any more)."""
    again: bool = False
    """After `settle`: nothing or only a part was done, and repeating the action continues from there."""


class Action(ABC):
    """Base class of the actions. Stateless: all state is in the arguments."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One sentence for the reference page."""
    Settings: ClassVar[type[Struct]]
    """Strict (forbid_unknown_fields); the docstrings of its fields are the reference. Durations and sizes are text, as
    written in the runbook."""
    needs_server: ClassVar[bool] = True
    needs_root: ClassVar[bool] = False
    undoable: ClassVar[bool] = False
    no_undo: ClassVar[str] = "this cannot be reverted"
    """Why, if it is not undoable."""
    acts_on_cluster: ClassVar[bool] = False
    """It acts on nodes of a cluster over its own connections. It runs on the host the run was started on, whichever
    servers run there, and gets no server. `undo` must be safe to repeat: if its outcome is unknown, it runs again."""
    may_shrink: ClassVar[bool] = False
    """It may act although rows of the confirmed preview no longer exist."""
    row_key: ClassVar[tuple[str, ...]] = ()
    """Columns that identify a row of the preview; the others only inform the operator. Empty: all of them."""

    @abstractmethod
    def preview(self, settings: Any, context: ActionContext) -> ActionPreview:
        """Return what the action would do. Reads only, with a timeout."""

    @abstractmethod
    def act(self, settings: Any, preview: ActionPreview, context: ActionContext, control: Control) -> ActionResult:
        """Do what `preview.exact` shows, on `preview.rows`; check first what may have changed since the preview."""

    @abstractmethod
    def settle(self, settings: Any, preview: ActionPreview, context: ActionContext) -> ActionResult:
        """Return the outcome of an interrupted action, from evidence; state unknown without evidence."""

    def undo(self, settings: Any, data: Mapping[str, Any], context: ActionContext, control: Control) -> ActionResult:
        """Revert the action, if `undoable`."""
        return ActionResult(state="failed", text=self.no_undo)


@dataclass(slots=True)
class PlainControl:
    """A control for a caller without a console: never pauses; stops when `stop` returns True."""

    stop: Callable[[], bool] = field(default=lambda: False)
    on_progress: Callable[[str], None] = field(default=lambda text: None)

    def stop_requested(self) -> bool:
        return self.stop()

    def pause_requested(self) -> bool:
        return False

    def report_progress(self, text: str, done: float | None = None, total: float | None = None, unit: str = "") -> None:
        self.on_progress(text)

    def wait(self, seconds: float) -> bool:
        import threading

        threading.Event().wait(seconds)
        return self.stop()
