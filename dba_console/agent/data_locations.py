"""Where PostgreSQL keeps things, as far as the server and the recording say. Pure."""

from __future__ import annotations

import os

from dba_console.samples.postgres import Server


def find_data_locations(server: Server | None, data_directory: str | None, session: str | None) -> dict[str, str]:
    """What -> path: data, wal, temp, log, archive, session, `tablespace:NAME`. Only what is known.

    pg_wal may be a symbolic link: it is followed by who asks for its file system. Temporary files lie in the data
    directory unless temp_tablespaces says otherwise.
    """
    known: dict[str, str] = {}
    if session is not None:
        known["session"] = session
    if data_directory is None:
        return known
    known["data"] = data_directory
    known["wal"] = os.path.join(data_directory, "pg_wal")
    known["temp"] = os.path.join(data_directory, "base")
    if server is None:
        return known
    settings = {setting.name: setting.value for setting in server.settings}
    for name, location in server.tablespaces.items():
        known[f"tablespace:{name}"] = location
    temporary = settings.get("temp_tablespaces", "").split(",")[0].strip().strip('"')
    if temporary in server.tablespaces:
        known["temp"] = server.tablespaces[temporary]
    if log := settings.get("log_directory"):
        known["log"] = os.path.join(data_directory, log)
    if archive := archive_directory(settings.get("archive_command", "")):
        known["archive"] = archive
    return known


def archive_directory(command: str) -> str | None:
    """The directory an archive_command copies to, where it is plain to see (`cp %p /backup/wal/%f`), else None.

    >>> archive_directory("test ! -f /b/wal/%f && cp %p /b/wal/%f"), archive_directory("wal-g wal-push %p")
    ('/b/wal', None)
    """
    for word in reversed(command.replace('"', " ").replace("'", " ").split()):
        if word.startswith("/") and word.endswith("/%f"):
            return word[:-3]
    return None
