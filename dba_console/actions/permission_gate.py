"""The gate all changes pass: may it be done here, is this the server, is the world as it was shown, was it confirmed?

Whoever acts asks `authorize` first and acts on what the permit holds, on nothing else. A refusal changes nothing and
says what would have to be otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from dba_console.actions.acting_connection import refuse_other_server
from dba_console.actions.action import ActionPreview
from dba_console.actions.connection_api import ServerConnection
from dba_console.actions.identity import HostIdentity, ServerIdentity, host_identity, host_mismatch
from dba_console.actions.policy import policy_refusal
from dba_console.actions.registry import ACTIONS
from dba_console.core.config import ActionsConfig
from dba_console.core.errors import Refused
from dba_console.recording.plan import Confirmation


class ActRequest(Struct, frozen=True, kw_only=True):
    """What somebody is about to do."""

    kind: Literal["action", "change", "run"]
    target: str
    """Name of the target, as it has to be typed."""
    action: str = ""
    confirm: Confirmation | None = None
    answer: str | None = None
    """What the operator typed; None where nobody was asked."""
    confirmed_by: tuple[str, ...] = ()
    """Who confirmed."""
    count: int | None = None
    """Things it acts on, as they were shown; what `type:count` asks for."""
    object_name: str = ""
    """The one thing it acts on, as it was shown; what `type:name` asks for."""
    undo: bool = False
    """It takes something back: the question about the undo was its confirmation."""
    server: bool = True
    """It acts on the server, or by way of it."""
    host: bool = False
    """It acts on this host."""
    cluster: bool = False
    """It acts on nodes of a cluster, each by a connection of its own, from the host the run was begun on."""

    @property
    def name(self) -> str:
        """As the policy calls it."""
        return self.action or self.kind


class PlannedTarget(Struct, frozen=True, kw_only=True):
    """What the run was begun on, as its journal has it."""

    server: ServerIdentity | None = None
    """None: a run without a server."""
    host: HostIdentity | None = None


class CurrentTarget(Struct, frozen=True, kw_only=True):
    """Where it would be done now."""

    connection: ServerConnection | None = None
    server_is_local: bool = True
    """The server of the run is proven to run on this host, or the run has none."""
    config: ActionsConfig = field(default_factory=ActionsConfig)
    read_only: str = ""
    """Name of the target it would act on that the configuration calls read-only."""


class Permit(Struct, frozen=True, kw_only=True):
    """It may be done, to this."""

    server: ServerIdentity | None = None
    host: HostIdentity | None = None
    preview: ActionPreview | None = None
    """The fresh look, which is what has to be acted on."""


def authorize(
    request: ActRequest,
    planned: PlannedTarget,
    current: CurrentTarget,
    *,
    look: Callable[[], ActionPreview] | None = None,
    shown: ActionPreview | None = None,
    proc: str = "/proc",
) -> Permit:
    """The permit, or Refused. `look` and `shown` belong to an action: what it sees now, and what was shown to whoever
    confirmed it.

    Restarted is a refusal that may be lifted: whoever hears from the operator that the restart was meant takes the
    identity of now for the planned one, and asks again. Raises ConnectError where the server cannot be asked.
    """
    if message := policy_refusal(current.config, request.name, list(ACTIONS), read_only=current.read_only):
        raise Refused(message)
    server = _check_server(request, planned, current)
    host = _check_host(request, planned, current, proc)
    preview = None if look is None else look()
    if preview is not None:
        acting = ACTIONS[request.action]
        may_shrink, key = getattr(acting, "may_shrink", False), getattr(acting, "row_key", ())
        refuse_changed(preview, shown, may_shrink=may_shrink, key=key, undo=request.undo)
    if message := confirmation_refusal(request, destructive=preview is not None and preview.destructive):
        raise Refused(message, hint="the default is No: nothing was done")
    return Permit(server=server, host=host, preview=preview)


def _check_server(request: ActRequest, planned: PlannedTarget, current: CurrentTarget) -> ServerIdentity | None:
    if not request.server:
        return None
    if current.connection is None or planned.server is None:
        raise Refused(
            "it would act on a server, and this run was begun without one", hint="begin it anew with --dsn DSN"
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
            "it is not known on which host the run was begun: its first records are missing",
            hint="nothing was done; begin a run anew",
        )
    # A cluster's nodes are what they were before this host was booted, and the run's journal is on its disk.
    known = planned.host if request.host else msgspec.structs.replace(planned.host, boot_id=now.boot_id)
    if message := host_mismatch(known, now):
        raise Refused(message, hint="nothing was done; begin a run anew on the host that is meant")
    if request.host and not current.server_is_local:
        raise Refused(
            f"it would act on this host, {now.name}, and {request.target} is not proven to run here",
            hint="run it on the server's own host; host_panels = true says that this is it",
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
    """Raises Refused where an action would not do what was shown, and nothing but that.

    A set that has only lost members passes where the action says that the rest is still meant. `key` are the columns
    that name a member, where others only tell of it.
    """
    if now.refusal is not None:
        raise Refused(now.refusal, hint=now.hint)
    if now.done or undo:
        return
    if shown is None:
        raise Refused("nobody was shown what would be done")
    before, after = _encode_rows(shown.rows, key), _encode_rows(now.rows, key)
    if grown := after - before:
        raise Refused(
            f"{len(grown)} of {len(after)} it would act on were not there when it was confirmed",
            hint="look again, and confirm what is there now",
        )
    shrunk = len(before - after)
    if shrunk and not may_shrink:
        raise Refused(
            f"{shrunk} of {len(before)} it was confirmed for are there no more, or have changed",
            hint="look again, and confirm what is there now",
        )
    if not shrunk and now.exact != shown.exact:
        raise Refused(f"it would do something else than was shown: {now.exact}", hint=f"shown was: {shown.exact}")


def confirmation_refusal(request: ActRequest, *, destructive: bool = False) -> str | None:
    """Why what was typed is no confirmation of this; None where it is one. What is grave takes words that are typed."""
    confirm, answer = request.confirm, request.answer
    if request.undo:
        return None
    if confirm is None:
        return None if request.kind == "run" else f"{request.name} has no confirmation, and nothing acts without one"
    if destructive and confirm.level != "type":
        return f"{request.name} would do what can cost everything, and nobody was asked to type words for it"
    if answer is None:
        return "nobody has confirmed it"
    if len(set(request.confirmed_by)) < confirm.people:
        return f"it takes {confirm.people} people to confirm it, and {len(set(request.confirmed_by))} did"
    accepted = _accepted_answers(request, confirm)
    if accepted is None:
        return "how many things it acts on is not known, so their number cannot have been confirmed"
    return None if answer.strip() in accepted else "what was typed does not confirm it"


def _accepted_answers(request: ActRequest, confirm: Confirmation) -> tuple[str, ...] | None:
    """What may be typed. An empty phrase can never be."""
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
    """Rows as they compare, whether or not they have been written down and read back."""
    return {_encode({name: row[name] for name in row if not key or name in key}) for row in rows}
