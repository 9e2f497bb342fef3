"""Decodes pg.server: what its queries read, and facts about this connection. Loaded by the probe only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import Struct, structs

from dba_console.core.redact import redact
from dba_console.watch.probes.postgres.binary_results import ResultRows
from dba_console.watch.probes.postgres.connection import MonitorConnection
from dba_console.watch.probes.postgres.row_decoder import decode_columns, decode_rows
from dba_console.watch.samples.postgres import Database, Role, Server, Setting

S = TypeVar("S", bound=Struct)


def server_of(rows: Mapping[str, ResultRows], connection: MonitorConnection) -> Server:
    """Return the reading. `rows` by query; only `server` is required, the others may have been refused."""
    hello, locality, codec = connection.hello, connection.locality, connection.names.codec

    def columns(query: str) -> dict[str, Any]:
        return decode_columns(rows[query], codec) if query in rows else {}

    def records(query: str, kind: type[S]) -> list[S]:
        return decode_rows(rows[query], kind, codec) if query in rows else []

    only_rows = columns("server") | columns("control")
    settings = [structs.replace(row, value=redact(row.value)) for row in records("settings", Setting)]
    fields = {"system_identifier": None, "timeline": None} | {name: value for name, (value,) in only_rows.items()}
    return Server(
        **fields,
        version_num=hello.version_num,
        current_user=hello.user,
        database=connection.names.own_name,
        superuser=hello.superuser,
        backend_pid=hello.backend_pid,
        data_directory=next((setting.value for setting in settings if setting.name == "data_directory"), None),
        settings=settings,
        databases=records("databases", Database),
        roles=records("roles", Role),
        tablespaces=dict(zip(*columns("tablespaces").values(), strict=True)),
        extensions=list(columns("extensions").get("name", ())),
        seat=hello.seat,
        through=connection.through,
        local=locality.local,
        local_note=locality.note,
        reset_role=hello.reset_role,
    )
