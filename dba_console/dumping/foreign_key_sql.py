"""The foreign keys of an archive as SQL: each in two steps, added without a look at the rows, then validated.

pg_restore adds a key and checks it in one statement that locks both tables, so keys that refer to one table are
checked one after the other. Validating takes a lock that other keys' validation does not mind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from dba_console.archives.dump_plan import DumpEntry
from dba_console.errors import Unsupported

FK = "FK CONSTRAINT"
_NAME = r'(?:"(?:[^"]|"")+"|[^\s"."]+)'
_ADD_CONSTRAINT = re.compile(
    rf"ALTER TABLE (?P<only>ONLY )?(?P<table>{_NAME}(?:\.{_NAME})?)\s+ADD CONSTRAINT (?P<name>{_NAME}) FOREIGN KEY ",
    re.DOTALL,
)
_NOT_VALIDATED = re.compile(r"\b(NOT VALID|NOT ENFORCED)$")


class ForeignKey(Struct, frozen=True, kw_only=True):
    """One foreign key to be made."""

    entry: DumpEntry
    table: str
    """As SQL writes it, with its schema."""
    name: str
    """As it is in the catalog."""
    add: str
    validate: str | None
    """None: `add` does all there is to do, alone: a key of a partitioned table, or one that is not to be checked."""


def foreign_key_entries(entries: Sequence[DumpEntry]) -> list[DumpEntry]:
    return [entry for entry in entries if entry.desc == FK]


def key_dependents(entries: Sequence[DumpEntry]) -> set[int]:
    """Dump ids of what cannot be there before the keys are: comments on them, for one."""
    keys = {entry.dump_id for entry in entries if entry.desc == FK}
    after, grown = set(keys), True
    while grown:
        more = {entry.dump_id for entry in entries if entry.dump_id not in after and after.intersection(entry.needs)}
        after |= more
        grown = bool(more)
    return after - keys


def split_statements(sql: str) -> Iterator[str]:
    r"""The statements of a restore script without their semicolons: comments and psql's own commands left out.

    >>> list(split_statements('\\restrict a\n-- x;\nSET a = \'b;\';\n\nALTER TABLE "c;\n-- d"\n    ADD e;\n'))
    ["SET a = 'b;'", 'ALTER TABLE "c;\n-- d"\n    ADD e']
    """
    held: list[str] = []
    for piece in re.finditer(r"""--[^\n]*|^\\[^\n]*|"(?:[^"]|"")*"|'(?:[^']|'')*'|;|[^-"';\\]+|.""", sql, re.MULTILINE):
        text = piece[0]
        if text == ";":
            if whole := "".join(held).strip():
                yield whole
            held = []
        elif not (text.startswith("--") or (text.startswith("\\") and not "".join(held).strip())):
            held.append(text)


def decode_script(script: bytes) -> str:
    r"""A restore script as text: it says itself how it is encoded. Raises Unsupported where Python does not know that.

    >>> decode_script(b"SET client_encoding = 'LATIN1';\n-- caf\xe9")[-4:]
    'café'
    """
    found = re.search(rb"^SET client_encoding = '(\w+)';", script, re.MULTILINE)
    name = found[1].decode() if found else "UTF8"
    codec = "utf-8" if name == "SQL_ASCII" else re.sub(r"^WIN(?=\d)", "cp", name)
    try:
        return script.decode(codec)
    except (LookupError, UnicodeDecodeError):
        raise Unsupported(
            f"the archive's names are in {name}, which cannot be read here",
            hint="restore its keys by pg_restore itself, without a list",
        ) from None


def parse_foreign_key(entry: DumpEntry, statement: str) -> ForeignKey | None:
    """What is to be done for one key; None where the statement adds none."""
    found = _ADD_CONSTRAINT.match(statement)
    if found is None:
        return None
    name = found["name"]
    plain = name[1:-1].replace('""', '"') if name.startswith('"') else name
    whole = found["only"] is None or _NOT_VALIDATED.search(statement) is not None
    return ForeignKey(
        entry=entry,
        table=found["table"],
        name=plain,
        add=statement if whole else f"{statement} NOT VALID",
        validate=None if whole else f"ALTER TABLE ONLY {found['table']} VALIDATE CONSTRAINT {name}",
    )


def heaviest_first(keys: Sequence[ForeignKey]) -> list[ForeignKey]:
    """Those of the largest tables first; of one table they have to wait for each other."""
    return sorted(keys, key=lambda key: -(key.entry.weight or 0.0))


def next_key(waiting: Sequence[ForeignKey], busy: set[str]) -> ForeignKey | None:
    """The next to be validated: of a table that no other is being validated of. None: none can be now."""
    return next((key for key in waiting if key.table not in busy), None)
