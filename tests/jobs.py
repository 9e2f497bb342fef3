"""Dumps and restores as rows of the progress panel and as history, made by hand: of any size, with hostile names."""

from __future__ import annotations

from dba_console.jobs.archives.object_durations import RunPhase
from dba_console.jobs.history.duration_trend import PastRun, PastRuns
from dba_console.watch.frames.model import Frame
from dba_console.watch.locks.panel import LockNode, LocksPanel
from dba_console.watch.progress.panel import ProgressPanel
from dba_console.watch.progress.rows import JobCounts, ObjectRow, PhaseRow, ProgressRow

GB = 1 << 30
DAY_US = 86_400_000_000
NOW_US = 1_795_186_649_000_000
HOSTILE = (
    'public."a""b"', "public.two\nlines", "public.\x1b[2Jwipe", "表" * 63, "public.\u202ereversed", "[bold]x[/] y",
)  # fmt: skip


def dump_row(tables: int = 214, *, names: tuple[str, ...] = ()) -> ProgressRow:
    """A parallel dump in the middle, with the maximum number of objects of a sample."""
    running = [_table(f"public.orders_{place}", "running", place) for place in range(4)]
    for one, name in zip(running, names, strict=False):
        one.name = name
    waiting = [_table(f"public.waits_{place}", "waiting", place) for place in range(60)]
    done = [_table(f"public.past_{place}", "done", place) for place in range(40)]
    failed = _table('public."no such"', "failed", 0)
    failed.note = 'ERROR:  permission denied for table "no such"\nDETAIL: none'
    return ProgressRow(
        kind="pg_dump", pid=8001, process=812, database="appdb", phase="data", user="backup", scope="whole",
        object=", ".join(one.name for one in running), done=12.2 * GB, total=18 * GB, unit="bytes", pct=68.0,
        grade="estimated", rate_per_s=41e6, started="2026-11-20T14:10:02Z", elapsed_s=2847.0, eta_s=840.0,
        eta_grade="estimated", usual_s=3720.0, usual_runs=23, blocks=3, backends=[8001, 8002, 8003, 8004, 8005],
        version="15.18", format="directory", compression="gzip", jobs=4, writes="/backup/appdb.dir",
        command="pg_dump -Fd -j4 -v -f /backup/appdb.dir appdb", written_bytes=5 * GB, written_per_s=17e6,
        mount="/backup", free_bytes=80 * GB, need_bytes=2.4 * GB, fits=True,
        counts=JobCounts(running=4, done=tables * 8 // 10, waiting=tables - tables * 8 // 10 - 5, failed=1),
        phases=_phases(tables), objects=[*running, failed, *waiting, *done],
        critical=["public.orders_0 (TABLE DATA)"], errors=1, last_error="permission denied for table x",
        xid_age=81_000_000, sources=["toc.dat", "pg_stat_progress_copy", "growth of /backup/appdb.dir"],
        unknown=["how long the sync at the end takes: no message reports it"], wait="Client:ClientWrite",
        query="COPY public.orders (id) TO stdout;",
    )  # fmt: skip


def _table(name: str, state: str, place: int) -> ObjectRow:
    running, done = state == "running", state == "done"
    return ObjectRow(
        name=name, what="TABLE DATA", phase="data", state=state, weight=(9 - place % 9) * GB / 4,
        done=(place + 1) * GB / 9 if running else None, total=(place + 2) * GB if running else None, unit="bytes",
        pct=min(99.0, 20.0 * place + 11) if running else None, grade="estimated" if running else "unknown",
        rate_per_s=22e6 if running else None, started="2026-11-20T14:40:00Z", pid=8002 + place if running else None,
        elapsed_s=720.0 if running else 31.0 if done else None, eta_s=540.0 if running else None,
    )  # fmt: skip


def _phases(tables: int) -> list[PhaseRow]:
    done = tables * 8 // 10
    return [
        PhaseRow(name="schema", state="done", items=tables, items_done=tables, wall_s=2.1, busy_s=2.1),
        PhaseRow(
            name="data", state="running", items=tables, items_done=done, items_running=4, done=12.2 * GB,
            total=18 * GB, unit="bytes", pct=68.0, grade="estimated", wall_s=2845.0, busy_s=10_920.0, rate_per_s=4.6e6,
            eta_s=840.0, eta_grade="estimated",
        ),
        PhaseRow(name="rest", state="waiting", items=12),
    ]  # fmt: skip


def waiters() -> LocksPanel:
    """Three sessions behind two of the dump's."""
    rows = [
        LockNode(pid=8123 + place, application="app", wait_s=42.0 - place, query="alter table orders add x int")
        for place in range(3)
    ]
    trees = [LockNode(pid=8001, waiters=[rows[0]]), LockNode(pid=8003, waiters=[rows[1]])]
    trees[0].waiters[0].waiters = [rows[2]]
    return LocksPanel(age_s=0.1, waiting=3, trees=trees)


def frame_of(*rows: ProgressRow) -> Frame:
    """A frame with these jobs under way."""
    progress = ProgressPanel(age_s=0.1, operations=list(rows))
    return Frame(at_us=NOW_US, panels={"progress": progress, "locks": waiters()})


def nightly_runs(
    count: int, *, first_s: float = 3600.0, grows_s: float = 60.0, **fields: object
) -> tuple[PastRun, ...]:
    """A run each night, the last one a day before NOW_US, each longer than the one before, with some scatter."""
    return tuple(
        PastRun(
            started_us=NOW_US - (count - place) * DAY_US, seconds=first_s + place * grows_s + (37 * place) % 100,
            size_bytes=(100 + place) * GB, bytes=40 * GB, rate_per_s=2e6, format="directory", jobs=4, exit=0,
            errors=0, phases=(RunPhase("data", first_s, 4 * first_s, 40 * GB),),
            **fields,  # type: ignore[arg-type]
        )
        for place in range(count)
    )  # fmt: skip


def job(name: str = "appdb", runs: tuple[PastRun, ...] = (), kind: str = "pg_dump") -> PastRuns:
    """A job with those runs, by default thirty nights."""
    mine = runs or nightly_runs(30)
    return PastRuns(kind=kind, database=name, user="backup", runs=mine, usual_s=mine[len(mine) // 2].seconds)
