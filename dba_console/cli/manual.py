"""`python -m dba_console.cli.manual` prints docs/dba-console.1: every command with its help text."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from dba_console.cli.command_table import COMMANDS
from dba_console.cli.completion import command_group
from dba_console.cli.stamp.command import HELP as STAMP_HELP

_HEAD = r""".\" Printed by `python -m dba_console.cli.manual`; a test compares it with the program.
.TH DBA\-CONSOLE 1 "" "dba\-console" "User Commands"
.SH NAME
dba\-console \- console for a PostgreSQL host that is in trouble
.SH SYNOPSIS
.B dba\-console
[\fIDSN\fR] [\fB\-\-mouse\fR|\fB\-\-no\-mouse\fR]
.br
.B dba\-console
\fICOMMAND\fR [\fIARGUMENTS\fR]
.SH DESCRIPTION
Without a command it attaches to the agent that watches the server, starts one if none runs, and opens the screen.
\fIDSN\fR is a connection string, a URI, service=\fINAME\fR, or a target named in the configuration; without it,
libpq's environment decides. The key ? shows the keys of each screen.
.SH COMMANDS
"""
_TAIL = r""".SH EXIT STATUS
0 success; 1 internal error; 2 usage or configuration; 3 no connection; 4 permission denied; 5 not supported; 6 session
missing or damaged; 7 a runbook
failed or was aborted; 8 refused or not confirmed; 130 interrupted, or the console left a run. \fBcheck\fR exits with 0
to 3, like monitoring plugins.
.SH FILES
.I ~/.config/dba\-console/config.toml
the configuration; \fBdba\-console config path\fR prints its path.
.SH SEE ALSO
.BR psql (1),
.BR pg_dump (1),
.BR pg_restore (1)
"""


def manual() -> str:
    """Return the page in man(7) macros."""
    root = command_group(None)
    lines = [line for name in COMMANDS for line in _section(root.commands[name], name)]
    return _HEAD + "".join(f"{line}\n" for line in lines) + _TAIL


def _section(command: Any, name: str) -> Iterator[str]:
    """Yield a command and its subcommands."""
    known = COMMANDS.get(name)
    usage = [known.usage] if known is not None and known.usage else _arguments(command)
    yield f'.SS "{_escape_roff(" ".join(("dba-console", name, *usage)))}"'
    subcommands = getattr(command, "commands", {})
    if known is not None and not subcommands:
        yield _escape_roff(f"{known.summary[:1].upper()}{known.summary[1:]}.")
        yield ".PP"
    if name == "stamp":  # it has no argument parser
        yield from (".nf", *(_escape_roff(line) for line in STAMP_HELP.splitlines()), ".fi")
    elif command.help and (known is None or command.help != known.summary):
        yield from (
            _escape_roff(text) if text.strip() else ".PP" for text in inspect.cleandoc(command.help).splitlines()
        )
    for option in (one for one in command.params if one.param_type_name == "option" and one.name != "help"):
        yield ".TP"
        value = "" if option.is_flag else rf" \fI{_escape_roff(option.metavar or 'N')}\fR"
        yield rf"\fB{_escape_roff(', '.join([*option.opts, *option.secondary_opts]))}\fR{value}"
        yield _escape_roff(option.help or "")
    for below in subcommands.values():
        if not below.hidden:
            yield from _section(below, f"{name} {below.name}")


def _arguments(command: Any) -> list[str]:
    """Return the arguments, optional ones in brackets."""
    named = [(one, str(one.metavar or one.name.upper())) for one in command.params if one.param_type_name == "argument"]
    return [text if one.required or text.startswith("[") else f"[{text}]" for one, text in named]


def _escape_roff(text: str) -> str:
    """Return text with all roff instructions escaped.

    >>> print(_escape_roff(".dot -x"))
    \\&.dot \\-x
    """
    safe = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq")
    safe = "".join(sign if sign.isascii() else rf"\[u{ord(sign):04X}]" for sign in safe)
    return rf"\&{safe}" if safe.startswith((".", "'")) else safe


if __name__ == "__main__":
    print(manual(), end="")
