"""Lint rules for the shell commands and the SQL of a runbook."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from itertools import pairwise

from dba_console.recording.plan import ACTING_KINDS, Block, Plan
from dba_console.runbooks.problems import Problem

_MASKS = (
    (re.compile(r"\|\|\s*[({]?\s*(?:true\b|:(?=\s|;|$|\)))"), "|| true"),
    (re.compile(r"\|\|\s*[({]?\s*(?:echo|printf)\b"), "|| echo"),
    (re.compile(r"\|\|\s*[({]?\s*exit\s+0\b"), "|| exit 0"),
    (re.compile(r"(?:(?:2|&)>>?|>&)\s*/dev/null"), "2>/dev/null"),
    (re.compile(r">>?\s*/dev/null\s+2>&1"), "2>/dev/null"),
    (re.compile(r"2>&-"), "2>&-"),
    (re.compile(r";\s*(?:true|:)\s*$", re.MULTILINE), "; true"),
    (re.compile(r"\bset\s+\+(?:e|o\s+errexit)"), "set +e"),
)
_AT_THE_END = re.compile(r"(?:^|;)\s*(?:exit\s+0|true|:)\s*;?\Z", re.MULTILINE)
_HERE = re.compile(r"<<-?\s*(['\"\\]?)(\w+)")
_CASES = re.compile(r"(?:\bin|;;|^)\s*+\(?[^\s()|]{1,200}+(?:\s*+\|\s*+[^\s()|]{1,200}+)++\)")
_PIPE = re.compile(r"(?<![|>])\|(?![|])")
_PIPEFAIL = re.compile(r"\bset\s+(?:-\w+\s+)*-\w*o\s+pipefail\b")
_BY_AGE = re.compile(r"\bls\b.*\s-\w*[tS]")
_FIRST = re.compile(r"\s*(?:head|tail)\b")
_CODE = re.compile(r"\beval\b|\b(?:ba|da|z|k)?sh\s+(?:-\w+\s+)*-\w*c\b")
_SQL_TEXT = re.compile(r"(?:\s-\w*c|\s--command)[=\s]*\"[^\"]*\$\{?RB_\w+")
_HOLD_NO_CODE = frozenset({"int", "number", "bool"})
_ASSIGNED = re.compile(r"\b([A-Za-z_]\w*)\+?=(\"(?:[^\"\\]|\\.)*\"|[^\s;|&]*)")
_ARITHMETIC = re.compile(r"\(\((?:[^()]|\([^()]*\))*\)\)|\$\[[^\]]*\]")
_LET = re.compile(r"(?:^|[;&|({]|\b(?:do|then|else)\s)\s*let\s[^;|&]*")
_SUBSCRIPT = re.compile(r"\b[A-Za-z_]\w*(\[[^\]]*\])(?=[=}+])|\$\{[A-Za-z_]\w*(\[[^\]]*\])|\$\{\w+:(?![-=+?])([^}]*)\}")
_BRACKETS = re.compile(r"\[\[\s.*?\]\]")
_COMPARES = re.compile(r"\s-(?:eq|ne|lt|le|gt|ge|v|R)\s")
_NAMES_VARIABLES = re.compile(
    r"(?<![\w\"$./-])(declare|typeset|local|export|readonly|read|printf\s+-v|unset|mapfile|readarray|getopts|wait\s+-p|"
    r"test\s+-[vR]|\[\s+-[vR]|nameref|trap|source|\.|alias|enable|hash|bind|compgen|complete)(\s[^;|&]*)"
)
"""Builtins that interpret an argument as a name or as code."""
_REDIRECTION = re.compile(r"\d?[<>]+[&|]?\s*\"(?:[^\"\\]|\\.)*\"")
_AS_NUMBER = re.compile(r"\s-\w*[in]\w*\s")
_LANGUAGES = re.compile(
    r"\b(g?awk|mawk|nawk|sed|perl|python[\d.]*|ruby|jq|node|php|lua|tclsh|expect|bc|dc|ssh|su|runuser|xargs|parallel|watch|"
    r"find|sqlite3|mysql|psql|gdb|env\s+-S)\b((?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^;|&\"'])*)"
)
"""Programs whose arguments are code in their own language."""
_PROGRAM_FIRST = frozenset(
    {"awk", "gawk", "mawk", "nawk", "sed", "perl", "python", "ruby", "jq", "node", "php", "xargs"}
)
_QUOTES = re.compile(r"(?:[\w-]+=)?\"(?:[^\"\\]|\\.)*\"")
_ALONE = re.compile(r"(?:[\w-]+=)?\"\$\{?\w+\}?\"")
_QUOTED = re.compile(r"'[^']*'")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_DOUBLE = re.compile(r"\"(?:[^\"\\]|\\.)*\"")


_MKTEMP = re.compile(r"\b(\w+)=\"?\$\(\s*mktemp(?![^)]*\s-\w*d)[^)]*\)")
_UNSAFE_MKTEMP = re.compile(r"\bmktemp\s[^;|&)]*?(?:-\w*u\b|--dry-run)")
_BESIDE = r"\$(?:NAME(?=\"?[.\w-])|\{NAME\}(?=\"?[.\w-])|\{NAME[%#/:])"
"""A path made from the name that mktemp printed."""
_SHARED_PLACE = re.compile(
    r"(?:>>?\|?|\b(?:tee|touch|mkdir|cp|mv|ln|install|dd)\b[^;|&]*?)\s*\"?(?:of=)?"
    r"(?:/tmp|/var/tmp|/dev/shm|\$\{?TMPDIR\b[^/\s]*)/[^\s;|&]*"
)
_CLIENT = re.compile(
    r"(?:^|[;|&({!]|\b(?:exec|then|do|else|time)\s)\s*(?:\w+=(?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|\S*)\s+)*(?:exec\s+)?"
    r"(vacuumdb|reindexdb|clusterdb|pg_amcheck|psql|pg_dump|pg_restore|pg_isready|pg_dumpall|pgbench)(?![\w.-])"
    r"((?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^;|&\"'])*)"
)
_READ_CONNINFO = frozenset({"vacuumdb", "reindexdb", "clusterdb", "pg_amcheck"})
_NO_DATABASE = re.compile(r"\s(?:-a|--all|--help|-\?|--version|-V)(?=\s|$)")
_DATABASE_VALUE = re.compile(r"\s(?:-d\s*|-l\s+|--(?:dbname|database)[=\s]\s*)\"?\$")
_DATABASE_WORD = re.compile(r"\s(?:-d\s*|--dbname[=\s]\s*)[\w]|\s\w[\w-]*\s*$")


def masked_error(plan: Plan) -> Iterator[Problem]:
    """A check or measurement that hides its own error (`|| true`, `|| echo`, `2>/dev/null`) can only pass. A failover
    was once permitted because the replication lag was always 0: the query for it never worked."""
    for block in _shells(plan):
        if block.kind in ("check", "measure"):
            yield from _masks(block)


def _masks(block: Block) -> Iterator[Problem]:
    for line, text in _lines(block):
        for pattern, sign in _MASKS:
            if pattern.search(text):
                yield Problem(line=line, text=f"the {block.kind} hides its error: {sign}",
                              hint="remove it: a check that cannot fail proves nothing")  # fmt: skip
                break
    if _AT_THE_END.search(_without_comments(block.body).rstrip()):
        yield Problem(line=block.line, text=f"the {block.kind} hides its error: it always exits with 0",
                      hint="its exit code is the result")  # fmt: skip


def pipefail(plan: Plan) -> Iterator[Problem]:
    """A pipeline without `set -o pipefail` succeeds when its first command fails: a truncated dump looks complete."""
    for block in _shells(plan):
        if _PIPEFAIL.search(_without_comments(block.body)):
            continue
        for line, text in _lines(block):
            if _PIPE.search(_bare(text)):
                yield Problem(line=line, text="a pipeline without pipefail hides that its first command failed",
                              hint="begin the block with: set -euo pipefail")  # fmt: skip
                break


def guessed_file(plan: Plan) -> Iterator[Problem]:
    """A file picked by its age (`ls -t | head -1`) may be the wrong one: a restore once used a truncated dump."""
    for block in _shells(plan):
        for line, text in _lines(block):
            parts = text.split("|")
            if any(_BY_AGE.search(one) and _FIRST.match(two) for one, two in pairwise(parts)):
                yield Problem(line=line, text="a file is picked by its age or size",
                              hint="use an input, or the result of the step that created it")  # fmt: skip


def pasted_value(plan: Plan) -> Iterator[Problem]:
    """A value must reach a command as an argument or through the environment, in double quotes. Pasted into code, a
    name with a quote in it becomes a command; and bash itself executes values in arithmetic, in `[[ … -gt … ]]`, as
    the name of a variable and in `${…@P}`. Inputs of type int, number or bool cannot contain code."""
    numbers = frozenset(one.name for one in plan.inputs if one.type in _HOLD_NO_CODE)
    for block in _shells(plan):
        tainted = _tainted(_without_comments(block.body), numbers)
        for line, text in _lines(block):
            if pasted := _pasted(text) or taken_for_code(text, tainted):
                yield Problem(line=line, text=pasted[0], hint=pasted[1])
        for word, quoted, text in _documents(block.body)[1]:
            if not quoted and re.search(r"\$\{?RB_", text):
                yield Problem(line=block.line, text=f"a value is pasted into the here-document {word}",
                              hint="the program that reads it may execute it; pass it as an argument")  # fmt: skip


def _tainted(code: str, numbers: frozenset[str]) -> frozenset[str]:
    """Return the variables whose value comes from an input or result, directly or through another variable."""
    found = {name for name in re.findall(r"\bRB_\w+", code) if name.removeprefix("RB_") not in numbers}
    while True:
        more = {
            name
            for name, value in _ASSIGNED.findall(code)
            if any(re.search(rf"\$\{{?[#!]?{one}\b", value) for one in found)
        } - found
        if not more:
            return frozenset(found)
        found |= more


def taken_for_code(text: str, tainted: Set[str]) -> tuple[str, str] | None:
    """Return message and hint where bash, or a program with its own language, would execute the value of a variable.

    >>> taken_for_code('[[ "$RB_v" -gt 5 ]]', {"RB_v"})[0]
    'bash arithmetic executes the value of RB_v as code'
    >>> taken_for_code('test "$RB_v" -gt 5', {"RB_v"})
    """
    for name in sorted(tainted):
        if not re.search(rf"\b{name}\b", text):
            continue
        use = rf"\$\{{?[#!]?{name}\b"
        hint = f'compare with test: test "${name}" -gt 5, which accepts numbers only'
        for expression in (*_ARITHMETIC.findall(text), *_LET.findall(text), *_subscripts(text)):
            if re.search(rf"\b{name}\b", expression):
                return f"bash arithmetic executes the value of {name} as code", hint
        for expression in _BRACKETS.findall(text):
            if re.search(rf"\b{name}\b", expression) and _COMPARES.search(expression):
                return f"bash arithmetic executes the value of {name} as code", hint
        if re.search(rf"\$\{{!{name}\b|\$\{{{name}[^}}]*@\w\}}", text):
            return f"${{…}} executes the value of {name} as code", f'write "${name}"'
        for builtin, arguments in _NAMES_VARIABLES.findall(text):
            rest = _REDIRECTION.sub("", arguments)
            if re.search(rf'(?:^|\s)"?{use}', rest) or (_AS_NUMBER.search(rest) and re.search(use, rest)):
                return f"{builtin} uses the value of {name} as the name of a variable", "write the variable name itself"
        for program, rest in _LANGUAGES.findall(text):
            runs_first = program.rstrip("0123456789.") in _PROGRAM_FIRST
            if (runs_first and re.match(rf'(?:\s+-\S+)*\s+"{use}', rest)) or any(
                re.search(use, quoted) and not _ALONE.fullmatch(quoted) for quoted in _QUOTES.findall(rest)
            ):
                return (
                    f"the value of {name} becomes part of code that {program} runs",
                    f'pass it as an argument, or read it from the environment (awk: ENVIRON["{name}"])',
                )
    return None


def _subscripts(text: str) -> Iterator[str]:
    for match in _SUBSCRIPT.finditer(_QUOTED.sub("''", text)):
        yield next(filter(None, match.groups()), "")


def _pasted(text: str) -> tuple[str, str] | None:
    if "{{" in text:
        return "a value is pasted into the command: {{…}}", 'write "$RB_name"'
    if match := re.search(r"%\((\w+)\)s", text):
        return f"%({match[1]})s is not replaced in a command", f'write "$RB_{match[1]}"'
    if "$" not in text or "RB_" not in text:
        return None
    if _CODE.search(text):
        return "a value becomes part of code that is run", "pass it as an argument, not in the text of eval or sh -c"
    if _SQL_TEXT.search(text):
        return "a value is pasted into SQL", "use a block of SQL with %(name)s, or psql -v and :'name' in a file"
    outside = _DOUBLE.sub('""', _QUOTED.sub("''", text))
    if match := re.search(r"\$\{?RB_(\w+)", outside):
        return f"$RB_{match[1]} is not in double quotes", f'write "$RB_{match[1]}": it may contain spaces or quotes'
    return None


def temporary_file(plan: Plan) -> Iterator[Problem]:
    """A file in a directory that others can write must be created by `mktemp`, or be in a directory that `mktemp -d`
    created. Another user can create a link with any other name, and the command overwrites the file behind it."""
    for block in _shells(plan):
        names = set(_MKTEMP.findall(_without_comments(block.body)))
        for line, text in _lines(block):
            for pattern in (
                _SHARED_PLACE,
                _UNSAFE_MKTEMP,
                *(re.compile(_BESIDE.replace("NAME", name)) for name in names),
            ):
                if match := pattern.search(text):
                    found = f"a temporary file that another user could create: {match[0].strip()}"
                    yield Problem(line=line, text=found, hint='work=$(mktemp -d), then "$work/name"')
                    break


def database_as_conninfo(plan: Plan) -> Iterator[Problem]:
    """vacuumdb, reindexdb, clusterdb and pg_amcheck read PGDATABASE as a connection string if it contains `=`, and so
    does every client program with the argument of `-d`: a database with such a name leads to another server."""
    for block in _shells(plan):
        for line, text in _lines(block):
            for program, rest in _CLIENT.findall(text):
                if "dbname='" in rest or _NO_DATABASE.search(rest):
                    continue
                if _DATABASE_VALUE.search(rest) or (program in _READ_CONNINFO and not _DATABASE_WORD.search(rest)):
                    found = f"{program} would read the database's name as a connection string"
                    hint = "--dbname=\"dbname='$name'\", with a backslash before each \\ and ' of the name"
                    yield Problem(line=line, text=found, hint=hint)


def _shells(plan: Plan) -> Iterator[Block]:
    for _, block in plan.blocks():
        if block.language == "sh":
            yield block


def _lines(block: Block) -> Iterator[tuple[int, str]]:
    """Yield the lines of its code with their numbers: without comments, continued lines joined."""
    partial, start = "", 0
    for at, text in enumerate(_without_comments(block.body).splitlines(), start=block.line + 1):
        start = start if partial else at
        if text.endswith("\\"):
            partial += text[:-1] + " "
            continue
        yield start, partial + text
        partial = ""
    if partial:
        yield start, partial


def _without_comments(body: str) -> str:
    """Return the code without comments and without the text of here-documents (their lines stay, empty)."""
    return _COMMENT.sub("", _documents(body)[0])


def _documents(body: str) -> tuple[str, list[tuple[str, bool, str]]]:
    """Return the body with its here-documents emptied, and per here-document: word, whether it is quoted, text."""
    lines = body.split("\n")
    last = {line.strip("\t"): at for at, line in enumerate(lines)}
    kept: list[str] = []
    found: list[tuple[str, bool, str]] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        kept.append(line)
        at += 1
        match = _HERE.search(line)
        if match is None or last.get(match[2], -1) < at:
            continue
        end = next(later for later in range(at, len(lines)) if lines[later].strip("\t") == match[2])
        found.append((match[2], bool(match[1]), "\n".join(lines[at:end])))
        kept += [""] * (end - at)
        at = end
    return "\n".join(kept), found


def _bare(text: str) -> str:
    """Return the line without quoted text (but with the commands inside it) and without the patterns of a case."""
    kept = _DOUBLE.sub(lambda quoted: " ".join(re.findall(r"\$\(.*\)", quoted[0])), _QUOTED.sub("''", text))
    return _CASES.sub("", re.sub(r"\[\[[^\[]*?\]\]", "", kept))


# Rules for SQL.

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
# An unclosed one matches up to the end; otherwise each of them would be searched to the end again.
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
"""`extract(epoch from now())` and similar: no table follows."""
_LONGEST_CALL = 400
"""Characters searched before `from` in such a call, or before a value in a command."""
_PSQL = re.compile(r"(?<![:\w]):(?:''|\"\"|[a-z_]\w*)", re.IGNORECASE)


def pasted_sql_value(plan: Plan) -> Iterator[Problem]:
    """A value must reach SQL as a bound parameter, `%(name)s`, or as a quoted identifier, `%(name)I`; never as part of
    the text, where a quote in it would end the literal."""
    for block, line, text in _statements(plan):
        for found, hint in _pasted_in_sql(text):
            yield Problem(line=line if block.language != "sql" else _line(block, found, line),
                          text=f"a value is pasted into SQL: {found}", hint=hint)  # fmt: skip
        for match in _LETTERLESS.finditer(_bare_sql(text)):
            found, name = match[0], match[1]
            yield Problem(line=line if block.language != "sql" else _line(block, found, line),
                          text=f"{found} has no format letter",
                          hint=f"write %({name})s for a value, %({name})I for an identifier")  # fmt: skip


def _pasted_in_sql(text: str) -> Iterator[tuple[str, str]]:
    bare = _SQL_COMMENT.sub(" ", text)
    if match := re.search(r"\{\{[^\n]{0,200}?\}\}|\$\{?RB_\w+\}?", bare):
        yield match[0], "write %(name)s for a value, %(name)I for an identifier"
    for literal in _TEXT.finditer(bare):
        if match := re.search(r"%\(([\w.]+)\)[sIRL]", literal[0]):
            yield match[0], f"it is inside quotes: remove the quotes; %({match[1]})s is bound as a value"
    for name in _NAMED.finditer(_TEXT.sub("''", bare)):
        if match := re.search(r"%\(([\w.]+)\)[sIRL]", name[0]):
            yield match[0], f"write %({match[1]})I without quotes"
    if match := _PSQL.search(_NAMED.sub('""', _TEXT.sub("''", bare))):
        yield match[0], "that is psql syntax; write %(name)s"
    if match := re.search(r"%s\b", _TEXT.sub("''", bare)):
        yield match[0], "name it: %(name)s"


def unbound_command(plan: Plan) -> Iterator[Problem]:
    """The server binds values only in SELECT, INSERT, UPDATE, DELETE, MERGE, VALUES, WITH and TABLE; a command such as
    ALTER needs them as quoted literals, `%(name)L`."""
    for block, line, text in _statements(plan):
        bare = _bare_sql(text).strip()
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
    """A check, measurement, preview or condition must not change anything: a rehearsal runs it too, and repeatedly."""
    for block, line, text in _statements(plan):
        is_read_only = block.kind not in (*ACTING_KINDS, "undo") or text is not block.body
        bare = _bare_sql(text)
        if is_read_only and (match := _WRITES.search(bare) or _NO_QUERY.match(bare)):
            what = "condition" if text is not block.body else block.kind
            yield Problem(line=line if text is not block.body else _line(block, match[0], line),
                          text=f"the {what} would change something: {' '.join(match[0].split())}",
                          hint="use a block change")  # fmt: skip


def no_schema(plan: Plan) -> Iterator[Problem]:
    """SQL of a runbook runs with search_path `pg_catalog, pg_temp`, so that the owner of a database cannot change what
    a name means: a table outside pg_catalog needs its schema."""
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
                yield Problem(line=_line(block, name, line), text=f"{name} has no schema",
                              hint=f"write public.{name}, or the schema it is in")  # fmt: skip


def several_statements(plan: Plan) -> Iterator[Problem]:
    """A block must hold one statement: after a failure it would be unknown which of several took effect."""
    for _, line, text in _statements(plan):
        bare = _bare_sql(text).strip().rstrip(";")
        if ";" in bare:
            yield Problem(line=line, text="the block holds several statements", hint="write one block per statement")


def own_transaction(plan: Plan) -> Iterator[Problem]:
    """A change runs in a transaction that the console begins and ends, so that its outcome can be verified."""
    for block, line, text in _statements(plan):
        if match := _TRANSACTION.match(_SQL_COMMENT.sub(" ", text)):
            hint = "remove it: every change is a transaction" if block.kind in ("change", "undo") else ""
            yield Problem(line=line, text=f"{match[1].upper()} begins or ends a transaction", hint=hint)


def _bare_sql(text: str) -> str:
    """Return SQL without comments, and without the text of literals and quoted names."""
    return _NAMED.sub('""', _TEXT.sub("''", _SQL_COMMENT.sub(" ", text)))


def _statements(plan: Plan) -> Iterator[tuple[Block, int, str]]:
    """Yield every piece of SQL with its block and first line."""
    for _, block in plan.blocks():
        if block.language == "sql":
            yield block, block.line + 1, block.body
        yield from ((block, block.line, test.text) for test in block.conditions() if test.language == "sql")


def _line(block: Block, found: str, otherwise: int) -> int:
    for at, text in enumerate(block.body.splitlines(), start=block.line + 1):
        if found.split()[0] in text:
            return at
    return otherwise
