"""Asking the agent something of a finding, and waiting for its word."""

from __future__ import annotations

import time

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.agent.protocol import Acknowledge, EventMessage, Notice, Silence
from dba_console.cli.stdout import put
from dba_console.errors import ConnectError, ExitCode, UsageError
from dba_console.panels.text_elements import clean

ANSWER_TIMEOUT_S = 5.0
_ANSWER_KINDS = ("finding.acknowledged", "finding.silenced", "finding.unsilenced")


def send_finding_request(client: AgentClient, request: Acknowledge | Silence) -> int:
    """Send the request and print the agent's answer. Raises UsageError where it refuses, ConnectError where none comes.

    Closes the client.
    """
    sent_us = time.time_ns() // 1000
    try:
        client.send(request)
        until = time.monotonic() + ANSWER_TIMEOUT_S
        while (left := until - time.monotonic()) > 0:
            message = client.receive(left)
            if isinstance(message, Notice) and message.kind == "refused":
                raise UsageError(message.text, hint="`dba-console findings list` shows what is open")
            if isinstance(message, EventMessage) and _is_answer(message, request, sent_us):
                put(clean(message.event.text))
                return ExitCode.OK
    except AgentConnectionLost as lost:
        raise ConnectError(f"the agent went away: {lost}", hint="run the command again") from None
    finally:
        client.close()
    raise ConnectError(f"the agent has not answered for {ANSWER_TIMEOUT_S:.0f} s", hint="is it stopped (SIGSTOP)?")


def _is_answer(message: EventMessage, request: Acknowledge | Silence, sent_us: int) -> bool:
    event = message.event
    same = event.details.get("id") == request.finding
    # The agent sends its last events to whoever attaches: an older word on the same finding is no answer.
    return event.kind in _ANSWER_KINDS and same and event.wall_us >= sent_us - 1000
