"""The two small languages a cluster is told things in: postgresql.conf and libpq's connection string."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dba_console.demo.server_account import Account

Settings = Mapping[str, str | int]
_OWN_FILE = "dba_console.conf"


def write_settings(data_directory: Path, settings: Settings, account: Account) -> None:
    """Make `settings` the server's, from its next start or reload on. initdb's own file stays, and includes ours."""
    path = data_directory / _OWN_FILE
    path.write_text("".join(f"{name} = {_conf_value(str(value))}\n" for name, value in settings.items()))
    account.chown(path)
    main = data_directory / "postgresql.conf"
    line = f"include '{_OWN_FILE}'\n"
    if line not in main.read_text():
        with main.open("a") as file:
            file.write(line)


def conninfo(values: Mapping[str, str | int]) -> str:
    r"""A keyword/value connection string, quoted where it has to be.

    >>> print(conninfo({"host": "/tmp/a", "user": "it's", "dbname": ""}))
    host=/tmp/a user='it\'s' dbname=''
    """
    return " ".join(f"{key}={_libpq_value(str(value))}" for key, value in values.items())


def _conf_value(value: str) -> str:
    r"""
    >>> print(_conf_value(r"a'b\c"))
    'a''b\\c'
    """
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def _libpq_value(value: str) -> str:
    if value and not any(sign in value for sign in " '\\"):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
