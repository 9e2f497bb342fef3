"""Makes the recording of an incident from the real thing: `python -m dba_console.demo.recordings.make reclaim-stall`.

As root, on a host with nothing else to do. What is recorded is the run of `dba-console demo --incident NAME`, with the
findings the agent came to at the time. It happens in a namespace of its own with a host name of its own, where only the
mounts it needs are seen: a recording that is shipped tells nothing of the host it was made on.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dba_console.core.errors import ConsoleError, UsageError
from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.incidents.incident import Incident
from dba_console.demo.incidents.registry import find_incident
from dba_console.demo.practice_ground import SETTINGS, PracticeGround
from dba_console.demo.rehearsal import Rehearsal
from dba_console.recording.layout import DATABASE, LOG

HERE = Path(__file__).parent
HOST = "db2"
"""The host of story S1."""
SERVER = "recorded practice"
"""cluster_name: what the header of every screen calls the server."""
CALM_TICKS = 20
"""Twenty seconds in which nothing is wrong: what follows is seen against them, and the load's own start is long ago."""
SECONDS = 36.0
"""Of the incident: for a reclaim stall, two bouts."""
_NEEDED = ("/proc", "/sys", "/dev", "/")
_IN_NAMESPACE = "DBA_CONSOLE_RECORDING"


def main(words: list[str]) -> int:
    """Record the incident named; 0 where its finding was raised in time. Raises ConsoleError where it cannot be had."""
    if len(words) != 1:
        raise UsageError("which incident?", hint="python -m dba_console.demo.recordings.make reclaim-stall")
    if os.environ.get(_IN_NAMESPACE) is None:
        again = ["unshare", "--mount", "--uts", sys.executable, "-m", "dba_console.demo.recordings.make", *words]
        return subprocess.run(again, env={**os.environ, _IN_NAMESPACE: "1"}, check=False).returncode
    socket.sethostname(HOST)
    _hide_mounts()
    incident = find_incident(words[0])
    with tempfile.TemporaryDirectory(prefix="dba-console-recording-") as place:
        os.environ |= {"DBA_CONSOLE_SESSIONS": f"{place}/sessions", "DBA_CONSOLE_RUNTIME": f"{place}/run"}
        os.environ |= {"XDG_STATE_HOME": f"{place}/state", "XDG_CONFIG_HOME": f"{place}/config"}
        in_time = _record(incident)
        (session,) = (path for path in (Path(place) / "sessions").iterdir() if path.is_dir())
        _copy_recording(session, HERE / incident.name)
    return 0 if in_time else 1


def _hide_mounts() -> None:
    """Take out of this namespace every mount that neither the kernel's files nor anything we use lies on."""
    used = (str(HERE), sys.prefix, sys.base_prefix, tempfile.gettempdir(), *_NEEDED)
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for path in reversed(mounted):
        needed = path in _NEEDED or path.startswith(_NEEDED[:3]) or any(one.startswith(path) for one in used)
        if not needed:
            subprocess.run(["umount", "-l", path], check=False, stderr=subprocess.DEVNULL)


def _record(incident: Incident) -> bool:
    SETTINGS["cluster_name"] = SERVER
    with PracticeGround(incident=incident, say=_say) as ground:
        recorder = start_child(
            [sys.executable, "-m", "dba_console", "record", "--for", f"{SECONDS + 60:g}s", ground.dsn], output=2
        )
        try:
            rehearsal = Rehearsal(ground, incident, _say)
            if not rehearsal.wait_calm(CALM_TICKS, lambda: recorder.poll() is None):
                raise ConsoleError("the recorder ended by itself")
            rehearsal.begin()
            time.sleep(SECONDS)
            incident.end(ground)
            _say(rehearsal.verdict().sentence())
            return rehearsal.verdict().in_time
        finally:
            end_child(recorder, patience_s=20.0)


def _copy_recording(session: Path, directory: Path) -> None:
    """The recording as it is shipped: its database and its log, readable by everybody."""
    directory.mkdir(exist_ok=True)
    for name in (DATABASE, LOG):
        shutil.copy(session / name, directory / name)
        (directory / name).chmod(0o644)
    left = [path.name for path in session.iterdir() if path.name.startswith(DATABASE + "-")]
    if left:
        raise ConsoleError(f"the recording was not closed in order: {', '.join(left)} in {session}")
    _say(f"{directory / DATABASE}: {(directory / DATABASE).stat().st_size // 1024} kB")


def _say(text: str) -> None:
    print(f"recording: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ConsoleError as error:
        sys.exit(f"error: {error}")
