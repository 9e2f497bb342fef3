"""What SQL in a runbook may not do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dba_console.plans.plan import Block, BlockCondition, Plan
from dba_console.runbook.problems import Problem
from dba_console.runbook.schema import ACTING

_WRITES = re.compile(
    r"\b(?:insert\s+into|update\s+(?:only\s+)?[\w\".]+\s+set|delete\s+from|truncate|drop|alter|create|grant|revoke|"
    r"vacuum|reindex|cluster|checkpoint|pg_terminate_backend|pg_cancel_backend|pg_drop_replication_slot|"
    r"pg_reload_conf|pg_switch_wal|pg_promote|pg_wal_replay_(?:pause|resume)|pg_rotate_logfile|set_config|"
    r"pg_stat_reset\w*|pg_logical_slot_get_changes|lo_unlink)\b",
    re.IGNORECASE,
)
_BINDS = frozenset({"select", "insert", "update", "delete", "merge", "values", "with", "table", ""})
_TRANSACTION = re.compile(
    r"\s*(begin|start\s+transaction|commit|rollback(?!\s+prepared)|end|abort|savepoint|release)\b", re.IGNORECASE
)
_NO_QUERY = re.compile(r"\s*(?!select\b|with\b|values\b|table\b|show\b|\(|\Z)[^\s;]+", re.IGNORECASE)
# What is never closed goes to the end: each that is open would be searched to the end for its close otherwise.
_SQL_COMMENT = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TEXT = re.compile(
    r"(?<![\w$])(?:[eE]'(?:[^'\\]|''|\\.)*+(?:'|\Z)|'(?:[^']|'')*+(?:'|\Z)|\$(\w*+)\$.*?(?:\$\1\$|\Z))", re.DOTALL
)
_NAMED = re.compile(r"\"(?:[^\"]|\"\")*\"")
_TABLE = re.compile(
    r"\b(?:from|join|insert\s+into|merge\s+into|update|truncate(?:\s+table)?|(?:alter|lock|reindex)\s+table|"
    r"(?:create|drop)\s+table(?:\s+if\s+(?:not\s+)?exists)?)\s+(?!(?:only|lateral|select|values|set|of|skip|nowait)\b)"
    r"([a-z_][\w$]*+|\"(?:[^\"]|\"\")+\"(?!\"))(?!\s*\.)(\s*\()?",
    re.IGNORECASE,
)
_QUERY_NAME = re.compile(
    r"\b([a-z_]\w*+)\s*+(?:\([\w\s,]*+\)\s*+)?as\s++(?:(?:not\s+)?materialized\s+)?\(", re.IGNORECASE
)
_LETTERLESS = re.compile(r"%\(([\w.]+)\)(?![sIRL])")
_IF_EXISTS = r"(?:\s+if\s+(?:not\s+)?exists)?\s+\Z"
_BEFORE_A_NAME = re.compile(
    r"\b(?:role|user|group|database|schema|tablespace|extension|server|publication|subscription|column|constraint|"
    rf"owner\s+to|rename\s+to|owned\s+by|set\s+schema){_IF_EXISTS}",
    re.IGNORECASE,
)
_BEFORE_A_RELATION = re.compile(
    r"(?:\b(?:table|index|view|sequence|truncate|analyze|vacuum|cluster|copy)|\bindex\s+concurrently|\bvacuum\s*\([^()]*\))"
    rf"{_IF_EXISTS}",
    re.IGNORECASE,
)
_FROM_IN_CALL = re.compile(r"\b(?:extract|substring|trim|overlay)\s*\([^()]*\Z", re.IGNORECASE)
"""`extract(epoch from now())` and the like: no table follows."""
_LONGEST_CALL = 400
"""Characters of what stands before `from` in such a call, or before a value in a command."""
_PSQL = re.compile(r"(?<![:\w]):(?:''|\"\"|[a-z_]\w*)", re.IGNORECASE)


def pasted_sql_value(plan: Plan) -> Iterator[Problem]:
    """A value reaches SQL as a bound parameter, `%(name)s`, or a quoted identifier, `%(name)I`; never as part of the
    text, where a quote in it would end what was meant."""
    for block, line, text in _statements(plan):
        for found, hint in _pasted_in_sql(text):
            yield Problem(line=line if block.language != "sql" else _line(block, found, line),
                          text=f"a value is pasted into SQL: {found}", hint=hint)  # fmt: skip
        for match in _LETTERLESS.finditer(_NAMED.sub('""', _TEXT.sub("''", _SQL_COMMENT.sub(" ", text)))):
            found, name = match[0], match[1]
            yield Problem(line=line if block.language != "sql" else _line(block, found, line),
                          text=f"{found} has no letter that says how the value is written",
                          hint=f"write %({name})s for a value, %({name})I for an identifier")  # fmt: skip


def _pasted_in_sql(text: str) -> Iterator[tuple[str, str]]:
    bare = _SQL_COMMENT.sub(" ", text)
    if match := re.search(r"\{\{[^\n]{0,200}?\}\}|\$\{?RB_\w+\}?", bare):
        yield match[0], "write %(name)s for a value, %(name)I for an identifier"
    for literal in _TEXT.finditer(bare):
        if match := re.search(r"%\(([\w.]+)\)[sIRL]", literal[0]):
            yield match[0], f"it stands within a text: take the quotes away; it is bound as it is, %({match[1]})s"
    for name in _NAMED.finditer(_TEXT.sub("''", bare)):
        if match := re.search(r"%\(([\w.]+)\)[sIRL]", name[0]):
            yield match[0], f"write %({match[1]})I without quotes"
    if match := _PSQL.search(_NAMED.sub('""', _TEXT.sub("''", bare))):
        yield match[0], "that is psql's way; write %(name)s"
    if match := re.search(r"%s\b", _TEXT.sub("''", bare)):
        yield match[0], "name it: %(name)s"


def unbound_command(plan: Plan) -> Iterator[Problem]:
    """The server binds values in SELECT, INSERT, UPDATE, DELETE and the like only; a command such as ALTER takes them
    as quoted literals, `%(name)L`."""
    for block, line, text in _statements(plan):
        bare = _NAMED.sub('""', _TEXT.sub("''", _SQL_COMMENT.sub(" ", text))).strip()
        first = re.match(r"[a-z]*", bare, re.IGNORECASE)
        word = first[0].lower() if first else ""
        if word not in _BINDS and (match := re.search(r"%\(([\w.]+)\)s", bare)):
            name, before = match[1], bare[max(0, match.start() - _LONGEST_CALL) : match.start()]
            hint = f"write %({name})L, a quoted literal"
            if _BEFORE_A_NAME.search(before):
                hint = f"write %({name})I, a quoted identifier"
            elif _BEFORE_A_RELATION.search(before):
                hint = f"write %({name})R, a quoted name with its schema"
            yield Problem(
                line=_line(block, match[0], line), text=f"{word.upper()} takes no bound value: {match[0]}", hint=hint
            )


def writing_check(plan: Plan) -> Iterator[Problem]:
    """What only looks is really run in a rehearsal, and asked again and again: it may change nothing."""
    for block, line, text in _statements(plan):
        is_read_only = block.kind not in (*ACTING, "undo") or text is not block.body
        bare = _NAMED.sub('""', _TEXT.sub("''", _SQL_COMMENT.sub(" ", text)))
        if is_read_only and (match := _WRITES.search(bare) or _NO_QUERY.match(bare)):
            what = "test" if text is not block.body else block.kind
            yield Problem(line=line if text is not block.body else _line(block, match[0], line),
                          text=f"the {what} would change something: {' '.join(match[0].split())}",
                          hint="put it into a block change")  # fmt: skip


def no_schema(plan: Plan) -> Iterator[Problem]:
    """SQL of a runbook runs with search_path `pg_catalog, pg_temp`, whatever the owner of the database has set, so that
    nobody else decides what a name means: a table that is not PostgreSQL's own is named with its schema."""
    for block, line, text in _statements(plan):
        bare = _TEXT.sub("''", _SQL_COMMENT.sub(" ", text))
        own = {match[1].lower() for match in _QUERY_NAME.finditer(bare)}
        for match in _TABLE.finditer(bare):
            name = match[1]
            if match[2] and match[0].lower().startswith(("from", "join")):
                continue  # a function
            before = bare[max(0, match.start() - _LONGEST_CALL) : match.start()]
            in_call = _FROM_IN_CALL.search(before) or before.lower().endswith("distinct ")
            needs_no_schema = name.lower() in own or name.lower().startswith("pg_") or "%" in name
            if not in_call and not needs_no_schema:
                yield Problem(line=_line(block, name, line), text=f"{name} is named without its schema",
                              hint=f"public.{name}, or the schema it is in")  # fmt: skip


