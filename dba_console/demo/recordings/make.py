"""Records an incident for shipping: `python -m dba_console.demo.recordings.make reclaim-stall`.

Run as root on an idle host. It records a run of `dba-console demo --incident NAME`, with the findings the agent raised.
The run is in its own namespace with its own host name and only the mounts it needs: a shipped recording must reveal
nothing of the host it was made on.
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
from dba_console.demo.incident_detection import Rehearsal
from dba_console.demo.incidents.incident import Incident
from dba_console.demo.incidents.registry import find_incident
from dba_console.demo.practice_server import SETTINGS, PracticeGround
from dba_console.recording.layout import DATABASE, LOG, SAMPLES

HERE = Path(__file__).parent
HOST = "db2"
"""The host name that the recording shows."""
SERVER = "recorded practice"
"""cluster_name: the server's name in the header of every screen."""
CALM_TICKS = 20
"""Twenty seconds of normal operation before the incident, well after the start of the load."""
SECONDS = 36.0
"""Duration of the incident: for a reclaim stall, two freeze cycles."""
_NEEDED = ("/proc", "/sys", "/dev", "/")
_IN_NAMESPACE = "DBA_CONSOLE_RECORDING"


def main(words: list[str]) -> int:
    """Record the incident; return 0 if its finding was raised in time. Raises ConsoleError if that is not possible."""
    if len(words) != 1:
        raise UsageError("which incident?", hint="python -m dba_console.demo.recordings.make reclaim-stall")
    if os.environ.get(_IN_NAMESPACE) is None:
        again = ["unshare", "--mount", "--uts", sys.executable, "-m", "dba_console.demo.recordings.make", *words]
        return subprocess.run(again, env={**os.environ, _IN_NAMESPACE: "1"}, check=False).returncode
    socket.sethostname(HOST)
    _hide_mounts()
    incident = find_incident(words[0])
    with tempfile.TemporaryDirectory(prefix="dba-console-recording-") as scratch:
        os.environ |= {"DBA_CONSOLE_SESSIONS": f"{scratch}/sessions", "DBA_CONSOLE_RUNTIME": f"{scratch}/run"}
        os.environ |= {"XDG_STATE_HOME": f"{scratch}/state", "XDG_CONFIG_HOME": f"{scratch}/config"}
        in_time = _record(incident)
        (session,) = (path for path in (Path(scratch) / "sessions").iterdir() if path.is_dir())
        _copy_recording(session, HERE / incident.name)
    return 0 if in_time else 1


def _hide_mounts() -> None:
    """Unmount in this namespace every mount that holds neither kernel files nor anything we use."""
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
                raise ConsoleError("the recorder ended unexpectedly")
            rehearsal.begin()
            time.sleep(SECONDS)
            incident.end(ground)
            _say(rehearsal.verdict().sentence())
            return rehearsal.verdict().in_time
        finally:
            end_child(recorder, patience_s=20.0)


def _copy_recording(session: Path, directory: Path) -> None:
    """Copy the recording for shipping: its database and its log, readable by everyone."""
    directory.mkdir(exist_ok=True)
    for name in (DATABASE, SAMPLES, LOG):
        shutil.copy(session / name, directory / name)
        (directory / name).chmod(0o644)
    left = [path.name for path in session.iterdir() if path.name.startswith(DATABASE + "-")]
    if left:
        raise ConsoleError(f"the recording was not closed properly: {', '.join(left)} in {session}")
    _say(f"{directory / DATABASE}: {(directory / DATABASE).stat().st_size // 1024} kB")


def _say(text: str) -> None:
    print(f"recording: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ConsoleError as error:
        sys.exit(f"error: {error}")
