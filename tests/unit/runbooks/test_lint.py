"""Every rule of the lint: what it refuses, and the nearest thing that it lets pass."""

from __future__ import annotations

import pytest

from dba_console.actions.registry import ACTIONS
from dba_console.runbooks.compile import check_text
from dba_console.runbooks.lint import LINT_RULES
from tests.unit.runbooks.short_runbooks import fence, plan_of, problem_lines, refusing_rules, runbook_text, steps

CHECK = fence("expr {check}", "memory.free_bytes > 1GB")
PREVIEW = fence("sql {preview as=idle}", "select pid, backend_start from pg_stat_activity")
CHOSEN = fence("sql {preview as=idle chosen=lost}", "select pid, state is null as lost from pg_stat_activity")
EACH = fence("sql {change each confirm=yes}", "delete from public.t where a = %(pid)s")
ACT = fence("sql {change confirm=yes}", "delete from public.t")
HOMES = fence("sql {preview as=homes}", "select datname from pg_database")
EVERYWHERE = fence("sql {preview as=tables databases=homes}", "select 'a.b' as name")
LEAVES = fence("sh {run confirm=yes}", "systemctl restart app")
PATH = '[inputs.path]\ntype = "path"\n'
WHO = '[inputs.who]\ntype = "role"\n'
N = '[inputs.n]\ntype = "int"\n'
OPTIONS = 'question = "?"\noptions = [{{key = "a", text = "b", goto = "{}"}}]'
TWO_OPTIONS = (
    'question = "?"\noptions = [{{key = "a", text = "x", goto = "next"}}, {{key = "{}", text = "y", goto = "end"}}]'
)
UNDO = fence("sh {undo}", "systemctl restart other")


def sh(script: str, head: str = "") -> str:
    """A runbook with this script as its check; `head` are further lines of its head, here and below."""
    return runbook_text(fence("sh {check}", script), head=head)


def sql(query: str, head: str = "") -> str:
    return runbook_text(fence("sql {check}", query), head=head)


def expr(condition: str) -> str:
    return runbook_text(fence("expr {check}", condition))


def change(statement: str, head: str = "") -> str:
    """A runbook with this statement as its confirmed change."""
    return runbook_text(fence("sql {change confirm=yes}", statement), head=head)


def until(rest: str) -> str:
    return fence("toml {wait}", f'until = "locks.waiting == 0"\n{rest}')