def several_statements(plan: Plan) -> Iterator[Problem]:
    """One block holds one statement: of several nobody could say which was the last that took effect."""
    for _, line, text in _statements(plan):
        bare = _NAMED.sub('""', _TEXT.sub("''", _SQL_COMMENT.sub(" ", text))).strip().rstrip(";")
        if ";" in bare:
            yield Problem(line=line, text="the block holds several statements", hint="a block for each")


def own_transaction(plan: Plan) -> Iterator[Problem]:
    """A change runs in a transaction that the console begins and ends, so that its end can be told by evidence."""
    for block, line, text in _statements(plan):
        if match := _TRANSACTION.match(_SQL_COMMENT.sub(" ", text)):
            hint = "leave it out: every change is a transaction" if block.kind in ("change", "undo") else ""
            yield Problem(line=line, text=f"{match[1].upper()} begins or ends a transaction by itself", hint=hint)


def _statements(plan: Plan) -> Iterator[tuple[Block, int, str]]:
    """Every piece of SQL with its block and the line it begins at."""
    for _, block in plan.blocks():
        if block.language == "sql":
            yield block, block.line + 1, block.body
        tests = [block.when, block.done]
        tests += [
            BlockCondition(**one) for name in ("until", "while") if isinstance(one := block.settings.get(name), dict)
        ]
        for test in tests:
            if test is not None and test.language == "sql":
                yield block, block.line, test.text


def _line(block: Block, found: str, otherwise: int) -> int:
    for at, text in enumerate(block.body.splitlines(), start=block.line + 1):
        if found.split()[0] in text:
            return at
    return otherwise
