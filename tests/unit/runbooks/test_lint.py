"""Every rule of the lint: what it refuses, and the nearest thing that it lets pass."""

from __future__ import annotations

import pytest

from dba_console.actions.registry import ACTIONS
from dba_console.runbooks.compile import check_text
from dba_console.runbooks.lint import LINT_RULES
from tests.unit.runbooks.short_runbooks import book, fence, plan_of, rules, steps, told

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


def until(rest: str) -> str:
    return fence("toml {wait}", f'until = "locks.waiting == 0"\n{rest}')


REFUSED: dict[str, list[tuple[str, str]]] = {
    "masked-error": [
        (book(fence("sh {check}", "pg_isready || true")), book(fence("sh {check}", "pg_isready || exit 1"))),
        (book(fence("sh {check}", "x=$(a 2>/dev/null)\ntest -n \"$x\"")), book(fence("sh {check}", "test -n \"$x\""))),
        (book(fence("sh {check}", "a &>/dev/null")), book(fence("sh {check}", "a >/dev/null"))),
        (book(fence("sh {check}", "lag=$(a || echo 0)")), book(fence("sh {check}", "# a || echo 0\na"))),
        (book(fence("sh {check}", "a\nexit 0")), book(fence("sh {check}", "a && exit 0\nexit 1"))),
        (book(fence("sh {check}", "a; exit 0")), book(fence("sh {check}", "a; exit 1"))),
        (book(fence("sh {check}", "a || { true; }")), book(fence("sh {check}", "a || { exit 1; }"))),
        (book(fence("sh {check}", "set +e\na")), book(fence("sh {check}", "set -e\na"))),
        (book(fence("sh {check}", "a ||\\\n  true")), book(fence("sh {run confirm=yes undo=none}", "a || true"))),
    ],
    "pipefail": [
        (book(fence("sh {check}", 'test "$(a | b)" = c')), book(fence("sh {check}", 'test "a | b" = c'))),
        (book(fence("sh {check}", "case x in\n a) b | c ;;\nesac")),
         book(fence("sh {check}", "case x in\n a|b) d ;;\nesac\ncat <<X\na | b\nX\nc"))),
        (book(fence("sh {run confirm=yes}", "pg_dump app | gzip > /b/x.gz")),
         book(fence("sh {run confirm=yes}", "set -euo pipefail\npg_dump app | gzip > /b/x.gz"))),
        (book(fence("sh {check}", "a | grep -q b")), book(fence("sh {check}", "grep -q 'a|b' /etc/x"))),
        (book(fence("sh {check}", "a \\\n | b")), book(fence("sh {check}", "a || b"))),
        (book(fence("sh {check}", "# set -o pipefail\na | b")), book(fence("sh {check}", "set -o pipefail\na | b"))),
    ],
    "guessed-file": [
        (book(fence("sh {run confirm=yes}", "set -o pipefail\nf=$(ls -t /b/*.gz | head -1)")),
         book(fence("sh {run confirm=yes}", "set -o pipefail\nls -l /b | head -20"))),
    ],
    "pasted-value": [
        (book(fence("sh {check}", "test {{path}}")), book(fence("sh {check}", "test -n {path}"))),
        (book(fence("sh {check}", "test -f $RB_path"), head=PATH),
         book(fence("sh {check}", "test -f \"$RB_path\""), head=PATH)),
        (book(fence("sh {check}", "eval \"rm $RB_path\""), head=PATH),
         book(fence("sh {check}", "printf %s \"${RB_path}\""), head=PATH)),
        (book(fence("sh {check}", "bash -c \"test -f '$RB_path'\""), head=PATH),
         book(fence("sh {check}", "bash -c 'test -f \"$1\"' x y"), fence("sh {check}", "a \"$RB_path\""), head=PATH)),
        (book(fence("sh {check}", "psql -c \"select '$RB_path'\""), head=PATH),
         book(fence("sh {check}", "psql -v path=\"$RB_path\" -f x.sql"), head=PATH)),
        (book(fence("sh {check}", "psql <<X\nselect '$RB_path'\nX\na"), fence("sh {check}", 'a "$RB_path"'), head=PATH),
         book(fence("sh {check}", "psql <<'X'\nselect 1\nX\na"), fence("sh {check}", 'a "$RB_path"'), head=PATH)),
    ],
    "pasted-sql": [
        (book(fence("sql {check}", "select '{{name}}' = 'a'")),
         book(fence("sql {check}", "select '{1}'::int[] = '{1}'"))),
        (book(fence("sql {check}", "select x = '%(who)s' from public.t"), head=WHO),
         book(fence("sql {check}", "select x = %(who)s from public.t"), head=WHO)),
        (book(fence("sql {check}", "select true from \"%(who)s\""), head=WHO),
         book(fence("sql {check}", "select true from %(who)I"), head=WHO)),
        (book(fence("sql {check}", "select x = :who from public.t")),
         book(fence("sql {check}", "select x::text = 'a' from public.t"))),
        (book(fence("sql {check}", "select x = :'who' from public.t")),
         book(fence("sql {check}", "select ':who' = '' -- :x"))),
        (book(fence("sql {check}", "select x = %s from public.t")),
         book(fence("sql {check}", "select format('%s', 1) = '1'"))),
    ],
    "unbound-command": [
        (book(fence("sql {change confirm=yes}", "alter role %(who)I connection limit %(n)s"), head=WHO + N),
         book(fence("sql {change confirm=yes}", "alter role %(who)I connection limit %(n)L"), head=WHO + N)),
    ],
    "writing-check": [
        (book(fence("sql {check}", "do $$ begin null; end $$")), book(fence("sql {check}", "-- all\n(select true)"))),
        (book(fence("sql {check}", "copy t to '/x'")), book(fence("sql {check}", "select e'\\' drop table :x' = ''"))),
        (book(fence("sql {check}", "select pg_terminate_backend(1)")),
         book(fence("sql {check}", "select query <> 'drop table' from public.t"))),
        (book(fence("sql {preview}", "delete from public.t returning a")),
         book(fence("sql {preview}", "select updated from public.t"))),
        (book(fence("expr {check done=\"sql: drop table public.t\"}", "memory.free_bytes > 1")),
         book(fence("expr {check done=\"sql: select true\"}", "memory.free_bytes > 1"))),
    ],
    "no-schema": [
        (book(fence("sql {change confirm=yes}", "update orders set note = ''")),
         book(fence("sql {change confirm=yes}", "update public.orders set note = 'delete from t'"))),
        (book(fence("sql {check}", "with a as (select 1) select true from a join b on true")),
         book(fence("sql {check}", "with a as (select 1) select true from a join pg_class on true"))),
        (book(fence("sql {change confirm=yes}", "create table t(i int)")),
         book(fence("sql {check}", "select count(*) > 0 from generate_series(1, 2)"))),
        (book(fence("sql {check}", "select true from \"Odd name\"")),
         book(fence("sql {check}", "select extract(day from now()) > 1 or a is distinct from b from (select 1) v"))),
    ],
    "several-statements": [
        (book(fence("sql {change confirm=yes}", "delete from public.a; delete from public.b")),
         book(fence("sql {change confirm=yes}", "delete from public.a where b = ';'; -- ; all"))),
    ],
    "own-transaction": [
        (book(fence("sql {change confirm=yes}", "-- all\nCommit")),
         book(fence("sql {change transaction=no confirm=yes}", "rollback prepared 'x'"))),
    ],
    "unconfirmed": [
        (book(fence("sql {change}", "delete from public.t")), book(ACT)),
        (book(fence("sh {run}", "restart")), book(fence("sh {run role=monitor}", "pg_amcheck"))),
        (book(fence("toml {action drop-caches}", "level = 1")),
         book(fence("toml {confirm type:target}"), fence("toml {action drop-caches}", "level = 1"))),
        (book(fence("toml {confirm}")), book(fence("toml {confirm yes}"))),
    ],
    "nothing-to-count": [
        (book(fence("sql {change confirm=type:name}", "delete from public.t")),
         book(fence("toml {action drop-slot confirm=type:name}", 'slot = "old"'))),
        (book(fence("sql {change confirm=type:count}", "delete from public.t")),
         book(PREVIEW, fence("sql {change confirm=type:count}", "delete from public.t where a in (select %(rows)s)"))),
    ],
    "undo-past-no-return": [
        (book(LEAVES, UNDO, heading="A {point_of_no_return}"), book(LEAVES, UNDO)),
    ],
    "half-an-undo": [
        (steps(A=f"{LEAVES}\n\n{UNDO}", B=LEAVES), steps(A=f"{LEAVES}\n\n{UNDO}", B=f"{LEAVES}\n\n{UNDO}")),
        (steps(A=f"{LEAVES}\n\n{UNDO}", B=ACT),
         steps(A=f"{LEAVES}\n\n{UNDO}", B=fence("sql {change confirm=yes undo=none}", "delete from public.t"))),
    ],
    "guarded-by-nothing": [
        (book(fence("sql {change role=monitor confirm=yes}", "delete from public.t")), book(ACT)),
    ],
    "preview-unused": [
        (book(fence("sql {change each confirm=yes}", "delete from public.t")),
         book(PREVIEW, fence("sql {change each confirm=yes}", "delete from public.t where a = %(pid)s"))),
        (book(fence("sql {change of=other confirm=yes}", "delete from public.t")),
         book(PREVIEW, fence("sql {change of=idle confirm=yes}", "delete from public.t"))),
        (book(HOMES, EVERYWHERE, fence("sql {change each confirm=yes}", "drop table %(name)R")),
         book(HOMES, EVERYWHERE, fence("toml {action vacuum confirm=yes}", 'rows = "%(tables)s"'))),
    ],
    "chosen-rows": [
        (book(CHOSEN, fence("sql {change confirm=yes}", "delete from public.t")),
         book(CHOSEN, fence("sql {change each confirm=yes}", "delete from public.t where a = %(pid)s"))),
        (book(CHOSEN.replace("as lost", "as gone"), EACH), book(CHOSEN, EACH)),
    ],
    "unbounded-wait": [
        (book(until("")), book(until('timeout = "5m"'))),
        (book(fence("toml {wait}", 'every = "5s"')), book(fence("toml {wait}", 'hold_for = "30m"'))),
        (book(fence("toml {wait}", 'until_time = "25:00"')), book(fence("toml {wait}", 'until_time = "03:30"'))),
    ],
    "endless-repeat": [
        (book(CHECK, fence("toml {repeat}", 'every = "5s"')),
         book(CHECK, fence("toml {repeat}", 'every = "5s"\ntimes = 3'))),
        (book(CHECK, fence("toml {repeat}", 'every = "5s"\nask = true\nfrom = "nowhere"')),
         book(CHECK, fence("toml {repeat}", 'every = "5s"\nask = true\nfrom = "a-step"'))),
    ],
    "no-such-step": [
        (steps(A=fence("toml {choose}", OPTIONS.format("nowhere")), B=CHECK),
         steps(A=fence("toml {choose}", OPTIONS.format("b")), B=CHECK)),
        (steps(A=CHECK, B=fence("toml {choose}", OPTIONS.format("a"))),
         steps(A=fence("toml {choose}", OPTIONS.format("end")))),
        (book(CHECK, heading="A {then=b}"), book(CHECK, heading="A {then=end}")),
    ],
    "unreached": [
        (book(CHECK, heading="A {branch}"),
         steps(**{"A": fence("toml {choose}", OPTIONS.format("b")), "B {branch}": CHECK})),
    ],
    "empty-step": [(book(), book(CHECK))],
    "no-such-finding": [
        (book(CHECK, head='answers = ["reclaim-stal"]\n'), book(CHECK, head='answers = ["reclaim-stall"]\n')),
        (book(fence("expr {check}", "not finding('nothing')")),
         book(fence("expr {check}", "not finding('lock-queue')"))),
    ],
    "unused-input": [(book(CHECK, head=WHO), book(fence("sql {check}", "select %(who)s = ''"), head=WHO))],
    "undeclared": [
        (book(fence("sql {check}", "select %(who)s = ''")),
         book(fence("sql {check}", "select %(who)s = ''"), head=WHO)),
        (book(fence("sh {check}", "a \"$RB_pth\""), fence("sh {check}", "a \"$RB_path\""), head=PATH),
         book(fence("sh {check}", "a \"$RB_path\""), head=PATH)),
        (book(fence("sh {check}", "a \"${RB_pth:-}\""), fence("sh {check}", "a \"$RB_path\""), head=PATH),
         book(fence("sh {check}", "a \"${RB_path:-}\""), head=PATH)),
        (book(fence('sql {change confirm=type:"%(woh)s" undo=none}', "delete from public.t")),
         book(fence('sql {change confirm=type:"%(who)s" undo=none}', "delete from public.t"), head=WHO)),
        (book(fence("toml {wait}", 'hold_for = "%(long)s"')), book(fence("toml {wait}", 'hold_for = "5m"'))),
    ],
    "no-braces": [
        (book(CHECK, fence("sql", "select 1")), book(CHECK, fence("sql {example}", "select 1"))),
        (book(CHECK, fence("bash", "ls")), book(CHECK, fence("text", "ls"))),
    ],
    "same-key": [
        (book(fence("toml {choose}", TWO_OPTIONS.format("a"))), book(fence("toml {choose}", TWO_OPTIONS.format("b")))),
    ],
    "expression": [
        (book(fence("expr {check}", "memory.free_byts > 1GB")), book(CHECK)),
        (book(fence("expr {check}", "connections.used")), book(fence("expr {check}", "target.local"))),
        (book(fence("expr {check}", "target.local and not connections.used")),
         book(fence("expr {check}", "not target.local"))),
    ],
}  # fmt: skip
CASES = [(rule, *pair) for rule, pairs in REFUSED.items() for pair in pairs]


