"""Started with another user's environment: only listed variables are kept, and files they name only if trusted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.background import wait_until
from tests.cli.console import Console

LIMIT_S = 120.0
NOBODY = 65534
CODE = re.findall(
    r"\S+",
    """
    OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES GCONV_PATH LOCPATH NLSPATH PERL5OPT PERL5LIB RUBYOPT NODE_OPTIONS
    GIT_SSH GIT_CONFIG_GLOBAL HOSTALIASES RES_OPTIONS LOCALDOMAIN TERMINFO TERMINFO_DIRS TERMCAP EDITOR VISUAL
    PAGER LESSOPEN XDG_DATA_HOME XDG_DATA_DIRS XDG_CONFIG_DIRS XDG_CACHE_HOME BASH_ENV ENV SHELLOPTS BASHOPTS PS4
    IFS CDPATH PSQLRC PSQL_EDITOR PSQL_PAGER PGLOCALEDIR PG_CONFIG PGDATA KRB5_KTNAME KRB5_CLIENT_KTNAME
    KRB5_TRACE GSS_MECH_CONFIG SSLKEYLOGFILE TEXTUAL TEXTUAL_DRIVER LD_PRELOAD LD_AUDIT PYTHONPATH PYTHONSTARTUP
    PYTHONHOME PYTHONBREAKPOINT BASH_FUNC_psql%% GLIBC_TUNABLES MALLOC_CONF ASAN_OPTIONS RSYNC_RSH SSH_ASKPASS
    SYSTEMD_EDITOR PROJ_LIB
    """,
)
RUNBOOK = """# Environment

Names of the variables that a command gets.

```toml {runbook}
id = "environment"
needs = ["server"]
```

## Look

```sh {check}
set -euo pipefail
cd PLACE
env | sed -n 's/=.*//p' > names
```
"""
SHOWN = (
    "import json, os\nfrom dba_console.core.safe_environment import sanitize_environment\n"
    "print(json.dumps([sanitize_environment(), dict(os.environ)]))"
)


def sanitized(**environ: str) -> tuple[list[str], dict[str, str]]:
    """The warnings, and the environment that is kept of the given one."""
    command = [sys.executable, "-E", "-c", SHOWN]
    given = {"PATH": os.environ["PATH"], **environ}
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    warnings, kept = json.loads(done.stdout)
    return warnings, kept


def test_no_variable_that_names_code_is_kept() -> None:
    kept = sanitized(**dict.fromkeys(CODE, "/tmp/theirs"))[1]
    assert kept.keys() <= {"PATH", "HOME", "LC_CTYPE"}, kept  # LC_CTYPE: set by Python


def test_connection_terminal_and_locale_are_kept() -> None:
    given = {
        "PGHOST": "db1", "PGPASSWORD": "secret", "PGOPTIONS": "-c work_mem=1MB", "TERM": "xterm-256color",
        "LANG": "de_DE.UTF-8", "LC_TIME": "C", "TZ": "Europe/Berlin", "SUDO_USER": "alice", "SSH_CONNECTION": "1 2 3 4",
        "DBA_CONSOLE_CONFIG": "/etc/c.toml", "RB_database": "app", "TMPDIR": "/tmp", "PGSSLROOTCERT": "system",
        "KRB5CCNAME": "KEYRING:persistent:0",
    }  # fmt: skip
    warnings, kept = sanitized(**given)
    assert given.items() <= kept.items() and warnings == []


@pytest.mark.parametrize(
    "given",
    [
        {"TZ": ":/tmp/theirs"}, {"TZ": "../theirs"}, {"LANG": "/tmp/theirs"}, {"LC_ALL": "%n"}, {"TERM": "../../x"},
        {"PGOPTIONS": "-c session_preload_libraries=/tmp/theirs.so"}, {"PGSSLKEY": "dynamic:key"},
        {"PGOPTIONS": "-c jit_provider=/tmp/theirs"},
    ],
    ids=str,
)  # fmt: skip
def test_values_that_name_paths_formats_or_libraries_are_not_kept(given: dict[str, str]) -> None:
    assert not given.items() & sanitized(**given)[1].items()


@pytest.mark.root
@pytest.mark.parametrize(
    "name",
    [
        "PGPASSFILE",
        "PGSERVICEFILE",
        "PGSYSCONFDIR",
        "PGSSLKEY",
        "KRB5CCNAME",
        "SSL_CERT_FILE",
        "TMPDIR",
        "HOME",
        "DBA_CONSOLE_PG_BINDIR",
    ],
)
def test_a_file_or_directory_of_another_user_is_ignored_and_named(name: str, tmp_path: Path) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    for place in (theirs, mine):
        place.mkdir()
        (place / "file").write_text("")
    os.chown(theirs, NOBODY, NOBODY)
    suffix = "" if name in ("TMPDIR", "HOME", "PGSYSCONFDIR", "DBA_CONSOLE_PG_BINDIR") else "/file"
    warnings, kept = sanitized(**{name: f"{theirs}{suffix}"})
    assert kept.get(name) != f"{theirs}{suffix}"
    assert warnings == [f"{name} is ignored: {theirs} belongs to nobody"]
    assert sanitized(**{name: f"{mine}{suffix}"})[1][name] == f"{mine}{suffix}"


@pytest.mark.root
def test_an_agent_and_its_console_get_nothing_of_it(cluster: Cluster, tmp_path: Path) -> None:
    console, theirs = Console(tmp_path), tmp_path / "service"
    theirs.write_text("[db]\nhost=/nowhere\n")
    os.chown(theirs, NOBODY, NOBODY)
    hostile = {name: str(tmp_path / "theirs") for name in CODE if not name.startswith(("LD_", "PYTHON", "GLIBC"))}
    book = tmp_path / "environment.md"
    book.write_text(RUNBOOK.replace("PLACE", str(tmp_path)))
    arguments = ("runbook", "rehearse", str(book), "--yes", "--dsn", cluster.dsn())
    done = console.run(*arguments, PGSERVICEFILE=str(theirs), timeout=LIMIT_S, **hostile)
    names = set((tmp_path / "names").read_text().split())
    for agent in console.run("attach", "--list", "--json", timeout=LIMIT_S).objects():
        entries = Path(f"/proc/{agent['pid']}/environ").read_bytes().split(b"\0")
        names |= {entry.split(b"=")[0].decode() for entry in entries}
        os.kill(agent["pid"], signal.SIGTERM)
        wait_until(lambda pid=agent["pid"]: not Path(f"/proc/{pid}/exe").exists(), LIMIT_S)  # type: ignore[misc]
    assert done.code == 0 and f"warning: PGSERVICEFILE is ignored: {theirs} belongs to nobody" in done.err, done
    assert {"HOME", "PATH", "DBA_CONSOLE_RUNTIME"} <= names and not names & {*CODE, "PGSERVICEFILE"}, names
