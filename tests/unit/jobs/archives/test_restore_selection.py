"""Only what a restore was asked for is waited for."""

from __future__ import annotations

import pytest

from dba_console.jobs.archives.dump_plan import DumpPlan, read_list, select_entries
from dba_console.jobs.archives.statement_parser import read_statement
from dba_console.jobs.archives.toc import DumpEntry

PLAN = DumpPlan(
    entries=(
        DumpEntry(dump_id=1, desc="TABLE", phase="schema", tag="t"),
        DumpEntry(dump_id=2, desc="TABLE DATA", phase="data", tag="t"),
        DumpEntry(dump_id=3, desc="SEQUENCE SET", phase="rest", tag="s"),
        DumpEntry(dump_id=4, desc="INDEX", phase="indexes", tag="i"),
        DumpEntry(dump_id=5, desc="FK CONSTRAINT", phase="constraints", tag="t fk"),
    )
)


def test_a_list_file_excludes_commented_entries() -> None:
    text = ";\n; Archive created at 2026-11-22\n;\n2; 0 16385 TABLE DATA public t app\n;4; 1259 1 INDEX i\n5; 2606 1 FK"
    assert read_list(text) == (2, 5)
    assert [one.dump_id for one in select_entries(PLAN, ids=read_list(text)).entries] == [2, 5]


@pytest.mark.parametrize(
    ("data_only", "schema_only", "kept"),
    [(False, False, [1, 2, 3, 4, 5]), (True, False, [2, 3]), (False, True, [1, 4, 5])],
)
def test_switches_select_entries(data_only: bool, schema_only: bool, kept: list[int]) -> None:
    chosen = select_entries(PLAN, data_only=data_only, schema_only=schema_only)
    assert [one.dump_id for one in chosen.entries] == kept


@pytest.mark.parametrize(
    ("text", "desc", "schema", "tag"),
    [
        ('COPY public."Odd ""one""" (a, b', "TABLE DATA", "public", 'Odd "one"'),
        ("/* by hand */ -- and so on\n copy Public.t from stdin", "TABLE DATA", "public", "t"),
        ("COPY public.t (a) TO stdout;", "TABLE DATA", "public", "t"),
        ('CREATE UNIQUE INDEX "x y" ON ONLY s.t USING btree (a)', "INDEX", "s", "x y"),
        ("ALTER TABLE ONLY public.c\n    ADD CONSTRAINT c_fk FOREIGN KEY (a)", "FK CONSTRAINT", "public", "c c_fk"),
        ("ALTER TABLE ONLY public.c\n    ADD CONSTRAINT c_pk PRIMARY KEY (a)", "CONSTRAINT", "public", "c c_pk"),
        ("REFRESH MATERIALIZED VIEW public.mv", "MATERIALIZED VIEW DATA", "public", "mv"),
        ("ANALYZE VERBOSE public.t", "ANALYZE", "public", "t"),
        ("SELECT pg_catalog.lowrite(0, 1)", "BLOBS", None, ""),
    ],
)
def test_a_statement_is_parsed_into_its_object(text: str, desc: str, schema: str | None, tag: str) -> None:
    made = read_statement(text)
    assert made is not None
    assert (made.desc, made.schema, made.tag) == (desc, schema, tag)


@pytest.mark.parametrize(
    "text",
    ["", "SELECT 1", "COPY (SELECT 1) TO STDOUT", "ALTER TABLE t OWNER TO app", "SET x = 1", "/* COPY t", "CREATE"],
)
def test_other_statements_are_ignored(text: str) -> None:
    assert read_statement(text) is None
