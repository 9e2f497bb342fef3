"""What may stand in a runbook: kinds, attributes, settings, inputs. What is unknown is refused, with what was meant."""

from __future__ import annotations

import pytest

from dba_console.recording.plan import Confirmation, plan_hash
from dba_console.runbooks.outline import full_lines, runbook_lines
from dba_console.watch.drawing.text_elements import line_text
from tests.unit.runbooks.short_runbooks import fence, only_block, plan_of, problem_lines, runbook_text, steps

CHECK = fence("expr {check}", "memory.free_bytes > 1GB")
EVERY = '[inputs.every]\ntype = "duration"\ndefault = "30m"\n'


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (fence("expr {chek}", "true"), "9: unknown kind of block 'chek' (did you mean check?)"),
        (fence("sh {rollback}", "x"), "did you mean undo?"),
        (fence("bash {check}", "x"), "9: a block check cannot have language 'bash' (write sh)"),
        (fence("{check}", "x"), "9: a block check cannot have no language"),
        (fence("sql {}", "x"), "9: the braces have no kind"),
        (fence("expr {check timout=5s}", "true"), "9: a block check has no attribute 'timout' (did you mean timeout?)"),
        (fence("expr {check timeout=5}", "true"), "9: timeout: '5' is not a duration (with its unit"),
        (fence("expr {check timeout}", "true"), "9: timeout has no value"),
        (fence("expr {check each}", "true"), "a block check has no attribute 'each' (it is for change)"),
        (fence("expr {check role=admin}", "true"), "role: 'admin' is not one of its values (it can be monitor,"),
        (fence("sql {change confirm=maybe}", "delete from public.t"), "confirm: 'maybe' is not a confirmation"),
        (fence("toml {action}", "level = 1"), "9: the action has no name"),
        (fence("toml {wait}", "until = 5"), "10: until must be a condition, not a number (as in"),
        (fence("toml {wait}", 'hold = "5s"'), "10: a block wait has no key 'hold'"),
        (fence("toml {wait}", "hold_for = 5s"), "10: the settings are not valid TOML"),
        (fence("toml {choose}", 'question = "?"'), "9: a block choose needs 'options'"),
        (fence("toml {manual}", ""), "9: a block manual needs 'text'"),
        (fence("toml {input}", 'type = "int"'), "9: an input needs a name (as in {input as=pid})"),
        (fence("sql {preview as=a-b}", "select 1"), "9: as: 'a-b' is not a name (expressions use it"),
        (fence("sql {change people=3 confirm=yes}", "delete from public.t"), "people=3 is not supported"),
        (fence("sql {check}", ""), "9: the block check is empty"),
        (fence("sh {check}", "<<a\n" * 5000), "9: the block has more than 16000 characters"),
    ],
)  # fmt: skip
def test_an_invalid_block_is_reported_with_the_probable_form(block: str, expected: str) -> None:
    assert any(expected in line for line in problem_lines(runbook_text(block))), problem_lines(runbook_text(block))


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('anwsers = ["x"]\n', "5: the runbook has no key 'anwsers' (did you mean answers?)"),
        ('[inputs.x]\ntype = "integer"\n', "inputs.x.type: 'integer' is not one of its values (did you mean int?)"),
        ('[inputs.x]\nhelp = "x"\n', "5: inputs.x needs 'type' (it can be text, int,"),
        ('[inputs.x]\ntype = "int"\ndefault = "many"\n', "x: 'many' is not a whole number"),
        ('[inputs.x]\ntype = "int"\nminimum = 3\ndefault = 2\n', "x: must be at least 3"),
        ('[inputs.x]\ntype = "choice"\n', "choices and type"),
        ('[inputs.x]\ntype = "secret"\ndefault = "x"\n', "a secret cannot have a default"),
        ('[inputs.x]\ntype = "text"\npattern = "("\n', "inputs.x.pattern: not a valid regular expression: missing"),
        ('[inputs.X-Y]\ntype = "int"\n', "inputs.X-Y: 'X-Y' is not a name of an input"),
        ('needs = ["a b"]\n', "needs: 'a b' is not a role or a program (as in"),
        ("min_version = 17\nmax_version = 14\n", "min_version is above max_version"),
        ('strict = "perhaps"\n', "strict: 'perhaps' is not yes or no"),
    ],
)
def test_an_invalid_front_matter_is_reported_with_the_probable_form(head: str, expected: str) -> None:
    assert any(expected in line for line in problem_lines(runbook_text(CHECK, head=head))), problem_lines(
        runbook_text(CHECK, head=head)
    )


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("A {point_of_no_retrun}", "did you mean point_of_no_return?"),
        ("A {point_of_no_return=yes}", "write it without a value"),
        ("A {#name}", "a step is named by its heading"),
        ("A {panels=memry}", "did you mean memory?"),
        ("A {", "invalid braces of the heading"),
        ("End", "a step cannot be named 'end'"),
    ],
)
def test_an_invalid_heading_is_reported(heading: str, expected: str) -> None:
    assert any(expected in line for line in problem_lines(runbook_text(CHECK, heading=heading))), problem_lines(
        runbook_text(CHECK, heading=heading)
    )


