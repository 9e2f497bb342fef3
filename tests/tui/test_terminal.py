"""What a terminal can do is decided before Textual is loaded; what cannot hold a screen is refused with a way out."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from dba_console.core.errors import ExitCode, Unsupported, UsageError
from dba_console.tui.terminal import colour_depth, configure_textual, too_small, with_idle_time


@pytest.mark.parametrize(
    ("environ", "colours"),
    [
        ({"TERM": "screen"}, "16"),
        ({"TERM": "linux"}, "16"),
        ({"TERM": "xterm"}, "16"),
        ({"TERM": "screen-256color"}, "256"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "truecolor"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "mono"),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, "256"),
    ],
)
def test_the_colour_depth_follows_the_environment(environ: dict[str, str], colours: str) -> None:
    assert colour_depth(environ) == colours


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"TERM": ""}, {}])
def test_an_unsuitable_terminal_is_refused_and_show_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(Unsupported) as refused:
        colour_depth(environ)
    assert "dba-console show" in str(refused.value)
    assert refused.value.code == ExitCode.UNSUPPORTED


def test_no_terminal_at_all_is_refused() -> None:
    with pytest.raises(Unsupported, match="standard input and output are not a terminal"):
        colour_depth({"TERM": "xterm"}, not_terminals=["input", "output"])


def test_the_redirected_stream_is_named() -> None:
    with pytest.raises(Unsupported, match="standard error is not a terminal"):
        colour_depth({"TERM": "xterm"}, not_terminals=["error"])


def test_the_choice_of_the_operator_overrides_the_environment() -> None:
    assert colour_depth({"TERM": "xterm-256color"}, wanted="none") == "mono"
    with pytest.raises(UsageError, match="256, truecolor"):
        colour_depth({"TERM": "xterm"}, wanted="lots")


def test_preparing_turns_animation_off_and_leaves_term_alone() -> None:
    environ = {"TERM": "screen", "TEXTUAL": "devtools"}
    configure_textual("16", environ)
    assert environ["TERM"] == "screen"
    assert (environ["TEXTUAL_ANIMATIONS"], environ["TEXTUAL_FPS"]) == ("none", "30")
    assert environ["TEXTUAL_COLOR_SYSTEM"] == "standard"
    assert "TEXTUAL" not in environ


def test_the_smallest_useful_screen_is_forty_by_ten() -> None:
    assert too_small(39, 24) and too_small(80, 9) and not too_small(40, 10)


def test_the_entry_point_loads_no_textual_and_no_driver() -> None:
    code = (
        "import sys, dba_console.tui.app, dba_console.tui.terminal\n"
        "print(sorted({'textual', 'psycopg', 'typer', 'sqlite3'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_another_console_is_named_with_the_time_since_its_last_key() -> None:
    ours, theirs = os.openpty()
    try:
        device = os.ttyname(theirs)
        name = device.removeprefix("/dev/")
        assert with_idle_time(f"anna on {name} from 10.0.0.1") == f"anna on {name} from 10.0.0.1"
        os.utime(device, (time.time() - 302.2, time.time()))
        assert with_idle_time(f"anna on {name} from 10.0.0.1") == f"anna on {name} (idle 5m02s) from 10.0.0.1"
    finally:
        os.close(ours)
        os.close(theirs)
    assert with_idle_time("anna from 10.0.0.1") == "anna from 10.0.0.1"
    assert with_idle_time("anna on pts/nowhere") == "anna on pts/nowhere"
