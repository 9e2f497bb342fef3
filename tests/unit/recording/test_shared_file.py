"""A shared file from anywhere: opened like a session, or refused before anything is outside its directory."""

from __future__ import annotations

import io
import stat
import zipfile
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from dba_console.core.errors import SessionError
from dba_console.recording import shared_file
from dba_console.recording.layout import DATABASE
from dba_console.recording.listing import resolve
from dba_console.recording.recording import Recording
from dba_console.recording.shared_file import MANIFEST, Manifest, extract, is_shared_file, pack
from tests.unit.recording.recordings import record, ticks

NAME = "20261120T145307Z-host_1-1a2b3c4d"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    session = record(tmp_path, ticks(12))
    with (tmp_path / "case.zip").open("wb") as out:
        pack(session, Manifest(session=session.name, level="none", program_version="0"), out)
    return tmp_path / "case.zip"


def made_by_hand(
    path: Path, members: dict[str, bytes], *, mode: int = stat.S_IFREG, format: int = 1, session: str = NAME
) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        manifest = Manifest(format=format, session=session, level="none", program_version="0")
        archive.writestr(MANIFEST, msgspec.json.encode(manifest))
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = (mode | 0o777) << 16, zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return path


def test_a_shared_file_is_a_session_wherever_one_is_named(file: Path, tmp_path: Path) -> None:
    assert is_shared_file(file)
    session = resolve(str(file), tmp_path / "no sessions here")
    with closing(Recording.open(session)) as recording:
        assert (recording.samples, recording.state) == (12, "closed")
    assert {path.stat().st_mode & 0o777 for path in session.iterdir()} == {0o600}
    assert session.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "name",
    [
        "../x", "/etc/x", f"{NAME}/../../x", f"{NAME}/./session.db", f"{NAME}/runs/../session.db", "other/session.db",
        f"{NAME}/session.db/x", f"{NAME}/run", f"{NAME}/out", f"{NAME}/session.lock", f"{NAME}\\session.db",
        f"{NAME}/runs/a/b/c/d/e/f/g", f"{NAME}//session.db", f"{NAME}/runs/x/",
    ],
)  # fmt: skip
def test_no_other_name_is_extracted(name: str, tmp_path: Path) -> None:
    path = made_by_hand(tmp_path / "x.zip", {name: b"x"})
    (tmp_path / "inside").mkdir()
    with pytest.raises(SessionError, match="is not a file of a session"):
        extract(path, tmp_path / "inside")
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["inside", "x.zip"]


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFDIR, stat.S_IFCHR])
def test_no_link_and_no_device_is_extracted(mode: int, tmp_path: Path) -> None:
    path = made_by_hand(tmp_path / "x.zip", {f"{NAME}/{DATABASE}": b"/etc/passwd"}, mode=mode)
    with pytest.raises(SessionError, match="is not a file of a session"):
        extract(path, tmp_path)


def test_a_session_that_is_too_large_is_refused_before_it_is_extracted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made_by_hand(tmp_path / "x.zip", {f"{NAME}/{DATABASE}": bytes(1 << 20)})
    monkeypatch.setattr(shared_file, "MAX_BYTES", 1 << 19)
    with pytest.raises(SessionError, match="are not a session"):
        extract(path, tmp_path)
    monkeypatch.setattr(shared_file, "MAX_BYTES", 1 << 62)
    monkeypatch.setattr(shared_file, "MAX_FILES", 0)
    with pytest.raises(SessionError, match="are not a session"):
        extract(path, tmp_path)


def test_a_member_is_not_larger_than_it_states(tmp_path: Path) -> None:
    path = made_by_hand(tmp_path / "x.zip", {f"{NAME}/{DATABASE}": bytes(1 << 20)})
    data = path.read_bytes()
    stated = (1 << 20).to_bytes(4, "little")
    path.write_bytes(data.replace(stated, (10).to_bytes(4, "little")))
    with pytest.raises(SessionError, match="damaged"):
        extract(path, tmp_path)
    assert all(one.stat().st_size <= 10 for one in tmp_path.rglob(DATABASE))


def test_a_cut_or_changed_file_is_called_damaged(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    for number, broken in enumerate((data[:-40], data[: len(data) // 2], _with_flipped_byte(data))):
        file.write_bytes(broken)
        (tmp_path / str(number)).mkdir()
        with pytest.raises(SessionError, match="damaged"):
            extract(file, tmp_path / str(number))


def _with_flipped_byte(data: bytes) -> bytes:
    at = data.find(b"session.samples") + 200
    return data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]


def test_a_file_of_a_newer_format_says_so(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="has format 2"):
        extract(made_by_hand(tmp_path / "x.zip", {}, format=2), tmp_path)
    with pytest.raises(SessionError, match="not the name of a session"):
        extract(made_by_hand(tmp_path / "y.zip", {}, session="../x"), tmp_path)


def test_another_zip_is_not_a_shared_file(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x", b"x")
    (tmp_path / "x.zip").write_bytes(out.getvalue())
    assert not is_shared_file(tmp_path / "x.zip")
    with pytest.raises(SessionError, match="not a shared session"):
        extract(tmp_path / "x.zip", tmp_path)


def test_an_encrypted_member_is_called_damaged(file: Path, tmp_path: Path) -> None:
    data = bytearray(file.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    file.write_bytes(data)
    with pytest.raises(SessionError, match="encrypted"):
        extract(file, tmp_path / "x")


def test_a_shared_file_is_not_changed(file: Path, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="is a shared file"):
        resolve(str(file), tmp_path, to_change=True)
