"""The permission gate all changes pass: policy, identity of server and host, comparison with the preview, confirmation.

The caller acts only on what the permit contains. A refusal changes nothing and names what would have to change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from dba_console.actions.acting_connection import refuse_other_server
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.identity import HostIdentity, ServerIdentity, host_identity, host_mismatch
from dba_console.actions.policy import policy_refusal
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.registry import ACTIONS
from dba_console.core.config import ActionsConfig
from dba_console.core.errors import Refused
from dba_console.recording.plan import Confirmation


class ActRequest(Struct, frozen=True, kw_only=True):
    """A change that is about to be made."""

    kind: Literal["action", "change", "run"]
    target: str
    """Name of the target, as it must be typed."""
    action: str = ""
    confirm: Confirmation | None = None
    answer: str | None = None
    """What the operator typed; None if nothing was asked."""
    confirmed_by: tuple[str, ...] = ()
    """Operators who confirmed."""
    count: int | None = None
    """Number of objects it acts on, as shown; what `type:count` asks for."""
    object_name: str = ""
    """The single object it acts on, as shown; what `type:name` asks for."""
    undo: bool = False
    """It is an undo: the question about the undo was its confirmation."""
    server: bool = True
    """It acts on the server, or through it."""
    host: bool = False
    """It acts on this host."""
    cluster: bool = False
    """It acts on nodes of a cluster, over one connection each, from the host the run was started on."""

    @property
    def name(self) -> str:
        """The name that the policy uses."""
        return self.action or self.kind


class PlannedTarget(Struct, frozen=True, kw_only=True):
    """The server and host the run was started on, from its journal."""

    server: ServerIdentity | None = None
    """None: a run without a server."""
    host: HostIdentity | None = None


class CurrentTarget(Struct, frozen=True, kw_only=True):
    """The server and host it would act on now."""

    connection: QueryConnection | None = None
    server_is_local: bool = True
    """The server of the run is proven to run on this host, or the run has none."""
    config: ActionsConfig = field(default_factory=ActionsConfig)
    read_only: str = ""
    """Name of the read-only target it would act on."""


class Permit(Struct, frozen=True, kw_only=True):
    """Permission for one change, with the server and host it is for."""

    server: ServerIdentity | None = None
    host: HostIdentity | None = None
    preview: ActionPreview | None = None
    """The new preview; the action acts on this one."""


def authorize(
    request: ActRequest,
    planned: PlannedTarget,
    current: CurrentTarget,
    *,
    look: Callable[[], ActionPreview] | None = None,
    shown: ActionPreview | None = None,
    proc: str = "/proc",
) -> Permit:
    """Return the permit, or raise Refused. For an action, `look` makes a new preview; `shown` is the confirmed one.

    ServerRestarted can be overruled: if the operator confirms that the restart was intentional, the caller takes the
    current identity as the planned one and asks again. Raises ConnectError if the server cannot be asked.
    """
    if message := policy_refusal(current.config, request.name, list(ACTIONS), read_only=current.read_only):
        raise Refused(message)
    server = _check_server(request, planned, current)
    host = _check_host(request, planned, current, proc)
    preview = None if look is None else look()
    if preview is not None:
        acting = ACTIONS[request.action]
        refuse_changed(preview, shown, may_shrink=acting.may_shrink, key=acting.row_key, undo=request.undo)
    if message := confirmation_refusal(request, destructive=preview is not None and preview.destructive):
        raise Refused(message, hint="the default is No: nothing was changed")
    return Permit(server=server, host=host, preview=preview)


def _check_server(request: ActRequest, planned: PlannedTarget, current: CurrentTarget) -> ServerIdentity | None:
    if not request.server:
        return None
    if current.connection is None or planned.server is None:
        raise Refused(
            "it would act on a server, and this run was started without one", hint="start a new run with --dsn DSN"
        )
    now = current.connection.read_identity()
    refuse_other_server(planned.server, now)
    return now


def _check_host(request: ActRequest, planned: PlannedTarget, current: CurrentTarget, proc: str) -> HostIdentity | None:
    if not request.host and not request.cluster:
        return None
    now = host_identity(proc)
    if planned.host is None:
        raise Refused(
            "the host the run was started on is unknown: the first records of the run are missing",
            hint="nothing was changed; start a new run",
        )
    # A boot of this host does not change the nodes of a cluster, and the run's journal is on its disk.
    known = planned.host if request.host else msgspec.structs.replace(planned.host, boot_id=now.boot_id)
    if message := host_mismatch(known, now):
        raise Refused(message, hint="nothing was changed; start a new run on the intended host")
    if request.host and not current.server_is_local:
        raise Refused(
            f"it would act on this host, {now.name}, and {request.target} is not proven to run here",
            hint="run it on the server's own host; if this is that host, set host_panels = true",
        )
    return now


def refuse_changed(
    now: ActionPreview,
    shown: ActionPreview | None,
    *,
    may_shrink: bool = False,
    key: Sequence[str] = (),
    undo: bool = False,
) -> None:
    """Raise Refused if an action would not do exactly what was shown.

    With `may_shrink`, a set that has only lost members passes. `key` are the columns that identify a member; the other
    columns only describe it.
    """
    if now.refusal is not None:
        raise Refused(now.refusal, hint=now.hint)
    if now.done or undo:
        return
    if shown is None:
        raise Refused("no preview was shown to the operator")
    before, after = _encode_rows(shown.rows, key), _encode_rows(now.rows, key)
    if grown := after - before:
        raise Refused(
            f"{len(grown)} of {len(after)} objects it would act on were not in the confirmed preview",
            hint="preview again, and confirm the current objects",
        )
    shrunk = len(before - after)
    if shrunk and not may_shrink:
        raise Refused(
            f"{shrunk} of {len(before)} confirmed objects no longer exist, or have changed",
            hint="preview again, and confirm the current objects",
        )
    if not shrunk and now.exact != shown.exact:
        raise Refused(f"the action differs from what was shown: {now.exact}", hint=f"shown was: {shown.exact}")


def confirmation_refusal(request: ActRequest, *, destructive: bool = False) -> str | None:
    """Return why the answer does not confirm the request; None if it does. Destructive requests need typed text."""
    confirm, answer = request.confirm, request.answer
    if request.undo:
        return None
    if confirm is None:
        return None if request.kind == "run" else f"{request.name} has no confirmation, and every change needs one"
    if destructive and confirm.level != "type":
        return f"{request.name} can destroy the cluster: its block must use confirm=type:..."
    if answer is None:
        return "it was not confirmed"
    if len(set(request.confirmed_by)) < confirm.people:
        return f"it needs the confirmation of {confirm.people} operators, and has {len(set(request.confirmed_by))}"
    accepted = _accepted_answers(request, confirm)
    if accepted is None:
        return "the number of objects is unknown, so it cannot have been confirmed"
    return None if answer.strip() in accepted else "the typed text does not confirm it"


def _accepted_answers(request: ActRequest, confirm: Confirmation) -> tuple[str, ...] | None:
    """Return the accepted answers; None: the count is unknown. An empty phrase is never accepted."""
    match confirm.level, confirm.text:
        case "ack", _:
            return ("y", "yes")
        case "yes", _:
            return ("yes",)
        case _, "target":
            return (request.target,)
        case _, "name" if request.object_name:
            return (request.object_name,)
        case _, "count" | "name":
            return None if request.count is None else (str(request.count),)
        case _, phrase:
            return (phrase,) if phrase else ()


_encode = msgspec.json.Encoder(order="deterministic").encode


def _encode_rows(rows: tuple[dict[str, Any], ...], key: Sequence[str]) -> set[bytes]:
    """Return the rows in a form that compares equal before and after storing."""
    return {_encode({name: row[name] for name in row if not key or name in key}) for row in rows}
