"""The connection string as the monitor uses it: what the operator wrote, and the manners of a monitor added.

What decides who and where is never changed; what belongs to this connection alone (its name, its encoding) always is.
"""

from __future__ import annotations

from collections.abc import Mapping

APPLICATION = "dba-console"

_ALWAYS = {"application_name": APPLICATION, "client_encoding": "SQL_ASCII"}
_UNLESS_SET = {
    # A peer that vanished is noticed after about 25 s, also while we wait for its answer.
    "keepalives": "1", "keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}  # fmt: skip


def monitor_conninfo(given: Mapping[str, str], **overrides: str) -> str:
    """Keyword/value string for libpq from the options in `given`.

    >>> monitor_conninfo({"host": "db1", "keepalives_idle": "3", "password": "it's"}).split(" keepalives=")[0]
    "host='db1' keepalives_idle='3' password='it\\\\'s' application_name='dba-console' client_encoding='SQL_ASCII'"
    """
    missing = {key: value for key, value in _UNLESS_SET.items() if key not in given}
    merged = {**given, **_ALWAYS, **missing, **overrides}
    return " ".join(f"{key}={_quoted(value)}" for key, value in merged.items())


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
