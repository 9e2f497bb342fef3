"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]
Dsn = Annotated[
    str | None,
    typer.Argument(
        metavar="DSN",
        help="Connection string, URI, service=NAME, or a configured target; default: libpq's environment.",
        show_default=False,
    ),
]
SessionsOption = Annotated[
    str | None,
    typer.Option("--sessions", metavar="DIR", help="Directory of sessions, instead of the configured one."),
]


def new_app(summary: str) -> typer.Typer:
    """Return an empty command. Help is plain text for any terminal; importing rich costs a tenth of a second."""
    return typer.Typer(
        help=summary,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