def test_durations_and_sizes_are_seconds_and_bytes_in_the_plan() -> None:
    settings = 'until = "locks.waiting == 0"\nhold_for = "10s"\nevery = "500ms"\ntimeout = "2m"'
    block = only_block(runbook_text(fence("toml {wait usual=90s}", settings)))
    assert block.settings == {
        "until": {"language": "expr", "text": "locks.waiting == 0"}, "hold_for_s": 10.0, "every_s": 0.5,
        "timeout_s": 120.0,
    }  # fmt: skip
    assert (block.timeout_s, block.usual_s) == (120.0, 90.0)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("ack", Confirmation(level="ack")),
        ("yes", Confirmation(level="yes")),
        ("type:target", Confirmation(level="type", text="target")),
        ('type:"drop the slot"', Confirmation(level="type", text="drop the slot")),
        ("yes people=2", Confirmation(level="yes", people=2)),
    ],
)
def test_a_confirmation_shows_what_must_be_typed(written: str, meant: Confirmation) -> None:
    assert only_block(runbook_text(fence(f"sql {{change confirm={written}}}", "delete from public.t"))).confirm == meant


def test_checks_before_the_first_change_run_before_the_start() -> None:
    act = fence("sql {change confirm=yes}", "delete from public.t")
    plan = plan_of(steps(A=CHECK, B=f"{CHECK}\n\n{act}\n\n{CHECK}", C=CHECK))
    assert [block.leading for _, block in plan.blocks()] == [True, True, False, False, False]


def test_a_check_on_an_earlier_measurement_does_not_run_before_the_start() -> None:
    measure = fence("expr {measure as=before}", "memory.free_bytes")
    plan = plan_of(runbook_text(measure, fence("expr {check}", "before.free_bytes > 1GB"), CHECK))
    assert [block.leading for _, block in plan.blocks()] == [False, False, True]


def test_a_measurement_compared_with_an_earlier_one_has_the_same_fields() -> None:
    plan = plan_of(
        runbook_text(fence("expr {measure as=before}", "memory.free_bytes"), fence("expr {measure against=before}"))
    )
    first, second = (block for _, block in plan.blocks())
    assert second.body == first.body and second.settings == {"against": "before"}


def test_a_block_has_the_list_of_inputs_and_results_it_uses() -> None:
    plan = plan_of(runbook_text(
        fence("sql {preview as=idle}", "select pid from pg_stat_activity where extract(epoch from now()) > %(every)s"),
        fence("toml {action signal-backend confirm=type:count}", 'rows = "%(idle)s"'),
        fence("sh {run as=copy confirm=yes}", 'cp "$RB_every"'),
        fence("expr {check}", "copy.exit == 0 and idle.rows < 3"),
        head=EVERY,
    ))  # fmt: skip
    assert [block.uses for _, block in plan.blocks()] == [("every",), ("idle",), ("every",), ("copy", "idle")]


def test_the_panels_of_a_step_are_those_of_its_expressions_unless_it_names_others() -> None:
    assert plan_of(runbook_text(CHECK)).steps[0].panels == ("memory",)
    assert plan_of(runbook_text(CHECK, heading="A {panels=io,disks}")).steps[0].panels == ("io", "disks")


def test_a_step_without_panels_keeps_those_of_the_step_before() -> None:
    manual = '## B\n\n```toml {manual}\ntext = "Ask."\nevidence = "who"\n```\n'
    plan = plan_of(runbook_text(CHECK, heading="A {panels=io,disks}") + "\n" + manual)
    assert [step.panels for step in plan.steps] == [("io", "disks"), ("io", "disks")]


def test_a_final_section_of_sources_is_shown_and_is_not_a_step() -> None:
    words = "Walked on PostgreSQL 15, 18.\n\n- it says so: the manual"
    plan = plan_of(steps(A=CHECK, Sources=words))
    assert ([step.id for step in plan.steps], [one.text for one in plan.sources]) == (
        ["a"], ["Walked on PostgreSQL 15, 18.", "it says so: the manual"],
    )  # fmt: skip
    assert "the manual" in "\n".join(full_lines(plan))
    assert "the manual" in "\n".join(map(line_text, runbook_lines(plan, {}, 80)))
    assert [step.id for step in plan_of(steps(A=CHECK, Sources=CHECK)).steps] == ["a", "sources"]
    assert "step sources has no block" in "".join(problem_lines(steps(A=CHECK, Sources=words, B=CHECK)))


def test_a_plan_has_the_same_hash_for_any_path_and_another_one_for_any_changed_word() -> None:
    from dba_console.runbooks.compile import compile_text

    text = runbook_text(CHECK)
    assert plan_hash(compile_text(text, "/a.md")) == plan_hash(compile_text(text, "/b/c.md"))
    assert plan_hash(compile_text(text, "/a.md")) != plan_hash(compile_text(text.replace("1GB", "2GB"), "/a.md"))
