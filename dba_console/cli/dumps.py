"""`dba-console dumps`: find the number of jobs, estimate the size of a dump, list, verify, create foreign keys.

Results go to stdout, as text or as one JSON object; progress goes to stderr if it is a terminal. Each command loads its
own modules: a restore waits for those it calls, and only some need the driver.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from dba_console.cli.config_file import load_config
from dba_console.cli.error_handling import interrupted_by_signals
from dba_console.cli.formatting import format_columns, print_json
from dba_console.cli.options import Dsn, Json, new_app
from dba_console.cli.stderr import print_diagnostic
from dba_console.cli.stdout import put
from dba_console.cli.target_resolution import resolve_target
from dba_console.core.errors import ConsoleError, ExitCode, UsageError
from dba_console.core.target import Target, make_target
from dba_console.core.units import human_duration, parse_duration
from dba_console.jobs.tools.job_count_results import (
    HEAD,
    MAX_JOBS,
    NOWHERE,
    NUMBER_COLUMNS,
    WINDOW_S,
    SweepResult,
    conclusion_lines,
    load_result,
    save_result,
    sweep_table,
)

_SERVER_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE")

app = new_app("Dumps: find the right number of jobs, estimate, list, verify.")

To = Annotated[
    str, typer.Option("--to", metavar="DIR", help="Directory for the trial dumps, or `nowhere`: not stored.")
]
Bindir = Annotated[
    str | None, typer.Option("--bindir", metavar="DIR", help="Directory of pg_dump and pg_restore; default: PATH.")
]
Plain = Annotated[bool, typer.Option("--plain", help="Print the number only; nothing if no sweep is stored.")]


@app.command("sweep")
def sweep_command(
    dsn: Dsn = None,
    to: To = NOWHERE,
    share: Annotated[
        str, typer.Option("--share", metavar="PCT", help="Percentage of the data: biggest tables, sample of the rest.")
    ] = "100%",
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, max=MAX_JOBS, help="Maximum jobs to try.", show_default=False)
    ] = None,
    window: Annotated[
        str, typer.Option("--window", metavar="TIME", help="Stop a trial after this time.")
    ] = f"{WINDOW_S:.0f}s",
    compress: Annotated[
        str | None, typer.Option("--compress", "-Z", metavar="HOW", help="As for pg_dump -Z.", show_default=False)
    ] = None,
    nice: Annotated[int, typer.Option("--nice", min=0, max=19, help="Niceness of the trials; 0: normal.")] = 10,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Read from disk each time: evicts the tables from the page cache.")
    ] = False,
    bindir: Bindir = None,
    json: Json = False,
) -> int:
    """Find the lowest number of jobs that reaches the full speed, by trial dumps.

    The result is stored; `dumps jobs` shows it.
    """
    from dba_console.jobs.tools.job_count_sweep import SweepOptions, sweep

    sweep_options = SweepOptions(
        to=to,
        share=_parse_share(share),
        max_jobs=jobs,
        window_s=_parse_window(window),
        compression=compress,
        niceness=nice,
        evict_cache=fresh,
        bindir=bindir,
    )
    target = _target(dsn)
    with interrupted_by_signals():
        result = sweep(target, sweep_options, _progress_reporter())
    warning = _save(target, result)
    _print_result(result, as_json=json)
    if warning:
        print_diagnostic(warning)
    return ExitCode.OK


@app.command("jobs")
def jobs_command(dsn: Dsn = None, plain: Plain = False, json: Json = False) -> int:
    """Show the result of the last sweep of this database, with its table."""
    target = _target(dsn)
    result = load_result(target.key)
    if plain:
        if result is not None:
            put(str(result.jobs))
        return ExitCode.OK
    if result is None:
        raise UsageError(f"no sweep of {target.name} is stored", hint="run `dba-console dumps sweep`")
    _print_result(result, as_json=json)
    return ExitCode.OK


def _print_result(result: SweepResult, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(result))
        return
    put(format_columns(HEAD, sweep_table(result), right=NUMBER_COLUMNS))
    put("")
    put("\n".join(conclusion_lines(result)))


def _save(target: Target, result: SweepResult) -> str | None:
    """Store the result. Returns a warning if that failed; the result is shown anyway."""
    try:
        save_result(target.key, result)
    except (OSError, ConsoleError) as error:
        return f"warning: cannot store the result: {error}"
    return None


def _progress_reporter() -> Callable[[str, bool], None]:
    """Return the progress printer: lines on stderr, and on a terminal also texts that the next one replaces."""
    live = sys.stderr.isatty()
    clear = "\r\x1b[K" if live else ""

    def report(text: str, replaced: bool) -> None:
        if not replaced:
            print_diagnostic(clear + text)
        elif live:
            sys.stderr.write(clear + text)
            sys.stderr.flush()

    return report


def _target(dsn: str | None) -> Target:
    """Return the target. A server in libpq's environment has precedence over the configured default, because runbooks
    name their server there."""
    if dsn is None and any(os.environ.get(name) for name in _SERVER_VARIABLES):
        return make_target("")
    return resolve_target(dsn, load_config())


def _parse_share(text: str) -> float:
    try:
        value = float(text.strip().rstrip("%")) / 100
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise UsageError(f"not a percentage from 0 to 100: {text!r}", hint="as in --share 25%")
    return value


def _parse_window(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 1:
        raise UsageError(f"a trial of {human_duration(seconds)} is too short", hint="the minimum is --window 1s")
    return seconds


@app.command("estimate")
def estimate_command(
    dsn: Dsn = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="DIR", help="Directory for the dump.", show_default=False)
    ] = None,
    number: Annotated[bool, typer.Option("--bytes", help="Print one number: the bytes needed at most.")] = False,
    json: Json = False,
) -> int:
    """Estimate the size of a dump, and whether it fits there. Exit code 7: it does not fit."""
    from dba_console.jobs.tools.server_connection import open_server
    from dba_console.jobs.tools.size_estimate import estimate_dump_size, estimate_lines

    target = _target(dsn)
    with open_server(target.conninfo) as server:
        found = estimate_dump_size(server, target, None if to is None else Path(to).absolute())
    if json:
        print_json(msgspec.to_builtins(found))
    elif number:
        put(str(found.at_most_bytes))
    else:
        put("\n".join(estimate_lines(found)))
    return ExitCode.RUNBOOK_FAILED if found.fits is False else ExitCode.OK


Archive = Annotated[Path, typer.Argument(metavar="ARCHIVE", help="Directory or file of a dump.", show_default=False)]


@app.command("list")
def list_command(archive: Archive, json: Json = False) -> int:
    """List an archive: objects, sizes, phases, what delays a restore. Exit code 7: something is missing."""
    from dba_console.core.units import human_bytes
    from dba_console.jobs.tools.archive_listing import listing_lines, read_listing

    found = read_listing(archive.absolute())
    if json:
        print_json(msgspec.to_builtins(found))
    else:
        put("\n".join(listing_lines(found)))
        if found.biggest:
            put("")
            put(
                format_columns(
                    ("table", "size"), [(name, human_bytes(size)) for name, size in found.biggest], right=(1,)
                )
            )
    return ExitCode.RUNBOOK_FAILED if found.problems else ExitCode.OK


@app.command("verify")
def verify_command(
    archive: Archive,
    sample: Annotated[
        int, typer.Option("--sample", min=0, metavar="N", help="Number of tables to compare with the database.")
    ] = 0,
    dsn: Annotated[
        str | None, typer.Option("--dsn", metavar="DSN", help="The database to compare with.", show_default=False)
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Seed of an earlier choice of tables.", show_default=False)
    ] = None,
    bindir: Bindir = None,
    json: Json = False,
) -> int:
    """Read an archive to its end, and compare the rows of some tables. Exit code 7: the archive is not reliable."""
    from dba_console.jobs.tools.server_connection import open_server
    from dba_console.jobs.tools.verify_archive import result_lines, verify_archive

    report = _progress_reporter()
    with ExitStack() as stack:
        server = stack.enter_context(open_server(_target(dsn).conninfo)) if sample else None
        found = verify_archive(
            archive.absolute(), server, sample, seed, bindir=bindir, report=lambda text: report(text, True)
        )
    report("", True)
    if json:
        print_json({**msgspec.to_builtins(found), "good": found.good})
    else:
        put("\n".join(result_lines(found)))
    return ExitCode.OK if found.good else ExitCode.RUNBOOK_FAILED


@app.command("keys")
def keys_command(
    archive: Archive,
    dsn: Annotated[
        str | None, typer.Option("--dsn", metavar="DSN", help="The database to create them in.", show_default=False)
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=MAX_JOBS, help="Keys validated at once.")] = 2,
    without: Annotated[
        bool, typer.Option("--list", help="Print a list for pg_restore -L: everything but the foreign keys.")
    ] = False,
    bindir: Bindir = None,
    json: Json = False,
) -> int:
    """Create the foreign keys of an archive in parallel, after the restore.

    Exit code 7: some failed. pg_restore validates keys that reference the same table one after the other. Leave them
    out with `--list`, restore, ANALYZE, then run this command.
    """
    if without:
        from dba_console.jobs.tools.client_programs import list_without_keys

        put(list_without_keys(archive.absolute(), bindir))
        return ExitCode.OK
    from dba_console.jobs.tools.create_foreign_keys import create_keys

    with interrupted_by_signals():
        result = create_keys(archive.absolute(), _target(dsn).conninfo, jobs, bindir=bindir, report=print_diagnostic)
    if json:
        print_json(msgspec.to_builtins(result))
    else:
        put(f"{result.keys} foreign keys, {result.valid} valid, {result.there} existed before; {result.errors} errors")
    return ExitCode.RUNBOOK_FAILED if result.errors else ExitCode.OK
