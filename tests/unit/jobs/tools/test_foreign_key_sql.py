"""Foreign keys taken out of a restore script: every name there can be, and nothing that is not understood."""

from __future__ import annotations

import pytest

from dba_console.core.errors import Unsupported
from dba_console.jobs.archives.toc import DumpEntry
from dba_console.jobs.tools.client_programs import key_dependents
from dba_console.jobs.tools.create_foreign_keys import (
    ForeignKey,
    decode_script,
    heaviest_first,
    next_key,
    parse_foreign_key,
    split_statements,
)


def entry(
    dump_id: int, desc: str = "FK CONSTRAINT", needs: tuple[int, ...] = (), weight: float | None = None
) -> DumpEntry:
    return DumpEntry(dump_id=dump_id, desc=desc, phase="constraints", needs=needs, weight=weight)


def key(statement: str, dump_id: int = 1, weight: float | None = None) -> ForeignKey:
    found = parse_foreign_key(entry(dump_id, weight=weight), statement)
    assert found is not None
    return found


def test_a_key_is_added_not_valid_and_validated_by_its_own_name() -> None:
    made = key('ALTER TABLE ONLY "a.b"."c ""d"\n    ADD CONSTRAINT "e""f" FOREIGN KEY (g) REFERENCES h(i)')
    assert made.add.endswith("REFERENCES h(i) NOT VALID")
    assert made.validate == 'ALTER TABLE ONLY "a.b"."c ""d" VALIDATE CONSTRAINT "e""f"'
    assert made.name == 'e"f'


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE public.partitioned\n    ADD CONSTRAINT a FOREIGN KEY (b) REFERENCES c(d)",
        "ALTER TABLE ONLY public.t\n    ADD CONSTRAINT a FOREIGN KEY (b) REFERENCES c(d) DEFERRABLE NOT VALID",
        "ALTER TABLE ONLY public.t\n    ADD CONSTRAINT a FOREIGN KEY (b) REFERENCES c(d) NOT ENFORCED",
    ],
)
def test_what_cannot_be_done_in_two_steps_is_executed_unchanged(statement: str) -> None:
    made = key(statement)
    assert (made.add, made.validate) == (statement, None)


def test_a_column_called_not_valid_is_not_a_keyword() -> None:
    made = key('ALTER TABLE ONLY t\n    ADD CONSTRAINT a FOREIGN KEY (b) REFERENCES c("NOT VALID")')
    assert made.add.endswith('("NOT VALID") NOT VALID')


def test_other_statements_add_no_key() -> None:
    assert parse_foreign_key(entry(1), "ALTER TABLE ONLY a\n    ADD CONSTRAINT b CHECK (true)") is None
    assert parse_foreign_key(entry(1), "SELECT 1") is None


def test_names_with_semicolons_comments_and_line_ends_do_not_end_a_statement() -> None:
    head = "\\restrict x;y\n--\n-- Name: a; Type: FK\n--\n\nSET b = 'c;--';\n\n"
    script = head + 'ALTER TABLE "d;\n\\e\n-- f" g;\n\\unrestrict x\n'
    assert list(split_statements(script)) == ["SET b = 'c;--'", 'ALTER TABLE "d;\n\\e\n-- f" g']


def test_objects_that_depend_on_a_key_come_after_it_and_others_do_not() -> None:
    entries = [entry(1, "TABLE"), entry(2, needs=(1,)), entry(3, "COMMENT", (2,)), entry(4, "COMMENT", (1,))]
    assert key_dependents(entries) == {3}


def test_the_next_key_is_of_the_largest_table_not_in_use() -> None:
    add = "ALTER TABLE ONLY {}\n    ADD CONSTRAINT a FOREIGN KEY (b) REFERENCES c(d)"
    keys = heaviest_first(
        [key(add.format("small"), 1, 1.0), key(add.format("big"), 2, 9.0), key(add.format("none"), 3)]
    )
    assert [one.table for one in keys] == ["big", "small", "none"]
    assert next_key(keys, {"big"}) is keys[1]
    assert next_key(keys, {"big", "small", "none"}) is None


def test_a_script_in_an_unknown_encoding_is_refused() -> None:
    assert decode_script("SET client_encoding = 'WIN1252';\n-- €".encode("cp1252")).endswith("€")
    with pytest.raises(Unsupported):
        decode_script(b"SET client_encoding = 'MULE_INTERNAL';\n")
