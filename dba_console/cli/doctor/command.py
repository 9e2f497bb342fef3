"""`dba-console doctor`: gather the facts once, run every check on them, and print the report."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import msgspec

from dba_console.cli.config_file import LoadedConfig, load_config, sessions_directory
from dba_console.cli.doctor.check import DoctorCheck, exit_code, report_text, unknown
from dba_console.cli.doctor.host import HOST, check_files, check_host, check_server, check_sessions, check_tools
from dba_console.cli.doctor.terminal import check_terminal, terminal_facts
from dba_console.cli.formatting import print_json
from dba_console.cli.live_source import first_view, open_live
from dba_console.cli.options import Dsn, Json, new_app
from dba_console.cli.sessions_directory_check import mount_of, unwritable_reason
from dba_console.cli.stdout import put
from dba_console.cli.target_resolution import resolve_target
from dba_console.core.paths import runtime_dir, state_dir
from dba_console.core.target import Target
from dba_console.core.units import parse_size
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.host import Mounts
from dba_console.watch.samples.postgres import Server

app = new_app("Check what works on this host, what does not, its impact, and how to fix it.")


@app.command()
def doctor(dsn: Dsn = None, json: Json = False) -> int:
    """Check what works on this host, what does not, its impact, and how to fix it.

    Exit code 0 without critical warnings, 3 if the server cannot be reached, 6 if nothing can be recorded.
    """
    loaded = load_config()
    return run_doctor(resolve_target(dsn, loaded), loaded, as_json=json)


def run_doctor(target: Target, loaded: LoadedConfig, *, as_json: bool) -> int:
    """Run all checks and print the report; returns the exit code."""
    with open_live(target, loaded.config) as live:
        picture = first_view(live).picture
        source = live.source
    checks = list(all_checks(picture, loaded))
    if as_json:
        for check in checks:
            print_json({**msgspec.to_builtins(check), "critical": check.critical is not None})
    else:
        put(report_text(checks, target.name, source))
    return exit_code(checks)


def all_checks(picture: Picture, loaded: LoadedConfig) -> Iterator[DoctorCheck]:
    """Yield every check on the current facts."""
    latest = picture.latest.get("pg.server")
    connected = latest is not None and latest.part.reading is not None
    yield from check_server(
        picture.now("pg.server", Server) if connected else None, latest.part.note if latest else None
    )
    yield from _host_checks(picture)
    yield from check_terminal(terminal_facts())
    yield from check_tools(shutil.which)
    yield from check_files(
        loaded.file, loaded.config.runbooks.path, (sessions_directory(loaded.config), state_dir(), runtime_dir())
    )
    yield from _session_checks(loaded, picture.now("host.mounts", Mounts))


def _session_checks(loaded: LoadedConfig, mounts: Mounts | None) -> Iterator[DoctorCheck]:
    directory = sessions_directory(loaded.config)
    keep_bytes = parse_size(loaded.config.recording.max_size)
    locations_known = mounts is not None and "data" in mounts.paths
    mount = mount_of(directory, mounts)
    yield from check_sessions(
        str(directory), unwritable_reason(directory), mount, keep_bytes, locations_known=locations_known
    )


def _host_checks(picture: Picture) -> Iterator[DoctorCheck]:
    cpu = picture.latest.get("host.cpu")
    if cpu is not None and cpu.part.reading is None:
        # The panels of this host are off for a remote server, so its checks are skipped too.
        yield unknown(HOST, "host", cpu.part.note or "this is not known to be the server's host")
    else:
        yield from check_host(picture, euid=os.geteuid())
