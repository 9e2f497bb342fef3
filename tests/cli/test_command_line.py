"""The command line as such: help, versions, mistakes, pipes, crashes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dba_console import __version__
from dba_console.cli.error_handling import run_guarded
from dba_console.core.crash_report import CRASH_EXIT_CODE
from tests.cli.console import Console

LOADED = (
    "import sys; from dba_console.cli.app import run; run([{!r}]);"
    "print([name for name in ('textual', 'psycopg', 'typer', 'rich', 'sqlite3') if name in sys.modules])"
)


@pytest.mark.parametrize("word", ["--version", "--help"])
def test_version_and_help_load_no_library(console: Console, word: str) -> None:
    code = LOADED.format(word)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=console.environ()
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_version_is_that_of_the_package(console: Console) -> None:
    assert console.run("--version").out == f"dba-console {__version__}\n"
    assert console.run("version").out == f"dba-console {__version__}\n"


def test_help_names_every_command_with_a_summary(console: Console) -> None:
    done = console.run("--help")
    assert done.code == 0
    for name in ("attach", "demo", "show", "record", "replay", "session", "stamp", "check", "doctor", "config"):
        assert f"\n  {name} " in done.out


@pytest.mark.parametrize(
    "name", ["attach", "demo", "show", "record", "replay", "session", "stamp", "check", "doctor", "config"]
)
def test_every_command_has_help_without_escape_sequences(console: Console, name: str) -> None:
    done = console.run(name, "--help", FORCE_COLOR="1")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: dba-console {name}")
    assert "\x1b" not in done.out


def test_an_option_that_does_not_exist_is_a_usage_error_with_a_hint(console: Console) -> None:
    done = console.run("show", "--jsn")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: no such option: --jsn")
    assert "hint: see dba-console show --help" in done.err


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("sho",), "did you mean show?"),
        (("finding", "list"), "did you mean findings?"),
        (("stagin",), "did you mean staging?"),
        (("nothing-like-it",), "'dbname=nothing-like-it'"),
    ],
)
def test_a_word_that_is_neither_command_nor_target_gets_suggestions(
    console: Console, words: tuple[str, ...], reported: str
) -> None:
    console.write_config("[targets.staging]\ndsn = 'host=/nowhere'\n")
    done = console.run(*words)
    assert (done.code, done.out) == (2, "")
    assert f"error: {words[0]!r} is neither a command nor a target" in done.err and reported in done.err, done


def test_a_target_named_almost_like_a_command_is_that_target(console: Console) -> None:
    console.write_config("[targets.help]\ndsn = 'host=/nowhere'\n[targets.sho]\ndsn = 'host=/nowhere'\n")
    for name in ("help", "sho"):
        done = console.run(name)
        assert done.code == 5 and "needs a terminal" in done.err, done


@pytest.mark.parametrize("words", [("help",), ("host=db1", "--help"), ("foo", "--help"), ("-h",)])
def test_every_form_of_help_option_works(console: Console, words: tuple[str, ...]) -> None:
    done = console.run(*words)
    assert (done.code, done.err) == (0, "") and "-V, --version" in done.out, done


def test_an_invalid_number_is_reported_in_plain_words(console: Console) -> None:
    done = console.run("show", "--width", "x")
    assert (done.code, done.err.splitlines()[0]) == (2, "error: invalid value for '--width': not a valid integer"), done


def test_a_second_word_of_replay_that_is_not_a_panel_is_not_read_as_a_session(console: Console) -> None:
    done = console.run("replay", "last", "--show", "lock")
    assert done.code == 2 and "'lock' is not a panel" in done.err and "did you mean locks?" in done.err


@pytest.mark.parametrize(
    ("line", "offered"),
    [("dba-console run", ["runbook"]), ("dba-console runbook re", ["rehearse", "resume"]),
     ("dba-console show --w", ["--width"])],
)  # fmt: skip
def test_a_shell_completes_commands_and_options(console: Console, line: str, offered: list[str]) -> None:
    script = console.run("completion", "bash")
    assert script.code == 0 and "complete -o default" in script.out
    words = line.split()
    ask = f'COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _dba_console_completion "$0"; echo "${{COMPREPLY[@]}}"'
    program = console.home / "dba-console"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -m dba_console\n")
    program.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", f"{script.out}\n{ask}", str(program)], capture_output=True, text=True, check=True,
        env=console.environ(),
    )  # fmt: skip
    assert done.stdout.split() == offered


def test_completion_invoked_by_hand_shows_no_traceback(console: Console) -> None:
    console.environment["_DBA_CONSOLE_COMPLETE"] = "complete_bash"
    done = console.run()
    assert done.code == CRASH_EXIT_CODE and "Traceback" not in done.err, done


def test_a_reader_that_closes_early_is_not_an_error(console: Console) -> None:
    command = " ".join(console.command("config", "show")) + " | head -1; exit ${PIPESTATUS[0]}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=console.environ())
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_ends_no_command(console: Console, closed: str) -> None:
    script = ["sh", "-c", f'exec "$@" {closed}', "sh", *console.command("config", "show")]
    done = subprocess.run(script, capture_output=True, text=True, check=False, env=console.environ())
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full on this machine")
def test_an_output_write_error_is_reported_in_one_sentence(console: Console) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            console.command("config", "show"), stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env=console.environ(),
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "error: cannot write to standard output: No space left on device\n"


def test_a_locale_without_unicode_does_not_end_a_command(console: Console) -> None:
    done = console.run("show", "--help", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.code == 0


CRASH = """
import sys
import dba_console.cli.config_command as victim
from dba_console.cli.app import run
def load_config():
    password = "s3cret-local"
    raise RuntimeError("cannot use host=db1 password=s3cret-conninfo and s3cret-environment")
victim.load_config = load_config
sys.exit(run(["config", "show"]))
"""


def test_an_internal_error_becomes_three_lines_and_a_report_without_secrets(console: Console) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH], capture_output=True, text=True, check=False,
        env=console.environ(PGPASSWORD="s3cret-environment"),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 3
    assert "Traceback" not in done.stderr
    [report] = (console.home / "state" / "dba-console").glob("crash-*.txt")
    assert str(report) in done.stderr
    assert report.stat().st_mode & 0o777 == 0o600
    text = report.read_text()
    assert "RuntimeError" in text
    assert "load_config" in text
    assert "s3cret" not in text + done.stderr


def test_an_internal_error_is_reported_even_if_no_report_can_be_written(console: Console) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH], capture_output=True, text=True, check=False,
        env=console.environ(XDG_STATE_HOME="/proc/none"),
    )  # fmt: skip
    assert done.returncode == 1
    assert "cannot write the report" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_this_user_may_not_open_is_not_reported_as_an_internal_error(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise PermissionError(13, "Permission denied", "/srv/closed")

    assert run_guarded(command, []) == 4
    assert capsys.readouterr().err.startswith("error: permission denied: /srv/closed\nhint: ")
