"""What an action is: it looks first and says what it would do, acts once it may, and can say what became of an act
whose end nobody saw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from msgspec import Struct

from dba_console.core.clock import SYSTEM, Clock

if TYPE_CHECKING:
    from dba_console.core.config import Config
    from dba_console.watch.frames.model import Frame


class QueryConnection(Protocol):
    """The acting connection: opened on demand, identified before each act. Every call is bounded in time.

    Its methods raise `ConnectError` when there is no connection, `Refused` when the server is not the one the run was
    begun on, `StatementFailed` when the server said no, `StatementLost` when the connection broke and the end is
    unknown.
    """

    def rows(
        self, sql: str, params: Mapping[str, Any] | Sequence[Any] = (), *, timeout_s: float = 10.0
    ) -> list[dict[str, Any]]:
        """Rows of a statement that only reads (a read-only transaction)."""

    def execute(
        self,
        sql: str,
        params: Mapping[str, Any] | Sequence[Any] = (),
        *,
        timeout_s: float | None = None,
        transaction: bool = True,
    ) -> int:
        """Execute one statement that changes; returns the rows it touched."""


@dataclass(frozen=True, slots=True)
class ActionContext:
    """Where an action acts. Tests hand it directories of their own in place of /proc and /sys."""

    connection: QueryConnection | None = None
    """None: no server is needed or none can be reached."""
    server_is_local: bool = True
    """The server is proven to run on this host."""
    frame: Frame | None = None
    """Newest frame of the agent, for figures that were measured anyway."""
    clock: Clock = SYSTEM
    proc: str = "/proc"
    sys: str = "/sys"
    directory: str | None = None
    """Of this execution in the session: an action may keep a note there by which it finds itself again."""
    run: str = ""
    """Id of the run it belongs to; what it owes is written under this name."""
    runbook: str = ""
    run_directory: str = ""
    confirmed_by: str = ""
    """Who confirmed it."""
    target: str = ""
    target_key: str = ""
    reverts_directory: str | None = None
    """Where debts lie; None: in the state directory."""
    config: Config | None = None
    """The configuration of the agent: its clusters."""


class Control(Protocol):
    """How the person speaks to an action under way, and it to them."""

    def stop_requested(self) -> bool:
        """The operator wants it to stop at the next safe point."""

    def pause_requested(self) -> bool:
        """The operator wants it to hold still until this is False again."""

    def report_progress(self, text: str, done: float | None = None, total: float | None = None, unit: str = "") -> None:
        """What it is doing now, and why it waits; shown, not recorded each time."""

    def wait(self, seconds: float) -> bool:
        """Let time pass; True as soon as it is asked to stop."""


class ActionPreview(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an action saw before it acts: shown before the question, recorded with the intent."""

    text: str
    """One sentence: what is there, and what it would cost."""
    exact: str
    """What will be done, verbatim: the command, the statement, the path and bytes."""
    values: dict[str, Any] = {}
    """Measured before; compared with those after."""
    refusal: str | None = None
    """Why it will not be done, in a sentence; None where it may be."""
    hint: str | None = None
    count: int | None = None
    """How many things it acts on; what `confirm=type:count` asks for."""
    name: str = ""
    """Where it is one thing that has a name; what `confirm=type:name` asks for in place of the count."""
    rows: tuple[dict[str, Any], ...] = ()
    """The exact set it acts on; the act is bound to it."""
    done: bool = False
    """Already as wanted: nothing to do."""
    by: str = ""
    """With `done`: not as wanted yet, and left to this program, which does it."""
    destructive: bool = False
    """It can cost everything: the gate wants words to be typed, not a letter and not `yes`."""


def with_refusal(preview: ActionPreview, refusal: str, hint: str) -> ActionPreview:
    """What was seen, and why nothing will be done about it."""
    return ActionPreview(text=preview.text, exact=preview.exact, values=preview.values, refusal=refusal, hint=hint)


class ActionResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an act came to."""

    state: str
    """ok, failed, stopped, unknown; refused: by whom it was asked for, and nothing has changed."""
    text: str
    values: dict[str, Any] = {}
    """Measured after, same names as in Sight where they mean the same."""
    undo: dict[str, Any] | None = None
    """What is needed to take it back; None where that is not possible (any more)."""
    again: bool = False
    """Of an act that was settled: it was not begun, or a part of it was done, and doing it again goes on from there."""


class Action(Protocol):
    """One action. Stateless: everything is in its arguments."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """A sentence for the reference page."""
    Settings: ClassVar[type[Struct]]
    """Strict (forbid_unknown_fields); its fields' docstrings are the reference. Durations and sizes are text, as the
    author writes them."""
    needs_server: ClassVar[bool]
    needs_root: ClassVar[bool]
    undoable: ClassVar[bool]
    acts_on_cluster: ClassVar[bool]
    """It acts on nodes of a cluster by connections of its own (left out: it does not). It runs on the host the run was
    begun on, whichever servers run there, and is given no server. `undo` has to be safe to repeat: where nobody saw its
    end, it is done again."""

    def preview(self, settings: Any, context: ActionContext) -> ActionPreview:
        """Reads only; bounded in time."""

    def act(self, settings: Any, preview: ActionPreview, context: ActionContext, control: Control) -> ActionResult:
        """Does what `sight.exact` says, on what `sight.rows` names; looks again for what may have changed meanwhile."""

    def settle(self, settings: Any, preview: ActionPreview, context: ActionContext) -> ActionResult:
        """The end of an act nobody saw, by evidence; state unknown where nothing tells."""

    def undo(self, settings: Any, data: Mapping[str, Any], context: ActionContext, control: Control) -> ActionResult:
        """Takes it back, where `undoable`."""


def acts_on_cluster(action: Action) -> bool:
    """Whether it acts on nodes of a cluster, by connections of its own."""
    return getattr(action, "acts_on_cluster", False)


@dataclass(slots=True)
class PlainControl:
    """A control for a caller without a console: never pauses; stops when `stop` says so."""

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
