"""Environment and search paths of our own processes, so that they load no code that another user can write.

An operator who starts the console as root may be in a directory that others can write, with another user's environment.
So our interpreters do not load modules from the current directory, programs are not searched in directories whose files
others can replace, and of the environment only listed variables are kept: libraries read too many others that name code
(OPENSSL_CONF, GCONV_PATH, KRB5_CONFIG …).
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from dba_console.core.paths import trust_problem

STANDARD_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Directories always in the search path."""
_OURS = ("DBA_CONSOLE_", "_DBA_CONSOLE_", "RB_")
"""Prefixes of our own variables, which each reader checks."""
_PLAIN = re.compile(
    r"""
    USER | LOGNAME | SHELL | COLUMNS | LINES | NO_COLOR | FORCE_COLOR | TMUX | STY | SSH_CONNECTION |
    SSH_CLIENT | SSH_TTY | SSH_AUTH_SOCK | SUDO_USER | XDG_STATE_HOME | XDG_CONFIG_HOME | XDG_RUNTIME_DIR |
    OTEL_EXPORTER_OTLP_HEADERS | COMP_WORDS | COMP_CWORD | _TYPER_COMPLETE_ARGS | PYTHONFAULTHANDLER |
    PYTHONUTF8 | MALLOC_ARENA_MAX | PGHOST | PGHOSTADDR | PGPORT | PGDATABASE | PGUSER | PGPASSWORD |
    PGREQUIREAUTH | PGCHANNELBINDING | PGSERVICE | PGAPPNAME | PGSSLMODE | PGREQUIRESSL | PGSSLCOMPRESSION |
    PGSSLNEGOTIATION | PGSSLCERTMODE | PGSSLSNI | PGREQUIREPEER | PGSSLMINPROTOCOLVERSION |
    PGSSLMAXPROTOCOLVERSION | PGGSSENCMODE | PGKRBSRVNAME | PGGSSLIB | PGGSSDELEGATION | PGCONNECT_TIMEOUT |
    PGCLIENTENCODING | PGTARGETSESSIONATTRS | PGLOADBALANCEHOSTS | PGMINPROTOCOLVERSION |
    PGMAXPROTOCOLVERSION | PGTZ | PGDATESTYLE | PGGEQO
    """,
    re.X,
)
"""Kept as they are: they name no file that is read as code or with a secret (libpq: "Environment Variables")."""
_WORDS = frozenset(("LANG", "LANGUAGE", "TERM", "COLORTERM"))
"""Kept, with LC_* and TZ, unless their value could be a path or a format; as sudo does (sudoers(5), env_check)."""
_FILES = re.compile(
    r"""
    HOME | TMPDIR | PGPASSFILE | PGSERVICEFILE | PGSYSCONFDIR | PGSSLCERT | PGSSLKEY | PGSSLROOTCERT |
    PGSSLCRL | PGSSLCRLDIR | KRB5_CONFIG | KRB5CCNAME | SSL_CERT_FILE | SSL_CERT_DIR | DBA_CONSOLE_PG_BINDIR
    """,
    re.X,
)
"""Kept if no other user can write the file or directory they name."""
_LOADS_LIBRARY = re.compile(r"librar(?:y|ies)|jit_provider", re.I)
"""In PGOPTIONS: settings by which a superuser's session loads a library into the server."""


def python_command(module: str) -> list[str]:
    """Return the command that runs a module of this package: this interpreter, without the current directory (-P) and
    the user's own packages (-s)."""
    return [sys.executable, "-P", "-s", "-m", module]


def sanitize_environment() -> list[str]:
    """Reduce the environment to the listed variables: once, before anything is started.

    Return why variables are ignored that the operator may rely on.
    """
    ignored = [f"{name} is ignored: {why}" for name, value in os.environ.items() if (why := _problem(name, value))]
    for name in [name for name, value in os.environ.items() if not _is_kept(name, value)]:
        del os.environ[name]
    if "HOME" not in os.environ and (home := os.path.expanduser("~")).startswith("/"):
        os.environ["HOME"] = home  # as in the user database
    os.environ["PATH"] = trusted_search_path(os.environ.get("PATH", os.defpath))
    return ignored


def _is_kept(name: str, value: str) -> bool:
    if name == "TZ":
        return re.search(r"[%\s]|^:?/(?!usr/share/zoneinfo/)|\.\.", value) is None
    if name in _WORDS or name.startswith("LC_"):
        return not {*"/%"} & {*value}
    listed = name in ("PATH", "PGOPTIONS") or name.startswith(_OURS) or _PLAIN.fullmatch(name) or _FILES.fullmatch(name)
    return bool(listed) and _problem(name, value) is None


def _problem(name: str, value: str) -> str | None:
    """Return why a listed variable is not kept."""
    if name == "PGOPTIONS" and _LOADS_LIBRARY.search(value):
        return "it would load a library into the server"
    if not _FILES.fullmatch(name) or (name == "PGSSLROOTCERT" and value == "system"):
        return None
    kind, colon, rest = value.partition(":")
    if name == "KRB5CCNAME" and colon and kind not in ("FILE", "DIR"):
        return None  # a cache of the kernel or of a service
    path = rest if name == "KRB5CCNAME" and colon else value
    if name == "PGSSLKEY" and colon and not path.startswith("/"):
        return "it names an OpenSSL engine, which is a library"
    # In a directory that all may write, with the sticky bit, our own new files are safe.
    found = trust_problem(Path(path) / "file" if name == "TMPDIR" else path)
    return None if found is None else found.text


def trusted_search_path(path: str) -> str:
    """Return the directories of a search path that only root and this user may write, then STANDARD_PATH."""
    kept = [one for one in path.split(":") if os.path.isdir(one) and os.path.isabs(one) and trust_problem(one) is None]
    return ":".join(dict.fromkeys([*kept, *STANDARD_PATH]))
