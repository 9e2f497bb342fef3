"""`dba-console runbook resume`: go on with a run whose agent was killed, or come back to one that waits."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dba_console.agent.protocol import RunResume, RunWatch
from dba_console.cli.config_file import LoadedConfig, load_config, sessions_directory
from dba_console.cli.options import Json
from dba_console.cli.runbook.common import Inputs, given
from dba_console.cli.runbook.run import Choose, Confirm, LeaveOut, Plain, RunDsn, Yes
from dba_console.cli.running.answers import Answers, confirmations, rows_named
from dba_console.cli.running.conduct import Manner, conduct
from dba_console.cli.running.inputs import gather
from dba_console.cli.targeting import known_target, resolve_target
from dba_console.errors import SessionError, UsageError
from dba_console.path_trust import trust_problem
from dba_console.session.run_listing import resolve_run
from dba_console.session.run_reader import StoredRun, read_run
from dba_console.session.run_verification import against_sessions
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
    papers = read_run(resolve_run(run, sessions_directory(loaded.config)))
    if not papers.live:
        papers = against_sessions(papers)
    if papers.ended is not None:
        raise SessionError(f"the run {papers.about.run} has ended: {papers.ended.text}")
    if papers.damage is not None:
        raise SessionError(
            f"the run {papers.about.run} cannot go on: {papers.damage}",
            hint="find out what was done (`dba-console session show` has the events), then begin a new run",
        )
    target = target_of(papers, dsn, loaded)
    which = rows_named(choose or (), leave_out or (), papers.plan)
    answers = Answers(confirmations(confirm or (), papers.plan), yes=yes, which=which)
    manner = Manner(answers=answers, plain=plain, json=json)
    if papers.live:
        return conduct(target, loaded.config, RunWatch(run=papers.about.run), manner)
    secrets = {} if papers.plan is None else gather(
        papers.plan, given(input), ask=sys.stdin.isatty() and not answers.any, secrets_only=True
    )  # fmt: skip
    return conduct(target, loaded.config, RunResume(run=papers.about.run, inputs=secrets), manner)


def target_of(papers: StoredRun, dsn: str | None, loaded: LoadedConfig) -> Target:
    """The target the run was begun on: as `dsn` names it, as configured, or as the run's journal kept it.

    Raises UsageError where `dsn` names another one, and where none is known.
    """
    wanted = papers.about.target_key
    if dsn is not None:
        target = resolve_target(dsn, loaded)
        if target.key != wanted:
            raise UsageError(
                f"the run {papers.about.run} was begun on {papers.about.target}, and that is not {target.name}",
                hint="name the connection it was begun with",
            )
        return target
    # A journal that others may write could lead this user's password to a server of theirs.
    kept = papers.about.conninfo if trust_problem(papers.directory) is None else ""
    known = known_target(wanted, papers.about.target, kept, loaded)
    if known is None:
        raise UsageError(
            f"the run {papers.about.run} was begun on {papers.about.target}, which is not known here",
            hint="name its connection with --dsn",
        )
    return known