REFUSED: dict[str, list[tuple[str, str]]] = {
    "masked-error": [
        (sh("pg_isready || true"), sh("pg_isready || exit 1")),
        (sh('x=$(a 2>/dev/null)\ntest -n "$x"'), sh('test -n "$x"')),
        (sh("a &>/dev/null"), sh("a >/dev/null")),
        (sh("lag=$(a || echo 0)"), sh("# a || echo 0\na")),
        (sh("a\nexit 0"), sh("a && exit 0\nexit 1")),
        (sh("a; exit 0"), sh("a; exit 1")),
        (sh("a || { true; }"), sh("a || { exit 1; }")),
        (sh("set +e\na"), sh("set -e\na")),
        (sh("a ||\\\n  true"), runbook_text(fence("sh {run confirm=yes undo=none}", "a || true"))),
    ],
    "pipefail": [
        (sh('test "$(a | b)" = c'), sh('test "a | b" = c')),
        (sh("case x in\n a) b | c ;;\nesac"), sh("case x in\n a|b) d ;;\nesac\ncat <<X\na | b\nX\nc")),
        (
            runbook_text(fence("sh {run confirm=yes}", "pg_dump app | gzip > /b/x.gz")),
            runbook_text(fence("sh {run confirm=yes}", "set -euo pipefail\npg_dump app | gzip > /b/x.gz")),
        ),
        (sh("a | grep -q b"), sh("grep -q 'a|b' /etc/x")),
        (sh("a \\\n | b"), sh("a || b")),
        (sh("# set -o pipefail\na | b"), sh("set -o pipefail\na | b")),
    ],
    "guessed-file": [
        (
            runbook_text(fence("sh {run confirm=yes}", "set -o pipefail\nf=$(ls -t /b/*.gz | head -1)")),
            runbook_text(fence("sh {run confirm=yes}", "set -o pipefail\nls -l /b | head -20")),
        )
    ],
    "pasted-value": [
        (sh("test {{path}}"), sh("test -n {path}")),
        (sh("test -f $RB_path", PATH), sh('test -f "$RB_path"', PATH)),
        (sh('eval "rm $RB_path"', PATH), sh('printf %s "${RB_path}"', PATH)),
        (
            sh("bash -c \"test -f '$RB_path'\"", PATH),
            runbook_text(
                fence("sh {check}", "bash -c 'test -f \"$1\"' x y"), fence("sh {check}", 'a "$RB_path"'), head=PATH
            ),
        ),
        (sh("psql -c \"select '$RB_path'\"", PATH), sh('psql -v path="$RB_path" -f x.sql', PATH)),
        (
            runbook_text(
                fence("sh {check}", "psql <<X\nselect '$RB_path'\nX\na"), fence("sh {check}", 'a "$RB_path"'), head=PATH
            ),
            runbook_text(
                fence("sh {check}", "psql <<'X'\nselect 1\nX\na"), fence("sh {check}", 'a "$RB_path"'), head=PATH
            ),
        ),
    ],
    "temporary-file": [
        (sh('f=$(mktemp)\na > "$f.sql"'), sh('f=$(mktemp)\na > "$f"')),
        (sh('f="$(mktemp /x/XXXXXX)"\na > "${f}2"'), sh('f=$(mktemp -d)\na > "$f/sql"')),
        (sh('f=$(mktemp -q)\na > "${f%.*}.sql"'), sh('f=$(mktemp -qd)\na > "$f/${f##*/}"')),
        (sh("a > /tmp/list"), sh("a < /tmp/list")),
        (sh("tee -- /var/tmp/x"), sh("tee -- /backup/x")),
        (sh('a >> "${TMPDIR:-/tmp}/x"'), sh("ls /tmp")),
        (sh("f=$(mktemp -u)"), sh("f=$(mktemp)")),
    ],
    "conninfo-name": [
        (sh('PGDATABASE="$RB_path" vacuumdb --analyze-only', PATH), sh('PGDATABASE="$RB_path" psql -X -f x.sql', PATH)),
        (sh('vacuumdb -j 2 --dbname="$RB_path"', PATH), sh("vacuumdb --dbname=\"dbname='${RB_path//x/y}'\"", PATH)),
        (sh("exec pg_amcheck"), sh("pg_amcheck --all")),
        (
            sh('psql -d "$RB_path" -f x.sql', PATH),
            runbook_text(
                fence("sh {check}", "reindexdb -d app; vacuumdb app"), fence("sh {check}", 'a "$RB_path"'), head=PATH
            ),
        ),
        (sh('pg_dumpall -g --database="$RB_path"', PATH), sh('reindexdb --help; test "$RB_path" = vacuumdb', PATH)),
    ],
    "pasted-sql": [
        (sql("select '{{name}}' = 'a'"), sql("select '{1}'::int[] = '{1}'")),
        (sql("select x = '%(who)s' from public.t", WHO), sql("select x = %(who)s from public.t", WHO)),
        (sql('select true from "%(who)s"', WHO), sql("select true from %(who)I", WHO)),
        (sql("select x = :who from public.t"), sql("select x::text = 'a' from public.t")),
        (sql("select x = :'who' from public.t"), sql("select ':who' = '' -- :x")),
        (sql("select x = %s from public.t"), sql("select format('%s', 1) = '1'")),
    ],
    "unbound-command": [
        (
            change("alter role %(who)I connection limit %(n)s", WHO + N),
            change("alter role %(who)I connection limit %(n)L", WHO + N),
        )
    ],
    "writing-check": [
        (sql("do $$ begin null; end $$"), sql("-- all\n(select true)")),
        (sql("copy t to '/x'"), sql("select e'\\' drop table :x' = ''")),
        (sql("select pg_terminate_backend(1)"), sql("select query <> 'drop table' from public.t")),
        (
            runbook_text(fence("sql {preview}", "delete from public.t returning a")),
            runbook_text(fence("sql {preview}", "select updated from public.t")),
        ),
        (
            runbook_text(fence('expr {check done="sql: drop table public.t"}', "memory.free_bytes > 1")),
            runbook_text(fence('expr {check done="sql: select true"}', "memory.free_bytes > 1")),
        ),
    ],
    "no-schema": [
        (change("update orders set note = ''"), change("update public.orders set note = 'delete from t'")),
        (
            sql("with a as (select 1) select true from a join b on true"),
            sql("with a as (select 1) select true from a join pg_class on true"),
        ),
        (change("create table t(i int)"), sql("select count(*) > 0 from generate_series(1, 2)")),
        (
            sql('select true from "Odd name"'),
            sql("select extract(day from now()) > 1 or a is distinct from b from (select 1) v"),
        ),
    ],
    "several-statements": [
        (change("delete from public.a; delete from public.b"), change("delete from public.a where b = ';'; -- ; all"))
    ],
    "own-transaction": [
        (
            change("-- all\nCommit"),
            runbook_text(fence("sql {change transaction=no confirm=yes}", "rollback prepared 'x'")),
        )
    ],
    "unconfirmed": [
        (runbook_text(fence("sql {change}", "delete from public.t")), runbook_text(ACT)),
        (runbook_text(fence("sh {run}", "restart")), runbook_text(fence("sh {run role=monitor}", "pg_amcheck --all"))),
        (
            runbook_text(fence("toml {action drop-caches}", "level = 1")),
            runbook_text(fence("toml {confirm type:target}"), fence("toml {action drop-caches}", "level = 1")),
        ),
        (runbook_text(fence("toml {confirm}")), runbook_text(fence("toml {confirm yes}"))),
    ],
    "nothing-to-count": [
        (
            runbook_text(fence("sql {change confirm=type:name}", "delete from public.t")),
            runbook_text(fence("toml {action drop-slot confirm=type:name}", 'slot = "old"')),
        ),
        (
            runbook_text(fence("sql {change confirm=type:count}", "delete from public.t")),
            runbook_text(
                PREVIEW, fence("sql {change confirm=type:count}", "delete from public.t where a in (select %(rows)s)")
            ),
        ),
    ],
    "undo-past-no-return": [(runbook_text(LEAVES, UNDO, heading="A {point_of_no_return}"), runbook_text(LEAVES, UNDO))],
    "half-an-undo": [
        (steps(A=f"{LEAVES}\n\n{UNDO}", B=LEAVES), steps(A=f"{LEAVES}\n\n{UNDO}", B=f"{LEAVES}\n\n{UNDO}")),
        (
            steps(A=f"{LEAVES}\n\n{UNDO}", B=ACT),
            steps(A=f"{LEAVES}\n\n{UNDO}", B=fence("sql {change confirm=yes undo=none}", "delete from public.t")),
        ),
    ],
    "guarded-by-nothing": [
        (runbook_text(fence("sql {change role=monitor confirm=yes}", "delete from public.t")), runbook_text(ACT))
    ],
    "preview-unused": [
        (
            runbook_text(fence("sql {change each confirm=yes}", "delete from public.t")),
            runbook_text(PREVIEW, fence("sql {change each confirm=yes}", "delete from public.t where a = %(pid)s")),
        ),
        (
            runbook_text(fence("sql {change of=other confirm=yes}", "delete from public.t")),
            runbook_text(PREVIEW, fence("sql {change of=idle confirm=yes}", "delete from public.t")),
        ),
        (
            runbook_text(HOMES, EVERYWHERE, fence("sql {change each confirm=yes}", "drop table %(name)R")),
            runbook_text(HOMES, EVERYWHERE, fence("toml {action vacuum confirm=yes}", 'rows = "%(tables)s"')),
        ),
    ],
    "chosen-rows": [
        (
            runbook_text(CHOSEN, fence("sql {change confirm=yes}", "delete from public.t")),
            runbook_text(CHOSEN, fence("sql {change each confirm=yes}", "delete from public.t where a = %(pid)s")),
        ),
        (runbook_text(CHOSEN.replace("as lost", "as gone"), EACH), runbook_text(CHOSEN, EACH)),
    ],
    "unbounded-wait": [
        (runbook_text(until("")), runbook_text(until('timeout = "5m"'))),
        (runbook_text(fence("toml {wait}", 'every = "5s"')), runbook_text(fence("toml {wait}", 'hold_for = "30m"'))),
        (
            runbook_text(fence("toml {wait}", 'until_time = "25:00"')),
            runbook_text(fence("toml {wait}", 'until_time = "03:30"')),
        ),
    ],
    "endless-repeat": [
        (
            runbook_text(CHECK, fence("toml {repeat}", 'every = "5s"')),
            runbook_text(CHECK, fence("toml {repeat}", 'every = "5s"\ntimes = 3')),
        ),
        (
            runbook_text(CHECK, fence("toml {repeat}", 'every = "5s"\nask = true\nfrom = "nowhere"')),
            runbook_text(CHECK, fence("toml {repeat}", 'every = "5s"\nask = true\nfrom = "a-step"')),
        ),
    ],
    "no-such-step": [
        (
            steps(A=fence("toml {choose}", OPTIONS.format("nowhere")), B=CHECK),
            steps(A=fence("toml {choose}", OPTIONS.format("b")), B=CHECK),
        ),
        (
            steps(A=CHECK, B=fence("toml {choose}", OPTIONS.format("a"))),
            steps(A=fence("toml {choose}", OPTIONS.format("end"))),
        ),
        (runbook_text(CHECK, heading="A {then=b}"), runbook_text(CHECK, heading="A {then=end}")),
    ],
    "unreached": [
        (
            runbook_text(CHECK, heading="A {branch}"),
            steps(**{"A": fence("toml {choose}", OPTIONS.format("b")), "B {branch}": CHECK}),
        )
    ],
    "empty-step": [(runbook_text(), runbook_text(CHECK))],
    "no-such-finding": [
        (
            runbook_text(CHECK, head='answers = ["reclaim-stal"]\n'),
            runbook_text(CHECK, head='answers = ["reclaim-stall"]\n'),
        ),
        (expr("not finding('nothing')"), expr("not finding('lock-queue')")),
    ],
    "unused-input": [(runbook_text(CHECK, head=WHO), sql("select %(who)s = ''", WHO))],
    "undeclared": [
        (sql("select %(who)s = ''"), sql("select %(who)s = ''", WHO)),
        (
            runbook_text(fence("sh {check}", 'a "$RB_pth"'), fence("sh {check}", 'a "$RB_path"'), head=PATH),
            sh('a "$RB_path"', PATH),
        ),
        (
            runbook_text(fence("sh {check}", 'a "${RB_pth:-}"'), fence("sh {check}", 'a "$RB_path"'), head=PATH),
            sh('a "${RB_path:-}"', PATH),
        ),
        (
            runbook_text(fence('sql {change confirm=type:"%(woh)s" undo=none}', "delete from public.t")),
            runbook_text(fence('sql {change confirm=type:"%(who)s" undo=none}', "delete from public.t"), head=WHO),
        ),
        (
            runbook_text(fence("toml {wait}", 'hold_for = "%(long)s"')),
            runbook_text(fence("toml {wait}", 'hold_for = "5m"')),
        ),
    ],
    "no-braces": [
        (runbook_text(CHECK, fence("sql", "select 1")), runbook_text(CHECK, fence("sql {example}", "select 1"))),
        (runbook_text(CHECK, fence("bash", "ls")), runbook_text(CHECK, fence("text", "ls"))),
    ],
    "same-key": [
        (
            runbook_text(fence("toml {choose}", TWO_OPTIONS.format("a"))),
            runbook_text(fence("toml {choose}", TWO_OPTIONS.format("b"))),
        )
    ],
    "expression": [
        (expr("memory.free_byts > 1GB"), runbook_text(CHECK)),
        (expr("connections.used"), expr("target.local")),
        (expr("target.local and not connections.used"), expr("not target.local")),
    ],
}
CASES = [(rule, *pair) for rule, pairs in REFUSED.items() for pair in pairs]