@pytest.mark.parametrize(("rule", "bad", "good"), CASES, ids=[case[0] for case in CASES])
def test_a_lint_rule_refuses_the_bad_example_and_accepts_the_good_one(rule: str, bad: str, good: str) -> None:
    assert rules(bad) == {rule}, told(bad)
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
        (
            fence("toml {action signal-backend confirm=yes}", 'verb = "cancel"\nrows = [{pid = 1}]'),
            "rows: Object",
        ),
    ],
)
def test_an_action_must_exist_and_have_these_settings(block: str, problem: str) -> None:
    [found] = check_text(book(block), "book.md", ACTIONS).problems
    assert found.rule == "action"
    assert problem in f"{found.text} ({found.hint})"


def test_an_unused_input_is_reported_on_its_own_line() -> None:
    (line,) = told(book(CHECK, head='[inputs.who]\ntype = "role"\n'))
    assert line.startswith("5: input who is never used")


@pytest.mark.parametrize(
    ("before", "head", "said"),
    [
        ("", '[inputs.x]\ntype = "secret"\n', "asks for x, which is secret"),
        ("", '[inputs.x]\ntype = "text"\nrequired = false\n', "asks for x, which is optional"),
        (fence("toml {input as=x}", 'type = "text"'), "", "asks for x, which is not an input of the runbook"),
    ],
)
def test_a_confirmation_accepts_only_an_input_that_is_shown_and_has_a_value(before: str, head: str, said: str) -> None:
    [line] = told(book(before, fence('sql {change confirm=type:"%(x)s" undo=none}', "delete from public.t"), head=head))
    assert said in line


