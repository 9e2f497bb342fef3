"""The table of all commands, with module and summary. A new command is a module with an `app` and a line here.

It is loaded by every start, so it imports nothing else.
"""

from __future__ import annotations

from typing import NamedTuple


class CommandEntry(NamedTuple):
    module: str
    usage: str
    summary: str


COMMANDS = {
    "attach": CommandEntry("attach", "[AGENT]", "open the console on a running agent"),
    "demo": CommandEntry("demo", "[--incident NAME]", "open the console on an embedded server under load"),
    "show": CommandEntry("show", "[PANEL…] [DSN]", "print the panels as text or JSON"),
    "record": CommandEntry("record", "[DSN]", "run the agent in the foreground, without a terminal"),
    "replay": CommandEntry("replay", "SESSION [PANEL…]", "open the console on a recording; --show: print text"),
    "session": CommandEntry("session", "list|show|…", "recordings: list, note, share, export, verify, pin"),
    "findings": CommandEntry("findings", "list|show|ack|…", "findings: list, show, ack, silence, unsilence, rules"),
    "report": CommandEntry("report", "postmortem|summary", "documents made from recordings: postmortem, summary"),
    "runbook": CommandEntry("runbook", "list|show|run|…", "runbooks: list, show, plan, rehearse, run, resume"),
    "cluster": CommandEntry("cluster", "show|check NAME", "show a cluster; check if a cutover can start"),
    "dumps": CommandEntry("dumps", "sweep|verify|…", "dumps: find the right -j, estimate, list, verify"),
    "stamp": CommandEntry("stamp", "-t TAG", "copy stdin to stdout with timestamps, like ts"),
    "check": CommandEntry("check", "[DSN]", "print the findings for monitoring (exit 0 to 3)"),
    "doctor": CommandEntry("doctor.command", "[DSN]", "check what does not work here, and how to fix it"),
    "config": CommandEntry("config_command", "show|path", "show the configuration, and the source of each value"),
    "completion": CommandEntry("completion", "bash|zsh|fish", "print the completion script for a shell"),
    "version": CommandEntry("", "", "print the version"),
}
