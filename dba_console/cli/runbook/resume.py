"""`dba-console runbook resume`: go on with a run whose agent was killed, or come back to one that waits."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dba_console.agent.protocol import RunResume, RunWatch
from dba_console.cli.config_file import LoadedConfig, load_config, sessions_directory
from dba_console.cli.options import Json
from dba_console.cli.runbook.arguments import Inputs, parse_inputs
from dba_console.cli.runbook.run import Choose, Confirm, LeaveOut, Plain, RunDsn, Yes
from dba_console.cli.running.answers import GivenAnswers, parse_confirmations, parse_row_selections
from dba_console.cli.running.inputs import read_inputs
from dba_console.cli.running.request_run import RunClientOptions, request_and_follow
from dba_console.cli.target_resolution import known_target, resolve_target
from dba_console.errors import SessionError, UsageError
from dba_console.path_trust import trust_problem
from dba_console.session.run_listing import resolve_run
from dba_console.session.run_reader import StoredRun, read_run
from dba_console.session.run_verification import compare_with_sessions
from dba_console.target import Target

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
