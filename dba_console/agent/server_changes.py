"""What changed between two readings of the server, told as events' sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.redact import redact
from dba_console.samples.postgres import Server

_IGNORED_SETTINGS = frozenset({"transaction_read_only", "in_hot_standby", "application_name"})
"""Settings that change with the connection or are told otherwise."""


def server_changes(before: Server, after: Server) -> Iterator[str]:
    """One sentence per change worth remembering: identity, role, version, restart, settings."""
    if before.system_identifier and after.system_identifier and before.system_identifier != after.system_identifier:
        identifiers = f"{before.system_identifier} became {after.system_identifier}"
        yield f"another cluster answers now: system identifier {identifiers}"
    if before.version_num != after.version_num:
        yield f"server version changed from {before.version} to {after.version}"
    if before.start_us != after.start_us:
        yield "the server was restarted"
    if before.in_recovery != after.in_recovery:
        yield "the standby was promoted: it is a primary now" if before.in_recovery else "the primary became a standby"
    if before.timeline is not None and after.timeline is not None and before.timeline != after.timeline:
        yield f"timeline changed from {before.timeline} to {after.timeline}"
    yield from _setting_changes(before, after)


def _setting_changes(before: Server, after: Server) -> Iterator[str]:
    old = {setting.name: setting.value for setting in before.settings}
    new = {setting.name: setting.value for setting in after.settings}
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name] and name not in _IGNORED_SETTINGS:
            yield redact(f"setting {name} changed from {old[name] or 'empty'} to {new[name] or 'empty'}")


def connection_slot_text(server: Server) -> str:
    """What the console's own connection is, in the words of the connect event."""
    how = {
        "regular": "an ordinary slot",
        "reserved_role": "a slot of reserved_connections, for the ordinary ones are all taken",
        "superuser": "a slot of superuser_reserved_connections, for the ordinary ones are all taken",
    }.get(server.seat, server.seat)
    role = "standby" if server.in_recovery else "primary"
    through = f" through {server.through}" if server.through else ""
    return f"connected to PostgreSQL {server.version}, {role}, as {server.current_user}{through}: holds {how}"
