"""`python -m dba_console.agent`: an agent without a terminal, started by a console. Reads its request from stdin."""

from __future__ import annotations

import os
import sys

import msgspec

from dba_console.agent.launch import LaunchAnswer, LaunchRequest
from dba_console.errors import ConsoleError
from dba_console.redact import redact
from dba_console.target import Target


def main() -> int:
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=LaunchRequest)
    target = Target(request.name, request.key, request.conninfo, request.host_panels)
    answered = False

    def answer(reply: LaunchAnswer) -> None:
        nonlocal answered
        if not answered:
            answered = True
            os.write(1, msgspec.json.encode(reply) + b"\n")
            _let_go_of_the_starter()

    from dba_console.agent.run import run_agent

    try:
        return run_agent(target, request.config, ready=lambda: answer(LaunchAnswer(ok=True)))
    except ConsoleError as error:
        answer(LaunchAnswer(ok=False, message=redact(error.message), hint=error.hint, code=int(error.code)))
        return int(error.code)


def _let_go_of_the_starter() -> None:
    """Nothing is kept that belongs to the console's terminal or process."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


if __name__ == "__main__":
    sys.exit(main())
