"""`session report --dumps`: the history saved by an agent, read without an agent."""

from __future__ import annotations

import msgspec

from dba_console.core.target import address_of, make_target
from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.archives.object_durations import RunPhase
from dba_console.jobs.history.kept_history import KeptHistory, KeptJob
from dba_console.jobs.history.run_statistics import JobRun
from tests.cli.console import Console
from tests.jobs import DAY_US, NOW_US

DSN = "host=/nowhere port=5999 dbname=app user=alice"


def write_history(console: Console, dsn: str = DSN) -> None:
    """A file as agents of a server keep it, and links to it of a target that was observed.

    Thirty nights, one of them with errors, and two restores.
    """
    nights = [
        JobRun(
            NOW_US - (31 - night) * DAY_US, 3600.0 + 60 * night, True, 2e6,
            size_bytes=100 << 30, bytes=40 << 30, format="directory", version="15.18", jobs=4, exit=0, errors=0,
            phases=(RunPhase("data", 3600.0, 14_000.0, 40 << 30),),
        )
        for night in range(30)
    ]  # fmt: skip
    nights.append(JobRun(NOW_US - DAY_US, 900.0, True, exit=1, errors=2, last_error='no table "a\nb"'))
    restores = [JobRun(NOW_US - day * DAY_US, 60.0, False) for day in (2, 1)]
    jobs = [KeptJob("pg_dump", "app", "alice", 1, nights), KeptJob("pg_restore", "copy", None, 1, restores)]
    path = console.home / "state" / "dba-console" / "jobs" / "7001-5f0c.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(KeptHistory(NOW_US, jobs)))
    for name in (address_of(dsn, {}).key, address_of(dsn, {}).server):
        (path.parent / name).symlink_to(path.name)


def reported_runs(console: Console, dsn: str) -> list[int]:
    """The number of runs of each job in the report."""
    done = console.run("session", "report", "--dumps", "--target", dsn, "--json")
    assert done.code == 0, done.err
    return [len(job["runs"]) for job in done.objects()]


def test_every_job_is_shown_with_its_trend_and_the_day_it_outgrows_its_window(console: Console) -> None:
    write_history(console)
    console.write_config('[jobs]\nwindow = "9h"\n[jobs.windows]\n"pg_dump of app" = "2h"\n')
    done = console.run("session", "report", "--dumps", "--target", DSN)
    assert done.code == 0, done.err
    assert "pg_dump of app" in done.out and "pg_restore of copy" in done.out and "2 errors" in done.out
    assert "it exceeds its window of 2h00 from about 2026-12-" in done.out
    assert "not enough history: 2 runs over 1 day" in done.out and "unknown" in done.out
    again = console.run("session", "report", "--dumps", "--target", DSN, "--json", "--window", "1h")
    dump, restore = again.objects()
    assert dump["job"] == "pg_dump of app" and len(dump["runs"]) == 31 and dump["window"]["seconds"] == 7200.0
    assert dump["trend"]["verdict"] == "grows" and dump["window"]["outgrown_at"].startswith("2026-12-")
    assert dump["runs"][0]["phases"][0]["busy_s"] == 14_000.0 and dump["runs"][-1]["ending"] == "failed"
    assert restore["window"]["seconds"] == 3600.0 and restore["window"]["outgrown"] is None
    assert restore["usual_s"] is None and restore["runs"][0]["ending"] == "unknown"


def test_any_target_of_a_server_has_its_history(console: Console) -> None:
    write_history(console, DSN.replace("dbname=app", "dbname=postgres"))
    assert reported_runs(console, DSN) == reported_runs(console, DSN.replace("alice", "bob")) == [31, 2]
    assert reported_runs(console, DSN.replace("5999", "6000")) == []


def test_an_empty_history_is_reported_and_a_damaged_one_stays_in_place(console: Console) -> None:
    done = console.run("session", "report", "--dumps", "--target", DSN)
    assert done.code == 0 and "no dump or restore of this server is known" in done.out
    write_history(console)
    (path,) = (console.home / "state" / "dba-console" / "jobs").glob("*.json")
    path.write_text("{")
    assert "is not a valid job history" in console.run("session", "report", "--dumps", "--target", DSN).out
    assert path.read_text() == "{"
    refused = console.run("session", "report", "--dumps", "--window", "soon")
    assert refused.code == 2 and "not a duration" in refused.err and "Traceback" not in refused.err


def test_a_server_is_found_by_the_name_shown_on_the_screens(console: Console, cluster: Cluster) -> None:
    dsn = cluster.dsn()
    write_history(console, dsn)
    assert console.run("record", dsn, "--for", "2s").code == 0
    shown = make_target(dsn).name
    assert reported_runs(console, shown) == [31, 2]
    refused = console.run("session", "report", "--dumps", "--target", "nobody:5999")
    assert refused.code == 2 and "no target named 'nobody:5999'" in refused.err
