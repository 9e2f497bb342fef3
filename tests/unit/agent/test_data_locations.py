"""Where things lie is said as far as the server says it, and nothing is made up."""

from __future__ import annotations

from msgspec import structs

from dba_console.agent.host_service import archive_directory, find_data_locations
from dba_console.watch.samples.postgres import Server, Setting

SERVER = Server(
    version_num=150004, version="15.4", system_identifier="1", in_recovery=False, timeline=1, start_us=0, now_us=0,
    current_user="m", database="d", superuser=False, pg_monitor=True, signal_backend=False, reserved_member=False,
    backend_pid=1, server_address=None, server_port=5432, data_directory="/data",
    settings=[Setting("log_directory", "log", None, "default"),
              Setting("archive_command", "test ! -f /backup/wal/%f && cp %p /backup/wal/%f", None, "file"),
              Setting("temp_tablespaces", "fast", None, "file")],
    databases=[], roles=[], tablespaces={"fast": "/ssd/temp", "big": "/big"},
)  # fmt: skip


def test_every_server_file_has_its_path() -> None:
    assert find_data_locations(SERVER, "/data", "/sessions/1") == {
        "session": "/sessions/1",
        "data": "/data",
        "wal": "/data/pg_wal",
        "temp": "/ssd/temp",
        "log": "/data/log",
        "archive": "/backup/wal",
        "tablespace:fast": "/ssd/temp",
        "tablespace:big": "/big",
    }


def test_an_absolute_log_directory_is_used_as_it_is() -> None:
    server = structs.replace(SERVER, settings=[Setting("log_directory", "/var/log/pg", None, "file")])
    assert find_data_locations(server, "/data", None)["log"] == "/var/log/pg"


def test_without_the_data_directory_only_the_session_is_known() -> None:
    assert find_data_locations(SERVER, None, "/sessions/1") == {"session": "/sessions/1"}


def test_an_archive_command_that_runs_a_program_names_no_directory() -> None:
    assert archive_directory("pgbackrest --stanza=main archive-push %p") is None
    assert archive_directory('cp "%p" "/mnt/arch/%f"') == "/mnt/arch"
