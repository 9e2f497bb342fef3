"""A disk that is full or read-only under the recording: said, survived, recovered from."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dba_console.recording.layout import session_directory
from dba_console.recording.recorder import Recorder
from dba_console.recording.recording import Recording
from dba_console.recording.store import Writer
from dba_console.recording.verify import verify
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import encode_sample
from tests.clocks import HeldClock
from tests.disks import fill, mounted
from tests.requirements import require_tool
from tests.unit.recording.recordings import little_point, meta, record_samples, recorder, ticks

pytestmark = pytest.mark.root


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    with mounted("tmpfs", tmp_path / "small", "-o", "size=1m,mode=700") as place:
        yield place


def test_a_full_disk_is_reported_and_nothing_is_lost_once_there_is_space_again(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()
    write = Writer._write

    def watched(writer: Writer) -> bool:
        done = write(writer)
        if not done:
            failed.set()
        return done

    monkeypatch.setattr(Writer, "_write", watched)
    about = meta()
    heard: list[Event] = []
    made = Recorder(
        session_directory(small, about),
        about,
        HeldClock(),
        point_of=little_point,
        announce=heard.append,
        block_samples=10,
    )
    samples = ticks(60, sessions=120)
    record_samples(made, samples[:5])
    filler = fill(small)
    for sample in samples[5:]:
        made.put_sample(sample, encode_sample(sample))
    made.put_event(Event(wall_us=1, kind="mark", text="while the disk was full"))
    assert failed.wait(120)
    status = made.status()
    assert status.state == "failed"
    assert status.note is not None
    assert "no space" in status.note
    filler.unlink()
    assert made.flush(120)
    assert made.status().state == "ok"
    assert made.status().dropped == 0
    assert made.close("done")
    with closing(Recording.open(made.directory)) as recording:
        assert recording.samples == 60
        kinds = [event.kind for event in recording.events()]
    assert "recording.recovered" in kinds
    assert "mark" in kinds
    assert verify(made.directory).ok
    log = (made.directory / "session.log").read_text()
    assert len(log.splitlines()) == len(kinds)
    assert log.endswith("\n")


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "with a log of sqlite"])
def test_a_session_on_a_read_only_file_system_is_read(small: Path, closed: bool) -> None:
    made = recorder(small)
    record_samples(made, ticks(25))
    if closed:
        made.close("done")
    else:
        _abandon(made)
    subprocess.run([require_tool("mount"), "-o", "remount,ro", str(small)], check=True)
    with closing(Recording.open(made.directory)) as recording:
        assert recording.samples == 25
        assert recording.damage is None


def _abandon(made: Recorder) -> None:
    """Leave the files as a crash does: the writer's connection ends without folding its log back."""
    import shutil

    copy = made.directory.with_name("copy")
    shutil.copytree(made.directory, copy)
    made.close("done")
    shutil.rmtree(made.directory)
    (copy / "session.db-shm").unlink(missing_ok=True)
    copy.rename(made.directory)
