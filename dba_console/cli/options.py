"""Arguments and options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]
Dsn = Annotated[
    str | None,
    typer.Argument(
        metavar="DSN",
        help="Connection string, URI or service=NAME, or a target of the configuration; default: libpq's environment.",
        show_default=False,
    ),
]
SessionsOption = Annotated[
    str | None,
    typer.Option("--sessions", metavar="DIR", help="Where sessions lie, instead of the configured directory."),
]


def new_app(summary: str) -> typer.Typer:
    """An empty command. Help is plain text: it must read well in any terminal, and rich costs a tenth of a second."""
    return typer.Typer(
        help=summary,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
