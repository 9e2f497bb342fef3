"""`python -m dba_console.agent`: an agent without a terminal, started by a console. Reads its request from stdin."""

from __future__ import annotations

# ruff: noqa: E402  # the fast start must run before the other imports
from dba_console.core.fast_start import begin_fast_start

begin_fast_start()

import os
import sys
from pathlib import Path

import msgspec

from dba_console.agent.find_or_start import LaunchAnswer, LaunchRequest, log_path
from dba_console.core.decoding import from_json
from dba_console.core.errors import ConsoleError, ExitCode
from dba_console.core.redact import redact


def main() -> int:
    os.chdir("/")  # never load files from the caller's directory, and keep no mount busy
    request = from_json(sys.stdin.buffer.read(), LaunchRequest)
    try:
        return _run(request)
    except ConsoleError as error:
        return _report_start_failure(request, error)
    except Exception as error:
        _write_traceback(error)
        failure = _resource_limit_error(error) or ConsoleError(
            f"the agent failed: {type(error).__name__}", hint=f"{log_path()} has the report"
        )
        failure.code = ExitCode.UNSUPPORTED
        return _report_start_failure(request, failure)


def _run(request: LaunchRequest) -> int:
    from dba_console.agent.agent_process import run_agent

    return run_agent(
        request.target,
        request.config,
        foreground=request.foreground,
        for_s=request.for_s,
        sessions=None if request.sessions is None else Path(request.sessions),
        ready=_close_stdin if request.foreground else _ready,
    )


def _report_start_failure(request: LaunchRequest, error: ConsoleError) -> int:
    """Report why no agent started, to the process that started it."""
    if request.foreground:
        print(f"error: {redact(str(error))}", file=sys.stderr)
    else:
        _answer(LaunchAnswer(ok=False, message=redact(error.message), hint=error.hint, code=int(error.code)))
    return int(error.code)


def _resource_limit_error(error: Exception) -> ConsoleError | None:
    """Return an error that names the resource limit which kept the agent from starting, or None."""
    import errno
    import resource

    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return ConsoleError(f"too few open files for the agent: the limit is {soft}", hint="`ulimit -n 1024` raises it")
    no_memory = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    if no_memory or "can't start new thread" in str(error):
        memory, _ = resource.getrlimit(resource.RLIMIT_AS)
        threads, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        limits = ", ".join(f"{what} {'none' if soft < 0 else soft}" for what, soft in (
            ("address space in bytes (ulimit -v)", memory), ("processes (ulimit -u)", threads)))  # fmt: skip
        return ConsoleError(f"too little memory or too few threads for the agent: its limits are {limits}")
    return None


def _write_traceback(error: Exception) -> None:
    """Append the traceback to the log, without local variables, which may hold a connection string."""
    import traceback  # loaded only when needed

    text = redact("".join(traceback.format_exception(error)))
    descriptor = os.open(log_path(), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.write(descriptor, text.encode(errors="replace"))
    os.close(descriptor)


def _ready() -> None:
    """Answer the console that started us, then release its terminal and standard streams."""
    _answer(LaunchAnswer(ok=True))
    _close_stdin()
    os.dup2(0, 1)
    os.chdir("/")


def _answer(answer: LaunchAnswer) -> None:
    try:
        os.write(1, msgspec.json.encode(answer) + b"\n")
    except BrokenPipeError:
        pass  # the console that started us has ended


def _close_stdin() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)


if __name__ == "__main__":
    sys.exit(main())
