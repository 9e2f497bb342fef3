"""Each object has its phase, its table, what it weighs and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping

from dba_console.jobs.archives.dump_plan import DumpPlan, TableSize, plan_from_tables, plan_from_toc, with_table_sizes
from dba_console.jobs.archives.toc import DumpEntry, read_toc
from tests.unit.jobs.archives.made_archives import archive, entry


def shop(sizes: Mapping[int, int] | None = None) -> DumpPlan:
    """Two tables, a key to each, an index, a foreign key between them, and what else an archive lists."""
    return plan_from_toc(
        read_toc(
            archive(
                entry(90, "ENCODING", "ENCODING", section=2, schema=None),
                entry(91, "DATABASE", "shop", section=2, schema=None),
                entry(92, "COMMENT", "DATABASE shop", section=1, schema=None),
                entry(1, "TABLE", "child", section=2),
                entry(2, "TABLE", "child of", section=2),
                entry(4, "VIEW", "joined", section=2, needs=[1, 2]),
                entry(3, "MATERIALIZED VIEW", "mv", section=2, needs=[1, 4]),
                entry(11, "TABLE DATA", "child", section=3, needs=[1], file="11.dat"),
                entry(12, "TABLE DATA", "child of", section=3, needs=[2], file="12.dat"),
                entry(13, "SEQUENCE SET", "s", section=3),
                entry(21, "CONSTRAINT", "child child_pkey", needs=[1]),
                entry(22, "CONSTRAINT", "child of child of_pkey", needs=[2]),
                entry(23, "INDEX", "child_t", needs=[1, 99]),
                entry(24, "MATERIALIZED VIEW DATA", "mv", needs=[3, 11]),
                entry(31, "FK CONSTRAINT", "child of fkey", needs=[22, 1, 2]),
                entry(32, "TRIGGER", "child tg", needs=[1]),
            )
        ),
        sizes,
    )


def by_id(plan: DumpPlan) -> dict[int, DumpEntry]:
    return {one.dump_id: one for one in plan.entries}


def test_the_database_itself_is_not_one_of_its_objects() -> None:
    assert not {90, 91, 92} & by_id(shop()).keys()
    assert (shop().server_version, shop().dump_version, shop().compression) == ("18.4", "18.4", "gzip")


def test_each_object_has_its_phase() -> None:
    assert {one.dump_id: one.phase for one in shop().entries} == {
        1: "schema", 2: "schema", 3: "schema", 4: "schema", 11: "data", 12: "data", 13: "rest", 21: "indexes",
        22: "indexes", 23: "indexes", 24: "rest", 31: "constraints", 32: "rest",
    }  # fmt: skip


def test_keys_and_indexes_have_the_weight_of_their_table_data_and_a_view_that_of_the_tables_it_reads() -> None:
    plan = by_id(shop({11: 1000, 12: 50}))
    assert {n: one.weight for n, one in plan.items() if one.weight != 0} == {
        11: 1000, 12: 50, 21: 1000, 22: 50, 23: 1000, 24: 1050, 31: 525,
    }  # fmt: skip
    assert {n: plan[n].table for n in (11, 21, 22, 23, 31, 32, 1)} == {
        11: 11,
        21: 11,
        22: 12,
        23: 11,
        31: 12,
        32: 11,
        1: None,
    }


def test_without_sizes_no_weight_is_invented() -> None:
    plan = by_id(shop())
    assert [plan[n].weight for n in (11, 21, 31)] == [None, None, None]


def test_after_the_data_an_object_waits_for_rows_and_not_for_the_empty_table() -> None:
    plan = by_id(shop())
    assert plan[11].needs == (1,)
    assert plan[23].needs == (11,)
    assert plan[31].needs == (22, 11, 12)


def test_the_weights_of_a_dump_come_from_the_catalog() -> None:
    plan = by_id(
        with_table_sizes(
            shop({11: 1, 12: 1}), {16395: TableSize(oid=16395, schema="public", name="child", size=8192, rows=7)}
        )
    )
    assert (plan[11].weight, plan[11].rows, plan[23].weight, plan[12].weight) == (8192, 7, 8192, 1)
    bare = plan_from_tables([TableSize(oid=5, schema="s", name="t", size=8192)], database="shop")
    assert [(one.dump_id, one.desc, one.table, one.weight) for one in bare.entries] == [(1, "TABLE DATA", 1, 8192)]
