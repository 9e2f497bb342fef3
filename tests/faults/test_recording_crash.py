"""A writer killed with -9 leaves a session that opens, lacks at most its last sample, and is never appended to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from dba_console.core.errors import SessionError
from dba_console.recording.layout import session_directories, session_directory
from dba_console.recording.recording import Recording
from dba_console.recording.session_lookup import continued_by
from tests.unit.recording.recordings import meta, recorder

WRITER = """
import sys
from pathlib import Path
from dba_console.watch.samples.sample import encode_sample
from tests.unit.recording.recordings import recorder, ticks
made = recorder(Path(sys.argv[1]), block=7)
for sample in ticks(5000, sessions=3):
    made.put_sample(sample, encode_sample(sample))
    assert made.flush()
    print(sample.seq, flush=True)
"""


@pytest.fixture(scope="module", params=[1, 6, 7, 8, 40])
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The session of a writer killed after at least so many samples, and the last one it had said to be durable."""
    base = tmp_path_factory.mktemp("sessions")
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(base)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    message = 0
    while message < request.param:
        message = int(writer.stdout.readline())
    os.kill(writer.pid, signal.SIGKILL)
    rest = writer.communicate()[0].split("\n")
    message = max([message, *(int(line) for line in rest[:-1] if line)])
    (directory,) = session_directories(base)
    return directory, message


def test_every_sample_reported_as_durable_is_there(killed: tuple[Path, int]) -> None:
    directory, message = killed
    with closing(Recording.open(directory)) as recording:
        assert recording.state == "crashed"
        assert recording.damage is None
        assert message <= recording.samples <= message + 1
        picture = recording.picture_at(recording.last_us)
        assert picture is not None
        assert picture.seq == recording.samples
        assert [event.kind for event in recording.events()] == ["session.start"]


def test_the_next_session_continues_it_and_does_not_change_it(killed: tuple[Path, int], tmp_path: Path) -> None:
    directory = Path(shutil.copytree(killed[0], tmp_path / killed[0].name))
    before = (directory / "session.db").read_bytes()
    continues = continued_by(directory.parent, "key1")
    assert continues == directory.name[-8:]
    assert continued_by(directory.parent, "another") is None
    about = meta(continues=continues)
    made = recorder(directory.parent, about)
    made.close("done")
    with closing(Recording.open(session_directory(directory.parent, about))) as following:
        assert following.meta is not None
        assert following.meta.continues == continues
    assert (directory / "session.db").read_bytes() == before


def test_a_recorder_never_uses_a_directory_that_contains_a_session(tmp_path: Path) -> None:
    about = meta()
    made = recorder(tmp_path, about)
    made.close("done")
    with pytest.raises(SessionError, match="already contains a session"):
        recorder(tmp_path, about)
