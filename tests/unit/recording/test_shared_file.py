"""A shared file from anywhere: opened like a session, or refused before anything is outside its directory."""

from __future__ import annotations

import io
import stat
import struct
import tracemalloc
import zipfile
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from dba_console.core.errors import SessionError
from dba_console.recording import shared_file
from dba_console.recording.layout import DATABASE
from dba_console.recording.recording import Recording
from dba_console.recording.run_paths import RUNS
from dba_console.recording.session_lookup import resolve
from dba_console.recording.shared_file import MANIFEST, Manifest, extract, is_shared_file, pack
from tests.disks import mounted
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


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("member", [MANIFEST, f"{NAME}/{DATABASE}"])
def test_compression_that_is_not_ours_is_refused(member: str, method: int, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    manifest = msgspec.json.encode(Manifest(session=NAME, level="none", program_version="0"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in ((MANIFEST, manifest), (f"{NAME}/{DATABASE}", b"x" * 1000)):
            archive.writestr(name, data, method if name == member else zipfile.ZIP_DEFLATED)
    with pytest.raises(SessionError, match=r"is empty or too large|is not a file of a session"):
        extract(path, tmp_path / "inside")
    assert not (tmp_path / "inside").exists()


@pytest.mark.parametrize("stated", [None, 100])
def test_a_manifest_is_not_decompressed_beyond_its_limit(stated: int | None, tmp_path: Path) -> None:
    path, size = tmp_path / "x.zip", 64 << 20
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, bytes(size))
    if stated is not None:
        path.write_bytes(path.read_bytes().replace(size.to_bytes(4, "little"), stated.to_bytes(4, "little")))
    tracemalloc.start()
    try:
        with pytest.raises(SessionError, match=r"too large|damaged"):
            extract(path, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_member_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = made_by_hand(tmp_path / "x.zip", {f"{NAME}/{DATABASE}": b"x"})
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(f"{NAME}/{DATABASE}", b"y")
    with pytest.raises(SessionError, match="are not a session"):
        extract(path, tmp_path / "inside")
    assert not (tmp_path / "inside").exists()


def test_a_list_of_files_is_not_read_beyond_its_limit(tmp_path: Path) -> None:
    path = made_by_hand(tmp_path / "x.zip", {f"{NAME}/{RUNS}/r{number:060}": b"" for number in range(50_000)})
    with pytest.raises(SessionError, match="its list of files is too long"):
        extract(path, tmp_path)


def test_an_offset_beyond_any_file_is_called_damaged(file: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        listed = len(archive.infolist())
        start = archive.start_dir
    data = file.read_bytes()
    size = len(data) - start - 22
    end64 = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, listed, listed, size, (1 << 64) - 1 - size)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, len(data) - 22, 1)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    file.write_bytes(data[:-22] + end64 + locator + end)
    with pytest.raises(SessionError, match=r"damaged|cannot extract"):
        extract(file, tmp_path / "x")


@pytest.mark.root
def test_a_file_that_needs_more_than_half_of_the_free_space_is_refused(tmp_path: Path) -> None:
    path = made_by_hand(tmp_path / "x.zip", {f"{NAME}/{DATABASE}": bytes(700 << 10)})
    with mounted("tmpfs", tmp_path / "small", "-o", "size=1m") as place:
        with pytest.raises(SessionError, match="more than half of the free space"):
            extract(path, place)
        assert list(place.iterdir()) == []


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
