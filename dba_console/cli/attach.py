"""`dba-console attach`: open the console on a running agent, also as a second operator."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dba_console.agent.find_or_start import RunningAgent, list_agents, start_agent
from dba_console.agent.protocol import RunBegin, RunResume, RunWatch
from dba_console.cli.config_file import LoadedConfig, load_config
from dba_console.cli.formatting import format_columns, print_json
from dba_console.cli.options import Json, new_app
from dba_console.cli.stdout import put
from dba_console.cli.target_resolution import known_target, resolve_target
from dba_console.core.config import Config
from dba_console.core.errors import ConnectError, ExitCode, UsageError
from dba_console.core.target import looks_like_conninfo
from dba_console.core.units import human_duration
from dba_console.tui.terminal import ScreenOptions, require_terminal

# Opening the screen on a running agent or on a recording. The screen module is loaded only when needed.

RunRequest = RunBegin | RunResume | RunWatch


def open_agent(
    wait_for_socket: Callable[[], Path],
    reconnect: Callable[[], Path],
    name: str,
    config: Config,
    run_request: RunRequest | None = None,
) -> int:
    """Open the console on an agent and return the exit code.

    `wait_for_socket` waits for its socket; `reconnect` finds or starts an agent after each lost connection.
    `run_request`: a run to request and show at once.
    """
    require_terminal(config.screen.colours)
    import dba_console.tui.app as screen

    return screen.run_console(
        screen.live_feed(wait_for_socket, reconnect, name),
        replace(_screen_options(config, None), run_request=run_request),
    )


def open_session(recordings: Sequence[tuple[Path, str]], at: str | None, config: Config) -> int:
    """Open the console on recordings, each with its name, at the TIME `at` of the first or at its start."""
    require_terminal(config.screen.colours)
    import dba_console.tui.app as screen

    return screen.run_console(screen.replay_feed(recordings), _screen_options(config, at))


def _screen_options(config: Config, at: str | None) -> ScreenOptions:
    screen = config.screen
    return ScreenOptions(screen.mouse, screen.colours, screen.ascii, at, tuple(config.runbooks.path), config.jobs)


app = new_app("Open the console on a running agent.")


@app.command()
def attach(
    agent: Annotated[
        str | None,
        typer.Argument(metavar="AGENT", help="Target name, key or unique prefix, or a connection string."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the running agents instead.")] = False,
    json: Json = False,
) -> int:
    """Attach to a running agent; asks which one if several run and none is named.

    Agents belong to the user who started them; agents of other users are not listed.
    """
    agents = list_agents()
    if list_ or json:
        return _print_agents(agents, as_json=json)
    loaded = load_config()
    chosen = choose_agent(agents, agent, loaded, ask=_ask_which if sys.stdin.isatty() else None)
    return open_agent(lambda: chosen.path, lambda: _start_next_agent(chosen, loaded), chosen.target, loaded.config)


def _start_next_agent(agent: RunningAgent, loaded: LoadedConfig) -> Path:
    """Return the socket of a new agent of the same target. Raises ConnectError if it cannot be started from here."""
    target = known_target(agent.key, agent.target, agent.conninfo, loaded)
    if target is None:
        raise ConnectError(
            "no agent runs, and its server cannot be reached with this environment (PGHOST, PGSERVICE, …)",
            hint="`dba-console DSN` starts an agent",
        )
    return start_agent(target, loaded.config).wait()


def choose_agent(
    agents: Sequence[RunningAgent],
    wanted: str | None,
    loaded: LoadedConfig,
    *,
    ask: Callable[[Sequence[RunningAgent]], RunningAgent] | None,
) -> RunningAgent:
    """Return the named agent. Raises ConnectError if none runs, UsageError if the choice is ambiguous."""
    if not agents:
        raise ConnectError("no agent runs for this user", hint="`dba-console DSN` starts one and opens the console")
    found = list(agents) if wanted is None else _matching_agents(agents, wanted, loaded)
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{agent.target} ({agent.key})" for agent in found or agents)
    if not found:
        raise ConnectError(f"no agent runs for {wanted!r}", hint=f"running: {names}")
    if ask is not None:
        return ask(found)
    raise UsageError(f"{len(found)} agents run", hint=f"name one of: {names}")


def _matching_agents(agents: Sequence[RunningAgent], wanted: str, loaded: LoadedConfig) -> list[RunningAgent]:
    if looks_like_conninfo(wanted):
        key = resolve_target(wanted, loaded).key
        return [agent for agent in agents if agent.key == key]
    exact = [agent for agent in agents if wanted in (agent.target, agent.key)]
    return exact or [agent for agent in agents if agent.key.startswith(wanted) or agent.target.startswith(wanted)]


def _print_agents(agents: Sequence[RunningAgent], *, as_json: bool) -> int:
    if as_json:
        for agent in agents:
            print_json({"key": agent.key, "target": agent.target, "pid": agent.pid, "session": agent.session,
                      "consoles": agent.consoles, "started_us": agent.started_us})  # fmt: skip
        return ExitCode.OK
    put(_agents_table(agents) if agents else "no agent runs for this user")
    return ExitCode.OK


def _agents_table(agents: Sequence[RunningAgent]) -> str:
    now = time.time()
    rows = [
        [str(number), agent.target, agent.key, str(agent.pid), human_duration(now - agent.started_us / 1e6),
         str(agent.consoles), Path(agent.session).name if agent.session else "-"]
        for number, agent in enumerate(agents, 1)
    ]  # fmt: skip
    return format_columns(["", "target", "key", "pid", "running", "consoles", "session"], rows, right=[0, 3, 4, 5])


def _ask_which(agents: Sequence[RunningAgent]) -> RunningAgent:
    print(_agents_table(agents), file=sys.stderr)
    print(f"which agent? [1-{len(agents)}] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    if not answer.isdigit() or not 1 <= int(answer) <= len(agents):
        raise UsageError(f"agent {answer!r} is not in the list", hint=f"enter a number from 1 to {len(agents)}")
    return agents[int(answer) - 1]
