"""The action primaries-compare: the numbers of two primaries of one cluster, to decide which one loses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct, structs

from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.identity import PRIMARY
from dba_console.clusters.cluster_check import parse_lsn
from dba_console.clusters.local_standby import LocalStandbySettings, connect_primary
from dba_console.core.errors import Refused
from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes

BETWEEN_S = 5.0
"""Between the two readings: a server that is written to moves in it."""
_FACTS = """
SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int4 AS timeline,
       pg_current_wal_lsn()::text AS lsn, pg_snapshot_xmax(pg_current_snapshot())::text AS next_xid,
       date_trunc('second', pg_postmaster_start_time())::text AS started,
       (SELECT count(*) FROM pg_stat_activity
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()) AS clients,
       (SELECT count(*) FROM pg_stat_activity
         WHERE backend_type = 'client backend' AND backend_xid IS NOT NULL) AS writing,
       (SELECT string_agg(application_name || ' ' || state, ', ') FROM pg_stat_replication) AS standbys,
       (SELECT last_archived_wal FROM pg_stat_archiver) AS archived
"""


class CompareSettings(LocalStandbySettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    here: str
    """Connection string of the primary on this host, likewise."""


class ComparePrimaries(Action):
    name: ClassVar[str] = "primaries-compare"
    summary: ClassVar[str] = (
        "Reads two primaries of one cluster twice, five seconds apart: timeline, position, how far it moved, clients, "
        "standbys, archive. It only reads. Refused if they are not two primaries of one cluster."
    )
    Settings: ClassVar[type[Struct]] = CompareSettings
    needs_server: ClassVar[bool] = False
    acts_on_cluster: ClassVar[bool] = True
    no_undo: ClassVar[str] = "it only reads"

    def preview(self, settings: CompareSettings, context: ActionContext) -> ActionPreview:
        here, other = (_identity(side, context) for side in _sides(settings))
        refusal = None
        if None in (here.system_identifier, other.system_identifier):
            refusal = "a role may not read the system identifier: use a superuser"
        elif here.system_identifier != other.system_identifier:
            refusal = f"two clusters: system identifiers {here.system_identifier} and {other.system_identifier}"
        elif (here.server_start_us, here.port) == (other.server_start_us, other.port):
            refusal = "both connection strings lead to the same server"
        elif here.role != PRIMARY or other.role != PRIMARY:
            refusal = f"the server here is a {here.role}, the other one a {other.role}: there are not two primaries"
        return ActionPreview(
            text=clean(f"Here: {here.describe()}. Other: {other.describe()}"),
            exact="two readings of each, five seconds apart",
            refusal=refusal,
        )

    def act(
        self, settings: CompareSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        first = [_facts(side, context) for side in _sides(settings)]
        control.report_progress("reading both again in five seconds")
        control.wait(BETWEEN_S)
        second = [_facts(side, context) for side in _sides(settings)]
        texts = [_text(*pair) for pair in zip(("here", "other"), first, second, strict=True)]
        values = {f"{name}_{key}": facts[key] for name, facts in zip(("here", "other"), second, strict=True)
                  for key in ("timeline", "lsn", "next_xid", "clients", "writing")}  # fmt: skip
        return ActionResult(state="ok", text=clean("; ".join(texts)), values=values)

    def settle(self, settings: CompareSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        return ActionResult(state="failed", text="it only reads: repeat it", again=True)


def _sides(settings: CompareSettings) -> tuple[LocalStandbySettings, LocalStandbySettings]:
    return structs.replace(settings, primary=settings.here), settings


def _identity(side: LocalStandbySettings, context: ActionContext) -> Any:
    with connect_primary(side, context) as connection:
        return connection.read_identity()


def _facts(side: LocalStandbySettings, context: ActionContext) -> dict[str, Any]:
    with connect_primary(side, context) as connection:
        if connection.read_identity().role != PRIMARY:
            raise Refused("one of the servers is not a primary any more", hint="begin again")
        [row] = connection.rows(_FACTS)
        return row


def _text(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    moved, ids = parse_lsn(now["lsn"]) - parse_lsn(before["lsn"]), int(now["next_xid"]) - int(before["next_xid"])
    return (
        f"{name}: timeline {now['timeline']} at {now['lsn']}, {human_bytes(moved)} of WAL and {ids} transaction IDs in "
        f"five seconds, next ID {now['next_xid']}, started {now['started']}, clients {now['clients']}, of them writing "
        f"{now['writing']}, standbys {now['standbys'] or 'none'}, last archived "
        f"{now['archived'] or 'none'}"
    )