@pytest.mark.parametrize(("rule", "bad", "good"), CASES, ids=[case[0] for case in CASES])
def test_a_lint_rule_refuses_the_bad_example_and_accepts_the_good_one(rule: str, bad: str, good: str) -> None:
    assert refusing_rules(bad) == {rule}, problem_lines(bad)
    plan_of(good)


def test_every_lint_rule_has_a_test_case() -> None:
    assert set(LINT_RULES) - {"action"} <= set(REFUSED)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (fence("toml {action drop-cache confirm=yes}", "level = 1"), "unknown action 'drop-cache' (did you mean"),
        (fence("toml {action drop-caches confirm=yes}", "levels = 1"), "no setting 'levels' (did you mean level?)"),
        (fence("toml {action drop-caches confirm=yes}", 'level = "x"'), "level: 'x' is not one of its values"),
        (fence("toml {action drop-caches confirm=yes}", "until = {a = 1}"), "has no setting 'until'"),
        (fence("toml {action set-parameters confirm=yes}", 'scope = "role"'), "set either settings or parameter"),
        (fence("toml {action vacuum confirm=yes}", 'timeout = "soon"'), "vacuum: timeout: not a duration: 'soon'"),
        (fence("toml {action signal-backend confirm=yes}", 'verb = "cancel"\nrows = [{pid = 1}]'), "rows: Object"),
    ],
)
def test_an_action_must_exist_and_have_these_settings(block: str, problem: str) -> None:
    [found] = check_text(runbook_text(block), "book.md", ACTIONS).problems
    assert found.rule == "action"
    assert problem in f"{found.text} ({found.hint})"