def test_a_preview_in_several_databases_names_one_before_it() -> None:
    (line,) = told(book(EVERYWHERE, HOMES))
    assert line.startswith("9: there is no preview 'homes' before this one")
    assert told(book(HOMES, EVERYWHERE)) == []


def test_an_unknown_finding_is_reported_on_the_line_that_names_it() -> None:
    (line,) = told(book(CHECK, head='answers = ["reclaim-stal"]\n'))
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
    assert "pasted-value" in rules(book(fence("sh {check}", code), head=PATH))


@pytest.mark.parametrize("code", NOT_TAKEN)
def test_a_bound_value_passes(code: str) -> None:
    assert "pasted-value" not in rules(book(fence("sh {check}", code), head=PATH))


def test_a_number_contains_no_code() -> None:
    assert rules(book(fence("sh {check}", '[[ "$RB_n" -gt 5 ]]'), head=N)) == set()


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
    document = book(CHECK, fence("sql {change confirm=yes undo=none}", statement), head='[inputs.who]\ntype = "text"\n')
    [line] = told(document)
    assert f"write {hint}" in line


def test_a_reference_without_its_type_letter_is_refused_and_a_like_pattern_is_not_one() -> None:
    head = '[inputs.who]\ntype = "text"\n'
    [line] = told(book(fence("sql {check}", "select 'a' like %(who) || %(who)s as holds"), head=head))
    assert "%(who) has no format letter" in line and "%(who)s for a value" in line
    assert rules(book(fence("sql {check}", "select 'a' like '%(who)%' || %(who)s as holds"), head=head)) == set()
