"""Values of a runbook's inputs: given on the command line, asked for on a terminal; secrets never in an argument."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Mapping

from dba_console.cli.stderr import print_diagnostic
from dba_console.errors import ConsoleError, UsageError
from dba_console.plans.plan import Input, Plan
from dba_console.runbook.values import as_written, typed, value_of
from dba_console.stream_masking import too_short

ENVIRONMENT_PREFIX = "DBA_CONSOLE_INPUT_"


def read_inputs(plan: Plan, given: Mapping[str, str], *, ask: bool, secrets_only: bool = False) -> dict[str, str]:
    """Every value as it was written, checked; what may be left out is left out.

    With `ask` those not given are asked for on the terminal. Raises UsageError.
    """
    texts = dict(given)
    for one in plan.inputs:
        if one.secret:
            _refuse_secret_argument(one, given)
            if (from_environment := os.environ.get(ENVIRONMENT_PREFIX + one.name.upper())) is not None:
                texts[one.name] = from_environment
        elif secrets_only:
            continue
        if one.name not in texts and ask and (text := _ask(one)) is not None:
            texts[one.name] = text
        if one.secret and one.name in texts and too_short(texts[one.name]):
            print_diagnostic(f"warning: {one.name} is too short to be masked in what is recorded")
    if secrets_only:
        unknown = set(given) - {one.name for one in plan.inputs if one.secret}
        if unknown:
            raise UsageError(f"{min(unknown)} was given when the run began", hint="a resumed run keeps its inputs")
        return texts
    typed(plan, texts)
    return texts


def _refuse_secret_argument(one: Input, given: Mapping[str, str]) -> None:
    if one.name in given:
        raise UsageError(
            f"{one.name} is a secret: every user of this host could read it in the arguments of this command (ps)",
            hint=f"leave it out and be asked for it, or set {ENVIRONMENT_PREFIX}{one.name.upper()}",
        )


def _ask(one: Input) -> str | None:
    """Ask until the value can be used; enter takes the default, where there is one. None: left out."""
    default = "" if one.default is None else f" [{as_written(one, one.default)}]"
    choices = f" ({', '.join(one.choices)})" if one.choices else ""
    help_text = f" - {one.help}" if one.help else ""
    while True:
        text = _read(f"{one.name}{choices}{help_text}{default}: ", secret=one.secret)
        if not text and (one.default is not None or not one.required):
            return None
        try:
            value_of(one, text)
            return text
        except ConsoleError as error:
            print_diagnostic(str(error))


def _read(prompt: str, *, secret: bool) -> str:
    """A line of the terminal. Raises UsageError at the end of input."""
    if secret:
        return getpass.getpass(prompt, stream=sys.stderr)
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise UsageError("the inputs were not given", hint="--input NAME=VALUE gives them beforehand")
    return line.strip()
