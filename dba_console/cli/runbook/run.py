"""`dba-console runbook run` and `rehearse`: a document walked through, by the agent, with whoever sits here."""

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
from dba_console.core.errors import SessionError, UsageError
from dba_console.core.paths import trust_problem
from dba_console.core.target import Target
from dba_console.recording.run_reader import StoredRun, read_run, resolve_run
from dba_console.recording.run_verification import compare_with_sessions

RunDsn = Annotated[
    str | None,
    typer.Option("--dsn", metavar="DSN", help="The server; as for the console. Default: libpq's environment."),
]
Confirm = Annotated[
    list[str] | None,
    typer.Option(
        "--confirm",
        metavar="STEP[/BLOCK]=TEXT",
        help="What a step asks for, or one block of it alone; may be repeated.",
    ),
]
Choose = Annotated[
    list[str] | None,
    typer.Option(
        "--choose",
        metavar="STEP[/BLOCK]=COLUMN=VALUE",
        help="Rows a step acts on, and on no others: all, none, or by a value; may be repeated.",
    ),
]
LeaveOut = Annotated[
    list[str] | None,
    typer.Option(
        "--leave-out", metavar="STEP[/BLOCK]=COLUMN=VALUE", help="Rows a step does not act on; may be repeated."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Answer what only wants to be read (ack), and nothing else.")]
YesToChecks = Annotated[bool, typer.Option("--yes", help="Run the shell checks of a document that is not shipped.")]
Plain = Annotated[bool, typer.Option("--plain", help="Lines of text, also on a terminal; answers from standard input.")]


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
    """Walk a runbook. The agent runs it: this command may end, and the run goes on.

    Without a terminal, questions are answered by --confirm and --yes; the first one without an answer ends the run.
    Exit code 7: it failed or was ended; 8: something was refused, or not confirmed.
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
    """Run the checks, measurements and previews of a runbook; show what everything else would do, and change nothing.

    Shell checks of a document that is not shipped are asked about once: they can do whatever their author wrote.
    Passing a rehearsal does not promise success.
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


# `dba-console runbook resume`: go on with a run whose agent was killed, or come back to one that waits.

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, its beginning or its last four signs, or last.")]


def resume(
    run: Run = "last",
    dsn: RunDsn = None,
    input: Inputs = None,
    confirm: Confirm = None,
    choose: Choose = None,
    leave_out: LeaveOut = None,
    yes: Yes = False,
    plain: Plain = False,
    json: Json = False,
) -> int:
    """Go on with a run that came to no end, from its journal; or follow one that is under way.

    What ended while nobody looked is settled by evidence, or by you. Nothing is done twice.
    """
    loaded = load_config()
    stored_run = read_run(resolve_run(run, sessions_directory(loaded.config)))
    if not stored_run.live:
        stored_run = compare_with_sessions(stored_run)
    if stored_run.ended is not None:
        raise SessionError(f"the run {stored_run.about.run} has ended: {stored_run.ended.text}")
    if stored_run.damage is not None:
        raise SessionError(
            f"the run {stored_run.about.run} cannot go on: {stored_run.damage}",
            hint="find out what was done (`dba-console session show` has the events), then begin a new run",
        )
    target = run_target(stored_run, dsn, loaded)
    selections = parse_row_selections(choose or (), leave_out or (), stored_run.plan)
    answers = GivenAnswers(parse_confirmations(confirm or (), stored_run.plan), yes=yes, selections=selections)
    options = RunClientOptions(answers=answers, plain=plain, json=json)
    if stored_run.live:
        return request_and_follow(target, loaded.config, RunWatch(run=stored_run.about.run), options)
    secrets = {} if stored_run.plan is None else read_inputs(
        stored_run.plan, parse_inputs(input), ask=sys.stdin.isatty() and not answers.is_given, secrets_only=True
    )  # fmt: skip
    return request_and_follow(target, loaded.config, RunResume(run=stored_run.about.run, inputs=secrets), options)


def run_target(stored_run: StoredRun, dsn: str | None, loaded: LoadedConfig) -> Target:
    """The target the run was begun on: as `dsn` names it, as configured, or as the run's journal kept it.

    Raises UsageError where `dsn` names another one, and where none is known.
    """
    key = stored_run.about.target_key
    if dsn is not None:
        target = resolve_target(dsn, loaded)
        if target.key != key:
            raise UsageError(
                f"the run {stored_run.about.run} was begun on {stored_run.about.target}, and that is not {target.name}",
                hint="name the connection it was begun with",
            )
        return target
    # A journal that others may write could lead this user's password to a server of theirs.
    conninfo = stored_run.about.conninfo if trust_problem(stored_run.directory) is None else ""
    known = known_target(key, stored_run.about.target, conninfo, loaded)
    if known is None:
        raise UsageError(
            f"the run {stored_run.about.run} was begun on {stored_run.about.target}, which is not known here",
            hint="name its connection with --dsn",
        )
    return known