def test_an_unused_input_is_reported_on_its_own_line() -> None:
    (line,) = problem_lines(runbook_text(CHECK, head='[inputs.who]\ntype = "role"\n'))
    assert line.startswith("5: input who is never used")


@pytest.mark.parametrize(
    ("before", "head", "expected"),
    [
        ("", '[inputs.x]\ntype = "secret"\n', "asks for x, which is secret"),
        ("", '[inputs.x]\ntype = "text"\nrequired = false\n', "asks for x, which is optional"),
        (fence("toml {input as=x}", 'type = "text"'), "", "asks for x, which is not an input of the runbook"),
    ],
)
def test_a_confirmation_accepts_only_an_input_that_is_shown_and_has_a_value(
    before: str, head: str, expected: str
) -> None:
    [line] = problem_lines(
        runbook_text(before, fence('sql {change confirm=type:"%(x)s" undo=none}', "delete from public.t"), head=head)
    )
    assert expected in line


def test_a_preview_in_several_databases_names_one_before_it() -> None:
    (line,) = problem_lines(runbook_text(EVERYWHERE, HOMES))
    assert line.startswith("9: there is no preview 'homes' before this one")
    assert problem_lines(runbook_text(HOMES, EVERYWHERE)) == []


def test_an_unknown_finding_is_reported_on_the_line_that_names_it() -> None:
    (line,) = problem_lines(runbook_text(CHECK, head='answers = ["reclaim-stal"]\n'))
    assert line.startswith("5: ") and "did you mean reclaim-stall?" in line


