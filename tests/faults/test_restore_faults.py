"""Restores that go wrong, by a run and by somebody else: their end is told as it was, and no setting stays behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from psycopg import OperationalError

from dba_console.core.errors import ConsoleError
from dba_console.demo.cluster import Cluster
from tests.agent.job_observer import eyes, prepare
from tests.agent.test_jobs_followed import fresh, objects
from tests.background import session, wait_until
from tests.clusters import binaries_of
from tests.disks import loop_mounted
from tests.host.held_jobs import LIMIT_S, quoted
from tests.host.held_jobs import Ground as Watched
from tests.runbooks.dumps import HELD, Ground, ground, table_of, then
from tests.runbooks.runs import WAIT_S, Says
from tests.runbooks.test_restore import RESTORE, settings

pytestmark = pytest.mark.root
BOOK = "restore"
LEFT = 600_000
"""Bytes free for a restore of some megabytes."""
LATE = 772
WIDE = f"""
create function step(key integer) returns boolean language plpgsql as $$
begin perform pg_advisory_lock_shared(key); return pg_advisory_unlock_shared(key); end $$;
create table wide (
  i integer check (case i when 16000 then step(771) when 60000 then step({LATE}) else true end), filler text
);
insert into wide select i, repeat(md5(i::text), 4) from generate_series(1, 80000) i;
"""
"""13.7 MB, held up after 2.7 MB and after 10.2."""
WIDE_LEFT = 12_600_000
_WAITS = f"select 1 from pg_locks where locktype = 'advisory' and objid = {HELD} and not granted"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    directory: Path = tmp_path_factory.mktemp("watched")
    with Cluster(binaries_of(None), settings={"listen_addresses": "127.0.0.1"}, durable=False) as cluster:
        made = Watched(cluster, directory)
        prepare(made)
        yield made


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(tmp_path_factory.mktemp("run")) as made:
        yield made


@pytest.fixture(scope="module")
def archive(here: Ground) -> Path:
    return here.dumped("whole", "--format=directory", "--jobs=2")


def words(watched: Watched, target: str) -> str:
    """A restore for bash, which does not mind how it ends."""
    return quoted(watched.path("pg_restore"), "-j2", "-d", watched.dsn(target), "shop.d") + "; true"


def test_a_restore_whose_worker_was_killed_is_failed(watched: Watched) -> None:
    target = fresh(watched)
    with eyes(watched.cluster) as seen, watched.held(words(watched, target), 1, target) as held:
        job = seen.until(lambda job: "shop.lines_held" in objects(job, "running"), "its index")
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        held.let_go()
        event = seen.ended("pg_restore")
    assert event.details["ok"] is False
    assert "it failed: a worker process died unexpectedly" in event.text


def test_a_restore_that_ended_with_the_server_is_not_reported_as_successful(watched: Watched) -> None:
    target = fresh(watched)
    with eyes(watched.cluster) as seen:
        lost = pytest.raises(OperationalError)  # of the session that holds it up
        with lost, watched.held(words(watched, target), 1, target) as held:
            seen.until(lambda job: "shop.lines_held" in objects(job, "running"), "its index")
            watched.cluster.restart(mode="immediate")
            held.process.wait(LIMIT_S)
        event = seen.ended("pg_restore")
    assert event.details["ok"] is not True, event
    assert "it succeeded" not in event.text and "it ended, with" not in event.text, event


def test_settings_are_reverted_on_a_server_that_crashed_during_the_restore(here: Ground, archive: Path) -> None:
    """Nobody is asked; the run waits until it answers again, though it was started anew since."""
    before = settings(here)
    here.cluster.psql("create database crashed")
    crash = threading.Thread(target=lambda: crash_when_it_waits(here))
    with closing(session(here.cluster, dbname="crashed", name="dba-console:beside")) as holder:
        holder.execute(f"select pg_advisory_lock({HELD})")
        crash.start()
        walk = here.headless(BOOK, database="crashed", archive=str(archive), jobs="2", speed="fast", statistics="none")
    crash.join(WAIT_S)
    assert walk.code == 7 and "restore-it" not in walk.states(), walk.text
    assert RESTORE in walk.ending and "ended with errors" not in walk.ending
    assert walk.ending.endswith("; temporary settings reverted"), walk.ending
    wait_until(lambda: up(here), WAIT_S, what="the server after its crash")
    assert settings(here) == before


def test_a_full_disk_is_reported_with_the_objects_that_did_not_fit(here: Ground, archive: Path) -> None:
    before = settings(here)
    beside = here.cluster.base
    with loop_mounted(beside / "image", beside / "small", "24M") as place:
        give(here.cluster, place)
        here.cluster.psql(f"create tablespace small location '{place}/space'")
        here.cluster.psql('create database "too large" tablespace small')
        says: dict[str, Says] = {
            "start": "yes", RESTORE: then(lambda: leave(place), "y"), "choose": "stop", "failed": "abort",
            "undo": "none", "ack": "y",
        }  # fmt: skip
        walk = here.person(BOOK, says, database="too large", archive=str(archive), jobs="2", speed="fast")
        (place / "filler").unlink()
        here.cluster.psql('drop database "too large"')
        here.cluster.psql("drop tablespace small")
    assert walk.code == 7, walk.text
    told = [row[1] for row in table_of(walk, RESTORE) if row[0] == "error"]
    assert any("No space left on device" in one and "public.items_" in one for one in told), walk.text
    assert "stop-after-errors" in walk.text and settings(here) == before


def test_a_disk_too_small_for_the_restore_is_reported_before_it_is_full(watched: Watched) -> None:
    """Its disk is that of the tablespace of its database; looked at after a fifth and after three quarters of it."""
    watched.cluster.psql("create database wide")
    watched.cluster.psql(WIDE, dbname="wide")
    watched.ran("pg_dump", "-Fd", "-Z0", "-f", "wide.d", watched.dsn("wide"))
    beside = watched.cluster.base
    with loop_mounted(beside / "image", beside / "small", "48M") as place:
        give(watched.cluster, place)
        watched.cluster.psql(f"create tablespace small location '{place}/space'")
        watched.cluster.psql("create database narrow tablespace small")
        leave(place, WIDE_LEFT)
        restore = quoted(watched.path("pg_restore"), "-d", watched.dsn("narrow"), "wide.d") + "; true"
        with eyes(watched.cluster) as seen, session(watched.cluster, dbname="narrow") as later:
            later.execute(f"select pg_advisory_lock({LATE})")
            with watched.held(restore, 1, "narrow") as held:
                job = seen.until(lambda job: job.pct is not None, "its share after a fifth")
                assert job.mount == str(place) and job.fits is not True, job
                held.let_go()
                job = seen.until(lambda job: job.fits is False, "that it will not fit")
                assert (job.need_bytes or 0) > (job.free_bytes or 0) and job.errors == 0, job
                (row,) = [row for row in seen.rows if row.kind == "pg_restore"]
                assert (row.fits, row.mount) == (False, str(place))
                later.execute("select pg_advisory_unlock_all()")
            event = seen.ended("pg_restore")
        (place / "filler").unlink()
        watched.cluster.psql("drop database narrow")
        watched.cluster.psql("drop tablespace small")
    assert event.details["errors"] == 1 and "it succeeded" not in event.text, event
    assert "No space left on device" in event.details["last_error"], event


def crash_when_it_waits(here: Ground) -> None:
    with closing(session(here.cluster)) as other:
        wait_until(lambda: other.execute(_WAITS).rowcount, WAIT_S, what="a COPY that waits")
    here.cluster.restart(mode="immediate")


def up(here: Ground) -> bool:
    try:
        return bool(here.cluster.psql("select 1"))
    except ConsoleError:
        return False


def give(cluster: Cluster, place: Path) -> None:
    """A directory there for the server."""
    owner = cluster.data_directory.stat()
    (place / "space").mkdir()
    os.chown(place / "space", owner.st_uid, owner.st_gid)


def leave(place: Path, left: int = LEFT) -> None:
    """Take all but so many bytes of what an ordinary user may have there."""
    free = os.statvfs(place)
    with (place / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - left)
