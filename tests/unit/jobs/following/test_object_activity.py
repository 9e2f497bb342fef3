"""The active objects of a job follow from its sessions' statements and the files its processes read, nothing else."""

from __future__ import annotations

from msgspec import structs

from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.toc import DumpEntry
from dba_console.jobs.following.object_activity import ObjectActivity, PlanIndex, find_active_objects
from dba_console.jobs.following.pipeline import InputFile
from dba_console.watch.progress.readings import Operation
from dba_console.watch.samples.postgres import Activity
from tests.build import NOW_US
from tests.readings import activity
from tests.unit.jobs.following.plans import MB, restore_plan

INDEX = PlanIndex(restore_plan(3))
COPY = "COPY public.t2 (id, a) FROM stdin;"


def session(query: str, state: str = "active", **fields: object) -> Activity:
    return activity(7, state, application="pg_restore", query=query, query_start=NOW_US, **fields)


def reading(path: str = "/backup/d/21.dat.gz", pos: int = 30, size: int = 100) -> InputFile:
    return InputFile(path, 812, "pg_restore", 5, pos, size, total=size)


def operation(kind: str, done: int, total: int | None = None, **detail: int) -> Operation:
    return Operation(kind, 7, "appdb", None, "building index: scanning table", done, total, "bytes", dict(detail))


def active_objects(
    *rows: Activity,
    index: PlanIndex | None = INDEX,
    operations: dict[int, Operation] | None = None,
    readings: tuple[InputFile, ...] = (),
) -> list[ObjectActivity]:
    return find_active_objects(rows, operations or {}, {7: 812}, readings, index)


def test_a_loaded_table_has_the_progress_of_its_file() -> None:
    (active,) = active_objects(session(COPY), readings=(reading(),))
    assert active.entry is not None and active.entry.dump_id == 21
    assert (active.done, active.total, active.unit, active.measured) == (30.0, 100.0, "bytes", True)


def test_a_table_in_a_custom_archive_has_the_progress_of_the_read_offset() -> None:
    plan = restore_plan(2)
    data = structs.replace(plan.entries[3], file=None, offset=1000)
    index = PlanIndex(DumpPlan(entries=(data,)))
    (active,) = active_objects(
        session(COPY), index=index, readings=(reading("/backup/c.dump", pos=1000 + MB // 2, size=9 * MB),)
    )
    assert (active.entry, active.done, active.total, active.measured) == (data, MB / 2, MB, True)


def test_a_dumped_table_has_the_progress_of_its_estimated_rows() -> None:
    plan = restore_plan(2)
    index = PlanIndex(DumpPlan(entries=(structs.replace(plan.entries[3], rows=1000.0),)))
    copying = operation("copy", 5000, tuples_processed=250)
    (active,) = active_objects(session("COPY public.t2 (id) TO stdout;"), index=index, operations={7: copying})
    assert (active.done, active.total, active.unit, active.measured) == (250.0, 1000.0, "rows", False)
    beyond = operation("copy", 5000, tuples_processed=1250)
    (active,) = active_objects(session("COPY public.t2 (id) TO stdout;"), index=index, operations={7: beyond})
    assert (active.done, active.total) == (1250.0, 1250.0)


def test_a_worker_whose_statement_is_not_conclusive_is_identified_by_its_file() -> None:
    (active,) = active_objects(session("COPY cut sho"), readings=(reading("/backup/d/31.dat"),))
    assert active.entry is not None and active.entry.tag == "t3"


def test_an_index_has_no_progress_but_the_phase_of_its_build() -> None:
    build = session("CREATE INDEX t1_i ON public.t1 USING btree (a);", wait_event_type="IO", wait_event="DataFileRead")
    (active,) = active_objects(build, operations={7: operation("create_index", 40, 100)}, readings=(reading(),))
    assert active.entry is not None and active.entry.dump_id == 13
    assert (active.done, active.total) == (None, None)
    assert active.note == "building index: scanning table 40%, waits for IO:DataFileRead"


def test_without_a_plan_an_object_has_its_name() -> None:
    (active,) = active_objects(session(COPY), index=None)
    assert active.entry is None and (active.named.desc, active.named.schema, active.named.tag) == (
        "TABLE DATA", "public", "t2",
    )  # fmt: skip


def test_an_idle_session_works_on_nothing() -> None:
    assert active_objects(session(COPY, "idle"), session("select 1"), session("COMMIT")) == []


def test_large_objects_are_recognised_between_their_calls_and_by_their_list() -> None:
    entry = DumpEntry(dump_id=9, desc="BLOBS", phase="data", file="blobs.toc", weight=100.0)
    index = PlanIndex(DumpPlan(entries=(entry,)))
    files = (reading("/backup/d/blob_17.dat", 5, 10), reading("/backup/d/blobs.toc", 30, 120))
    for order in (files, files[::-1]):
        for query in (
            "FETCH 1000 IN bloboid",
            "select proname, oid from pg_catalog.pg_proc where proname in ('lo_open'",
        ):
            (active,) = active_objects(session(query, "idle in transaction"), index=index, readings=order)
            assert (active.entry, active.done, active.total) == (entry, 30.0, 120.0)
    assert active_objects(session("COMMIT", "idle"), index=index, readings=files) == []


def test_the_entry_of_a_large_object_before_the_data_is_not_its_data() -> None:
    entry = DumpEntry(dump_id=9, desc="BLOBS", phase="data", file="blobs.toc", weight=100.0)
    index = PlanIndex(DumpPlan(entries=(entry,)))
    assert active_objects(session("SELECT pg_catalog.lo_create('16454');"), index=index) == []
    (active,) = active_objects(session("SELECT pg_catalog.lo_open('16454', 131072);"), index=index)
    assert active.entry == entry
