"""What the agents of one server keep is one history: all of it, nothing of another server, and no run twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from dba_console.core.target import address_of
from dba_console.jobs.history.history_files import (
    load_server_history,
    merge_histories,
    read_other_histories,
    save_history,
    select_server_histories,
)
from dba_console.jobs.history.job_history import KeptHistory, KeptJob, KeptServer, merge_runs
from dba_console.jobs.history.past_runs import MAX_RUNS, JobRun
from tests.jobs import DAY_US, NOW_US

SHOP = address_of("host=db1 dbname=shop user=ann", {})
NIGHTS = [JobRun(NOW_US - day * DAY_US, 3600.0, True, exit=0) for day in range(9, 0, -1)]


def kept(*runs: JobRun, until_us: int = NOW_US, server: KeptServer | None = None, since_us: int = 1) -> KeptHistory:
    """A file with one job."""
    return KeptHistory(until_us, [KeptJob("pg_dump", "crm", "backup", since_us, list(runs))], server=server)


def later(run: JobRun, seconds: float) -> JobRun:
    """The same run as another agent saw it."""
    return structs.replace(run, started_us=run.started_us + int(seconds * 1e6))


def test_a_run_that_two_agents_watched_is_one_and_tells_what_either_knows() -> None:
    seen = [structs.replace(later(run, 2.0), exit=None, seconds=3599.0) for run in NIGHTS[2:]]
    assert merge_runs(NIGHTS[:6], seen) == merge_runs(seen, NIGHTS[:6])
    runs = merge_runs(NIGHTS[:6], seen)
    assert [run.exit for run in runs] == [0] * 6 + [None] * 3
    assert [run.unbroken for run in runs] == [False] + [True] * 8
    assert merge_runs(runs, runs) == runs


def test_runs_of_a_job_that_ran_twice_at_once_stay_two() -> None:
    both = [NIGHTS[0], later(NIGHTS[0], 1.0)]
    assert len(merge_runs(both, [later(run, 0.5) for run in both])) == 2
    assert len(merge_runs(both, [])) == 2


def test_what_one_agent_alone_has_seen_is_not_taken_for_another_run() -> None:
    minutes = [JobRun(NOW_US + number * 60_000_000, 4.0, True) for number in range(10)]
    assert len(merge_runs(minutes[:5], minutes[5:])) == 10
    assert len(merge_runs(minutes[::2], minutes[1::2])) == 10


def test_no_more_is_kept_than_before_and_the_newest_of_it() -> None:
    runs = [JobRun(NOW_US + number * DAY_US, 3600.0, True) for number in range(MAX_RUNS + 10)]
    assert merge_runs(runs[:MAX_RUNS], runs[10:])[0].started_us == runs[10].started_us


def test_a_distance_to_a_run_that_the_agent_did_not_know_of_is_not_known() -> None:
    (_, second) = merge_runs(NIGHTS[:1], NIGHTS[4:5])
    assert not second.unbroken


def test_files_are_of_one_server_by_address_or_by_the_cluster_on_this_host() -> None:
    here = KeptServer("socket", "7001", "/data")
    of = {
        "address": KeptServer("socket", "7001"),
        "not told": KeptServer("socket"),
        "same directory": KeptServer("localhost", "7001", "/data"),
        "behind the pooler": KeptServer("socket", "7002"),
        "standby": KeptServer("other", "7001", "/standby"),
        "made anew": KeptServer("other", "7003", "/data"),
        "elsewhere": KeptServer("db2", "7001"),
    }
    files = [(name, kept(server=server)) for name, server in of.items()]
    found = select_server_histories(files, here, None)
    assert [name for name, one in files if one in found] == ["address", "not told", "same directory"]


def test_a_target_that_was_never_watched_goes_by_the_server_seen_last_at_its_address() -> None:
    old, new = KeptServer(SHOP.server, "1"), KeptServer(SHOP.server, "2")
    files = [("a", kept(until_us=NOW_US - DAY_US, server=old)), ("b", kept(server=new))]
    assert select_server_histories(files, None, SHOP) == [files[1][1]]


@pytest.mark.parametrize(
    ("dsn", "found"),
    [
        ("host=db1 dbname=postgres user=ann", True),
        ("host=db1 dbname=crm user=backup", True),
        ("host=db1 dbname=backup user=backup", True),
        ("host=db1 user=postgres", True),
        ("host=db2 dbname=postgres user=ann", False),
        ("host=db1 port=6432 dbname=postgres user=ann", False),
    ],
)
def test_what_was_kept_before_it_was_of_a_server_is_found_by_the_names_in_it(dsn: str, found: bool) -> None:
    files = [(address_of(dsn, {}).key, kept(*NIGHTS))]
    assert bool(select_server_histories(files, None, SHOP)) == found


def test_where_the_later_file_does_not_have_a_job_it_was_not_watched_in_between() -> None:
    day_before = NOW_US - DAY_US
    long_gone = merge_histories([kept(*NIGHTS, until_us=day_before), KeptHistory(NOW_US, [])])
    just_now = merge_histories([kept(*NIGHTS, until_us=NOW_US - 1), KeptHistory(NOW_US, [])])
    assert long_gone is not None and just_now is not None
    assert long_gone.jobs[0].watched_since_us == NOW_US and just_now.jobs[0].watched_since_us == 1
    both = merge_histories([kept(*NIGHTS, until_us=day_before), kept(NIGHTS[-1], since_us=77)])
    assert both is not None and both.jobs[0].watched_since_us == 77 and len(both.jobs[0].runs) == len(NIGHTS)


def test_an_agent_begins_with_what_the_others_kept_and_is_not_hindered_by_a_damaged_file(tmp_path: Path) -> None:
    directory, server = tmp_path / "state" / "jobs", KeptServer(SHOP.server, "1")
    own = directory / f"{SHOP.key}.json"
    assert load_server_history(own, server, SHOP) is None
    save_history(directory / "other.json", kept(*NIGHTS, server=server))
    (directory / "damaged.json").write_bytes(b"{")
    begun = load_server_history(own, server, SHOP)
    assert begun is not None and begun.jobs[0].runs == NIGHTS
    assert [text.count("damaged.json") for text in read_other_histories(own, server, SHOP).unread] == [1]
    assert (directory / "damaged.json").exists(), "its own agent puts it aside"
