"""Put back what a run has set for a time, once it was given up: by what is on record, as a run of `put-back` would.

It asks who answers now instead of holding to the server the run was begun on: one that crashed meanwhile is another one
to the run and the same to what is on record.
"""

from __future__ import annotations

from pathlib import Path

from dba_console.actions.action import World
from dba_console.actions.debts import default_directory, find
from dba_console.actions.gate import Errand, Place, Planned, admit
from dba_console.actions.operator import Operator
from dba_console.actions.policy import read_only
from dba_console.actions.put_back import PutBack, PutBackSettings
from dba_console.agent.runs.controls import Controls
from dba_console.agent.runs.servers import Servers
from dba_console.agent.runs.surroundings import Surroundings
from dba_console.errors import ConnectError, ConsoleError
from dba_console.plans.plan import Block, Plan
from dba_console.redact import redact
from dba_console.runbook.requests import Outcome


def put_back(
    block: Block, directory: Path, plan: Plan, servers: Servers, controls: Controls, around: Surroundings
) -> Outcome:
    """What the run of this directory has set on the server of `block`. Never raises; unknown where that server does not
    answer, failed where something of it stays as it is. The value `put_back` says whether anything was on record."""
    begun_us = around.clock.mono_us()
    controls.begin()
    try:
        if not any(debt.run == directory.name for debt in find(default_directory()).debts):
            return Outcome(state="ok", text="nothing was on record")
        link = servers.anew(block)
        try:
            outcome = _put_back(link, directory, plan, controls, around)
        finally:
            link.close()
    except ConnectError as error:
        outcome = Outcome(state="unknown", text=redact(error.message))
    except (ConsoleError, OSError) as error:
        outcome = Outcome(state="failed", text=redact(error.message if isinstance(error, ConsoleError) else str(error)))
    finally:
        controls.end()
    machine_s = (around.clock.mono_us() - begun_us) / 1e6
    return Outcome(state=outcome.state, text=outcome.text, values={"put_back": True}, machine_s=machine_s)


def _put_back(link: Operator, directory: Path, plan: Plan, controls: Controls, around: Surroundings) -> Outcome:
    """Raises ConsoleError."""
    target, settings, acting = around.target, PutBackSettings(of="run"), PutBack()
    link.planned = link.identity()
    world = World(
        link=link, here=around.here(), clock=around.clock, run=directory.name, runbook=plan.id,
        run_directory=str(directory), target=target.name, target_key=target.key,
    )  # fmt: skip
    place = Place(link=link, config=around.config.actions, read_only=read_only(around.config, target))
    errand = Errand(kind="action", action=acting.name, target=target.name, undo=True)
    sight = admit(errand, Planned(server=link.planned), place, look=lambda: acting.look(settings, world)).sight
    if sight is None or not sight.count:
        who = link.planned.words()
        return Outcome(state="failed", text=f"what it has set is on another server than the one that answers: {who}")
    done = acting.act(settings, sight, world, controls)
    if done.state != "ok":
        link.identity()  # raises where it did not come to its end for want of a server, and then it is tried again
    return Outcome(state="ok" if done.state == "ok" else "failed", text=done.text)