TAKEN = (
    '[[ "$RB_path" -gt 5 ]]', "(( RB_path > 5 ))", 'let "x = $RB_path"', 'test -v "$RB_path"', 'printf -v "$RB_path" x',
    'declare "$RB_path=1"', 'read -r "$RB_path" <x', 'echo "${RB_path@P}"', 'awk "BEGIN{print $RB_path}"',
    'echo "$((RB_path + 1))"', 'a["$RB_path"]=1', 'echo "${a[$RB_path]}"', 'echo "${!RB_path}"',
    'local -i n="$RB_path"',
    'sed "s/$RB_path/x/" f', 'ssh host "ls $RB_path"', 'sed "$RB_path" f', 'echo "${x:$RB_path}"', '[ -v "$RB_path" ]',
    'declare -n r="$RB_path"', 'unset "$RB_path"', '. "$RB_path"', 'x="$RB_path"; [[ $x -gt 5 ]]',
    'x="$RB_path"; y="$x"; echo "$((y))"',
)  # fmt: skip
NOT_TAKEN = (
    'test "$RB_path" -gt 5', '[[ -n "$RB_path" ]]', 'export X="$RB_path"', 'awk -v x="$RB_path" "{print}" f',
    """awk 'BEGIN{print ENVIRON["RB_path"]}'""", 'find "$RB_path" -type f', 'cp "$RB_path" /x; [[ $n -gt 5 ]]',
    'ssh "$RB_path" uptime', 'echo "${RB_path:-x}"', 'PATH="${RB_path:+$RB_path:}$PATH"', 'echo "${RB_path:0:3}"',
    'read x <"$RB_path"', 'each=$(expr 8 / "$RB_path"); echo $((each + 1))',
)  # fmt: skip


@pytest.mark.parametrize("code", TAKEN)
def test_code_built_from_a_value_is_refused(code: str) -> None:
    assert "pasted-value" in refusing_rules(sh(code, PATH))


@pytest.mark.parametrize("code", NOT_TAKEN)
def test_a_bound_value_passes(code: str) -> None:
    assert "pasted-value" not in refusing_rules(sh(code, PATH))


def test_a_number_contains_no_code() -> None:
    assert refusing_rules(sh('[[ "$RB_n" -gt 5 ]]', N)) == set()


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("alter role %(who)s connection limit 5", "%(who)I, a quoted identifier"),
        ("drop schema if exists %(who)s", "%(who)I, a quoted identifier"),
        ("alter table %(who)s set (fillfactor = 90)", "%(who)R, a quoted name with its schema"),
        ("vacuum (analyze) %(who)s", "%(who)R, a quoted name with its schema"),
        ("alter role postgres password %(who)s", "%(who)L, a quoted literal"),
    ],
)
def test_a_command_without_binding_is_reported_with_the_form_it_needs(statement: str, hint: str) -> None:
    document = runbook_text(
        CHECK, fence("sql {change confirm=yes undo=none}", statement), head='[inputs.who]\ntype = "text"\n'
    )
    [line] = problem_lines(document)
    assert f"write {hint}" in line


def test_a_reference_without_its_type_letter_is_refused_and_a_like_pattern_is_not_one() -> None:
    head = '[inputs.who]\ntype = "text"\n'
    [line] = problem_lines(sql("select 'a' like %(who) || %(who)s as holds", head))
    assert "%(who) has no format letter" in line and "%(who)s for a value" in line
    assert refusing_rules(sql("select 'a' like '%(who)%' || %(who)s as holds", head)) == set()
