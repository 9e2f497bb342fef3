"""`dba-console runbook run`, `rehearse` and `resume`: the agent runs a runbook, this command follows it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dba_console.agent.protocol import RunBegin, RunResume, RunWatch
from dba_console.cli.config_file import LoadedConfig, load_config, sessions_directory
from dba_console.cli.options import Json
from dba_console.cli.runbook.arguments import Inputs, Name, find_document, known_actions, parse_inputs
from dba_console.cli.running.answers import GivenAnswers, parse_confirmations, parse_row_selections, read_inputs
from dba_console.cli.running.request_run import RunClientOptions, request_and_follow
from dba_console.cli.target_resolution import known_target, resolve_target
from dba_console.core.errors import UsageError
from dba_console.core.paths import trust_problem
from dba_console.core.target import Target
from dba_console.recording.run_reader import StoredRun, read_run, resolve_run
from dba_console.recording.run_verification import compare_with_sessions

RunDsn = Annotated[
    str | None,
    typer.Option("--dsn", metavar="DSN", help="The server, as for the console. Default: libpq's environment."),
]
Confirm = Annotated[
    list[str] | None,
    typer.Option(
        "--confirm",
        metavar="STEP[/BLOCK]=TEXT",
        help="Answer to the questions of a step or of one of its blocks; may be repeated.",
    ),
]
Choose = Annotated[
    list[str] | None,
    typer.Option(
        "--choose",
        metavar="STEP[/BLOCK]=COLUMN=VALUE",
        help="Rows a step acts on: all, none, or those with a value; may be repeated.",
    ),
]
LeaveOut = Annotated[
    list[str] | None,
    typer.Option(
        "--leave-out", metavar="STEP[/BLOCK]=COLUMN=VALUE", help="Rows a step does not act on; may be repeated."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Answer questions that need only a key; others need --confirm.")]
YesToChecks = Annotated[bool, typer.Option("--yes", help="Run the shell checks of a document that is not shipped.")]
Plain = Annotated[bool, typer.Option("--plain", help="Text lines, also on a terminal; answers from standard input.")]


def run(
    name: Name,
    dsn: RunDsn = None,
    input: Inputs = None,
    confirm: Confirm = None,
    choose: Choose = None,
    leave_out: LeaveOut = None,
    yes: Yes = False,
    plain: Plain = False,
    json: Json = False,
) -> int:
    """Run a runbook. The agent executes it: if this command ends, the run continues.

    Without a terminal, --confirm and --yes answer the questions; the first question without an answer aborts the run.
    Exit code 7: it failed or was aborted; 8: something was refused or not confirmed.
    """
    return _start_run(name, dsn, input, confirm, yes, plain, json, rehearse=False, choose=choose, leave_out=leave_out)


def rehearse(
    name: Name,
    dsn: RunDsn = None,
    input: Inputs = None,
    yes: YesToChecks = False,
    plain: Plain = False,
    json: Json = False,
) -> int:
    """Run the checks and previews of a runbook without changing anything.

    Measurements run too; for other blocks it shows what they would do.

    The shell checks of a document that is not shipped need one confirmation: they can do whatever their author wrote.
    A passed rehearsal does not guarantee success.
    """
    return _start_run(name, dsn, input, None, yes, plain, json, rehearse=True)


def _start_run(
    name: str,
    dsn: str | None,
    inputs: list[str] | None,
    confirm: list[str] | None,
    yes: bool,
    plain: bool,
    json: bool,
    *,
    rehearse: bool,
    choose: list[str] | None = None,
    leave_out: list[str] | None = None,
) -> int:
    found = find_document(name)
    plan = found.plan(known_actions())
    selections = parse_row_selections(choose or (), leave_out or (), plan)
    answers = GivenAnswers(parse_confirmations(confirm or (), plan), yes=yes, selections=selections)
    options = RunClientOptions(answers=answers, plain=plain, json=json)
    texts = read_inputs(plan, parse_inputs(inputs), ask=sys.stdin.isatty() and not answers.is_given)
    loaded = load_config()
    target = resolve_target(dsn, loaded)
    request = RunBegin(text=found.text, source=found.source, inputs=texts, mode="rehearse" if rehearse else "run")
    return request_and_follow(target, loaded.config, request, options)


# `dba-console runbook resume`: continue a run whose agent was killed, or follow a running one.

Failed = Annotated[
    str | None,
    typer.Option("--failed", metavar="retry|abort", help="Answer to the failure that the run waits with, once."),
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, unique prefix or last four characters, or last.")]


def resume(
    run: Run = "last",
    dsn: RunDsn = None,
    input: Inputs = None,
    confirm: Confirm = None,
    choose: Choose = None,
    leave_out: LeaveOut = None,
    failed: Failed = None,
    yes: Yes = False,
    plain: Plain = False,
    json: Json = False,
) -> int:
    """Resume an unfinished run from its journal, or follow a running one.

    Actions whose outcome is unknown are verified by evidence, or by you. Nothing is executed twice.
    """
    loaded = load_config()
    stored_run = read_run(resolve_run(run, sessions_directory(loaded.config)))
    if not stored_run.live:
        stored_run = compare_with_sessions(stored_run)
    stored_run.require_resumable()
    target = run_target(stored_run, dsn, loaded)
    selections = parse_row_selections(choose or (), leave_out or (), stored_run.plan)
    answers = GivenAnswers(parse_confirmations(confirm or (), stored_run.plan), yes=yes, selections=selections,
                           failed=failed)  # fmt: skip
    options = RunClientOptions(answers=answers, plain=plain, json=json)
    if stored_run.live:
        return request_and_follow(target, loaded.config, RunWatch(run=stored_run.about.run), options)
    secrets = {} if stored_run.plan is None else read_inputs(
        stored_run.plan, parse_inputs(input), ask=sys.stdin.isatty() and not answers.is_given, secrets_only=True
    )  # fmt: skip
    return request_and_follow(target, loaded.config, RunResume(run=stored_run.about.run, inputs=secrets), options)


def run_target(stored_run: StoredRun, dsn: str | None, loaded: LoadedConfig) -> Target:
    """Return the target of the run: as `dsn` names it, as configured, or as stored in the run's journal.

    Raises UsageError if `dsn` names another target, or if none is known.
    """
    key = stored_run.about.target_key
    if dsn is not None:
        target = resolve_target(dsn, loaded)
        if target.key != key:
            raise UsageError(
                f"the run {stored_run.about.run} was started on {stored_run.about.target}, not on {target.name}",
                hint="name the connection it was started with",
            )
        return target
    # A journal that other users can write could send this user's password to their server.
    conninfo = stored_run.about.conninfo if trust_problem(stored_run.directory) is None else ""
    known = known_target(key, stored_run.about.target, conninfo, loaded)
    if known is None:
        raise UsageError(
            f"the run {stored_run.about.run} was started on {stored_run.about.target}, which is unknown here",
            hint="name its connection with --dsn",
        )
    return known
