"""A shared session: nothing planted is left, and it replays the same numbers."""

from __future__ import annotations

import base64
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
import pytest

from dba_console.cli.frame_output import FrameBuilder
from dba_console.core.errors import SessionError
from dba_console.demo import recordings
from dba_console.recording.journal import LogLine
from dba_console.recording.late_notes import append_notes
from dba_console.recording.layout import Redaction
from dba_console.recording.points import unpack_points
from dba_console.recording.recording import Recording
from dba_console.recording.run_reader import read_run
from dba_console.recording.sample_block import SampleBlock
from dba_console.recording.shared_file import extract
from dba_console.recording.verify import verify
from dba_console.reports.share import SessionSharer, Shared
from dba_console.reports.share_names import NameMap, load_map, save_map
from dba_console.reports.share_records import RecordRewriter
from dba_console.reports.share_text import Level, TextRewriter
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.postgres import Locks, LockWaiter, Server, Sessions
from dba_console.watch.samples.sample import Sample, make_part
from tests.build import NOW_US
from tests.readings import of
from tests.unit.recording.recordings import record, record_samples, recorder, ticks
from tests.unit.reports.incidents import at, facts_of, record_incident, tick
from tests.unit.reports.planted import LITERALS, SECRET_FILES, Planted, planted, record_planted

DEMO = Path(recordings.__file__).parent


class SharedCopy(NamedTuple):
    original: Path
    file: Path
    session: Path
    done: Shared
    names: NameMap
    what: Planted


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> SharedCopy:
    place = tmp_path_factory.mktemp("share")
    what = planted(24)
    original = record_planted(place, what)
    file, done, names = share(original, place / "case.zip")
    return SharedCopy(original, file, opened(file, place / "opened"), done, names, what)


def share(
    session: Path, file: Path, level: Level = "names", names: NameMap | None = None
) -> tuple[Path, Shared, NameMap]:
    recording, names = Recording.open(session), names or NameMap()
    try:
        sharer = SessionSharer(recording, names, level)
        sharer.learn(lambda _: None)
        with file.open("wb") as out:
            return file, sharer.write(out, file.parent, lambda _: None), names
    finally:
        recording.close()


def opened(file: Path, place: Path) -> Path:
    place.mkdir()
    return extract(file, place)


def everything_in(session: Path) -> bytes:
    """All bytes of the session, its samples decompressed."""
    parts = [str(path.relative_to(session)).encode() for path in session.rglob("*")]
    parts += [path.read_bytes() for path in session.rglob("*") if path.is_file()]
    recording = Recording.open(session)
    for entry in recording.stored.blocks():
        parts += [msgspec.msgpack.encode(one) for one in SampleBlock(recording.stored.block(entry.first_seq)).samples()]
        parts += [
            name.encode() for _, point in unpack_points(recording.stored.points(entry.first_seq)) for name in point
        ]
    recording.close()
    return b"\n".join(parts)


def left_in(content: bytes, originals: list[str]) -> list[str]:
    """Those that are somewhere in it: as they are, in another case, as in a URL, in base64."""
    lowered = content.lower()

    def is_left(name: str) -> bool:
        forms = (name.lower().encode(), quote(name, safe="").lower().encode(), quote(name).lower().encode())
        encoded = [base64.b64encode(form.encode()).rstrip(b"=") for form in (name, name.upper(), name.lower())]
        return any(form in lowered for form in forms) or any(form in content for form in encoded if len(form) > 7)

    return [name for name in originals if is_left(name)]


def test_no_original_is_left_anywhere(copy: SharedCopy) -> None:
    content = everything_in(copy.session)
    assert left_in(content, [*copy.what.names(), *SECRET_FILES, *LITERALS, "98765", "quux-corp", "nightly"]) == []
    assert len(left_in(everything_in(copy.original), copy.what.names())) == len(copy.what.names())
    assert copy.done.left_out == [] and copy.done.replaced["database"] >= 24


def test_a_shared_session_verifies_and_names_the_end_of_the_original(copy: SharedCopy) -> None:
    original, found = verify(copy.original), verify(copy.session)
    assert found.ok and [run.ok for run in found.runs] == [True]
    assert (found.events, found.blocks) == (original.events, original.blocks)
    recording = Recording.open(copy.session)
    assert recording.meta is not None and recording.meta.redaction is not None
    said = msgspec.json.decode(recording.meta.redaction, type=Redaction)
    assert (said.events, said.head, said.verified, said.level) == (original.events, original.head, True, "names")
    assert any(original.head is not None and original.head in note for note in found.notes)


def test_a_shared_session_replays_the_same_numbers_findings_and_times(copy: SharedCopy) -> None:
    renamed: dict[str, set[str]] = {}
    frames = 0
    for before, after in frames_of(copy.original, copy.session):
        compare(before, after, "frame", renamed)
        frames += 1
    assert frames == 24
    assert {text: others for text, others in renamed.items() if len(others) > 1} == {}
    recording, shared = Recording.open(copy.original), Recording.open(copy.session)
    was, now = recording.points(0, 1 << 62), shared.points(0, 1 << 62)
    assert [(wall, list(point.values())) for wall, point in was] == [
        (wall, list(point.values())) for wall, point in now
    ]
    times = [[(one.wall_us, one.kind, one.severity, one.seq) for one in each.events()] for each in (recording, shared)]
    assert times[0] == times[1]


@pytest.mark.parametrize("level", ["secrets", "names", "all"])
def test_a_real_recording_replays_the_same_numbers(level: Level, tmp_path: Path) -> None:
    original = DEMO / "reclaim-stall"
    file, done, _ = share(original, tmp_path / "real.zip", level)
    frames = list(frames_of(original, opened(file, tmp_path / "real")))
    for before, after in frames:
        compare(before, after, "frame", {})
    assert len(frames) == done.samples == 56


def frames_of(original: Path, shared: Path) -> Iterator[tuple[Any, Any]]:
    recordings = Recording.open(original), Recording.open(shared)
    builders = FrameBuilder(), FrameBuilder()
    wall_us: int | None = recordings[0].first_us
    while wall_us is not None:
        frames = [builder.build_recorded(each, wall_us) for builder, each in zip(builders, recordings, strict=True)]
        yield msgspec.to_builtins(frames[0]), msgspec.to_builtins(frames[1])
        wall_us = recordings[0].step(wall_us, 1)
    for each in recordings:
        each.close()


def compare(before: Any, after: Any, place: str, renamed: dict[str, set[str]]) -> None:
    """Everything but text is equal; equal text became equal text."""
    if isinstance(before, str) and isinstance(after, str):
        renamed.setdefault(before, set()).add(after)
    elif isinstance(before, dict):
        assert len(before) == len(after), place
        for (name, one), (other_name, other) in zip(before.items(), after.items(), strict=True):
            renamed.setdefault(name, set()).add(other_name)
            compare(one, other, f"{place}.{name}", renamed)
    elif isinstance(before, list | tuple):
        assert len(before) == len(after), place
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            compare(one, other, f"{place}[{number}]", renamed)
    else:
        assert before == after, place


def test_system_identifier_and_boot_id_are_others(copy: SharedCopy) -> None:
    recordings = Recording.open(copy.original), Recording.open(copy.session)
    boots = [each.meta.boot_id for each in recordings if each.meta is not None]
    assert [len(boot) for boot in boots] == [36, 36]
    content = everything_in(copy.session)
    assert left_in(content, [boots[0], boots[0].replace("-", ""), "7431204485839012345"]) == []
    assert left_in(everything_in(copy.original), [boots[0], "7431204485839012345"]) != []
    servers = [picture.now("pg.server", Server) for each in recordings if (picture := each.picture_at(each.last_us))]
    assert [len(str(server and server.system_identifier)) for server in servers] == [19, 19]


@pytest.mark.parametrize("name", ["last_query", "query", "root_query", "statement"])
def test_a_statement_in_the_evidence_of_a_finding_has_no_data(name: str) -> None:
    records = RecordRewriter(TextRewriter(NameMap(), "names"))
    for query in ("notify c1, 'bob'", "SET x.y = 'bob'", "listen c1 -- bob"):
        assert "bob" not in str(records.details({"evidence": {name: query}}))


def test_subnets_stay_subnets(copy: SharedCopy) -> None:
    fake = {name: one.text for name, one in copy.names.stored.names.items() if one.kind == "address"}
    same = {(one.rpartition(".")[0], other.rpartition(".")[0]) for one, other in fake.items() if "." in one}
    assert len(same) == len({net for net, _ in same}) == len({net for _, net in same})


def test_a_map_gives_the_same_pseudonyms_again(copy: SharedCopy, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    save_map(copy.names, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = load_map(path)
    file, _, _ = share(copy.original, tmp_path / "again.zip", names=again)
    assert everything_in(opened(file, tmp_path / "x")) == everything_in(copy.session)


def test_a_copy_is_not_redacted_twice(copy: SharedCopy) -> None:
    recording = Recording.open(copy.session)
    with pytest.raises(SessionError, match="redacted copy already"):
        SessionSharer(recording, NameMap(), "names")
    recording.close()


def test_a_run_of_a_shared_session_can_be_read(copy: SharedCopy) -> None:
    run = read_run(next((copy.session / "runs").iterdir()))
    assert run.damage is None and run.plan is not None and run.ended is not None
    assert len(run.records) == 26


def texts_in(session: Path) -> str:
    return everything_in(session).decode("utf-8", "replace")


def test_secrets_masks_keys_and_passwords_only(copy: SharedCopy, tmp_path: Path) -> None:
    file, done, _ = share(copy.original, tmp_path / "s.zip", "secrets")
    session = opened(file, tmp_path / "s")
    content = everything_in(session)
    assert left_in(content, list(SECRET_FILES)) == []
    # A name with a quote or a blank stands in this search only as it is written in JSON.
    plain = [name for name in copy.what.names() if '"' not in name]
    assert left_in(content, plain) == plain
    assert LITERALS[0].encode() in content
    assert verify(session).ok and done.replaced == {"paths of secrets": done.replaced["paths of secrets"]}


def test_all_leaves_out_statements_and_notes(copy: SharedCopy, tmp_path: Path) -> None:
    file, _, _ = share(copy.original, tmp_path / "a.zip", "all")
    session = opened(file, tmp_path / "a")
    content = everything_in(session)
    assert left_in(content, [*copy.what.names(), *LITERALS]) == []
    assert b"JOIN" not in content
    recording = Recording.open(session)
    assert {event.text for event in recording.events() if event.kind in ("note", "mark")} == {"<removed>"}
    picture = recording.picture_at(recording.last_us)
    assert picture is not None
    assert 4711 in [row.query_id for row in picture.now("pg.activity", Sessions).rows]  # type: ignore[union-attr]


def test_none_is_the_same_session_in_one_file(copy: SharedCopy, tmp_path: Path) -> None:
    file, _, _ = share(copy.original, tmp_path / "n.zip", "none")
    session = opened(file, tmp_path / "n")
    assert verify(session).head == verify(copy.original).head
    assert texts_in(session).count(copy.what.applications[3]) == texts_in(copy.original).count(
        copy.what.applications[3]
    )


def test_a_session_that_was_changed_is_shared_as_it_is_at_the_level_none(copy: SharedCopy, tmp_path: Path) -> None:
    changed = shutil.copytree(copy.original, tmp_path / copy.original.name)
    shutil.rmtree(changed / "runs")
    file, done, _ = share(changed, tmp_path / "n.zip", "none")
    assert ["does not verify" in one for one in done.left_out] == [True]
    assert not verify(opened(file, tmp_path / "n")).ok


def test_a_name_that_is_a_word_of_the_recording_changes_no_finding(tmp_path: Path) -> None:
    names = ["events", "steps", "severity", "since", "usable", "chain", "evidence", "connections", "filling"]

    def with_names(second: int) -> Sample:
        made = tick(second)
        rows = of(Locks, waiters=[LockWaiter(7, [8], "relation", "x", name, at(second)) for name in names], held=[])
        return Sample(
            made.seq,
            made.wall_us,
            made.mono_us,
            [*made.parts, make_part("pg.locks", rows, at_us=made.mono_us)],
            made.boot,
        )

    original = record_incident(tmp_path, make=with_names, seconds=range(280, 440))
    copied = opened(share(original, tmp_path / "w.zip")[0], tmp_path / "w")
    before, after = facts_of(original), facts_of(copied)
    assert [(one.name, one.at_us) for one in after.moments] == [(one.name, one.at_us) for one in before.moments]
    assert [(one.id, one.evidence) for one in after.causes] == [(one.id, one.evidence) for one in before.causes]


def test_an_original_that_is_still_there_fails_the_share(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    record_samples(made, ticks(3))
    hidden = base64.b64encode(b"\x00\x01orders-api\xff").decode()
    made.put_event(Event(wall_us=NOW_US, kind="note", text=f"key of application=orders-api: {hidden}"))
    assert made.close("done")
    with pytest.raises(SessionError, match='"orders-api" in the table journal'):
        share(made.directory, tmp_path / "x.zip")


def test_a_session_that_was_cut_off_is_shared_as_one(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    record_samples(made, ticks(25))
    file, done, _ = share(made.directory, tmp_path / "live.zip")
    session = opened(file, tmp_path / "live")
    recording = Recording.open(session)
    assert (recording.state, recording.samples, done.samples) == ("crashed", 25, 25)
    assert recording.damage is None
    assert verify(session).ok
    made.close("done")


def test_what_is_damaged_is_left_out_and_named(tmp_path: Path) -> None:
    original = record(tmp_path, ticks(40))
    samples = original / "session.samples"
    data = bytearray(samples.read_bytes())
    data[len(data) // 2] ^= 255
    samples.write_bytes(data)
    file, done, _ = share(original, tmp_path / "d.zip")
    session = opened(file, tmp_path / "d")
    recording = Recording.open(session)
    assert 20 <= recording.samples < 40
    assert recording.damage is None
    assert len(done.left_out) == 1
    assert [gap.reason for gap in recording.gaps()] == ["damaged in the original recording"]
    assert verify(session).ok


def test_a_clock_set_back_during_the_session_changes_nothing(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    before = ticks(30)
    late = [msgspec.structs.replace(one, wall_us=one.wall_us - 3_600_000_000) for one in ticks(30, first=31)]
    for sample in (*before, *late):
        record_samples(made, [sample])
        made.put_event(Event(wall_us=sample.wall_us, kind="mark", text=f"tick {sample.seq}"))
    assert made.close("done")
    file, done, _ = share(made.directory, tmp_path / "c.zip")
    session = opened(file, tmp_path / "c")
    assert verify(session).ok and done.left_out == []
    recordings = Recording.open(made.directory), Recording.open(session)
    assert [each.points(0, 1 << 62) for each in recordings[:1]] == [each.points(0, 1 << 62) for each in recordings[1:]]
    texts = [[event.text for event in each.events() if event.kind == "mark"] for each in recordings]
    assert texts[0] == texts[1] == [f"tick {number}" for number in range(1, 61)]


def test_notes_added_after_the_recording_are_shared(tmp_path: Path) -> None:
    original = record(tmp_path, ticks(25))
    at_us = NOW_US + 5_000_000
    append_notes(
        original, [Event(wall_us=NOW_US + 3_600_000_000, kind="note", text="user=kim left", occurred_us=at_us)]
    )
    file, _, _ = share(original, tmp_path / "n.zip")
    session = opened(file, tmp_path / "n")
    found = verify(session)
    assert found.ok and found.events == verify(original).events
    [note] = [event for event in Recording.open(session).events() if event.kind == "note"]
    assert (note.text, note.occurred_us) == ("user=user_2 left", at_us)


def test_a_name_that_stands_only_where_a_name_stands_is_replaced(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    record_samples(made, ticks(3))
    texts = ["ERROR:  permission denied for table quux1", "ERROR:  must be owner of schema quux2",
             "CONTEXT:  PL/pgSQL function quux3.quux4(integer) line 3 at RETURN",
             "postgres: quux5: quux6 quux7 10.1.2.3(5433) idle",
             "postgres: quux8 quux9 [local] SELECT",
             "postgresql://quuxa:x@quuxb:5432,quuxc:5433/quuxd?application_name=quuxe&host=quuxf",
             "jdbc:postgresql://quuxg/quuxh?user=quuxi&ssl=on",
             "psql -Uquuxj -hquuxk -dquuxl", "PGHOST=quuxm PGUSER=quuxn PGDATABASE=quuxo psql",
             'could not translate host name "quuxp" to address', '{"host": "quuxq", "user":"quuxr"}',
             "  - hostname: quuxs", "dbname: 'quuxt'",
             'connection authenticated: identity="quuxu" method=md5',
             "[7] quuxv@[unknown] LOG:  x", "ip-10-20-30-43"]  # fmt: skip
    kept = ['"role": "replica"', "host: 5", "see postgres: the server", "on 2026-11-20-14 or 1-2-3-4"]
    made.put_lines([LogLine(NOW_US, "X", text) for text in (*texts, *kept)])
    assert made.close("done")
    session = opened(share(made.directory, tmp_path / "n.zip")[0], tmp_path / "n")
    content = everything_in(session)
    assert [text for text in ("quux", "10-20-30-43") if text.encode() in content] == []
    assert left_in(content, kept) == kept


@pytest.mark.parametrize("level", ["secrets", "names"])
def test_lines_of_keys_and_of_password_files_are_masked(level: Level) -> None:
    rewriter = TextRewriter(NameMap(), level)
    key = "MIIEowIBAAKCAQEAzzzsxkG0Vv0mGf8Yw1n2p3Q4r5S6t7U8v9W0x1Y2z3A4b5C6"
    for secret in (
        key,
        "h:5432:d:u:hunter2",
        "*:*:*:repl:hunter2",
        "echo 'h:5432:d:u:hunter2' >> x",
        "repo1-cipher-pass=hunter2",
    ):
        assert not {"hunter2", key} & set(re.findall(r"[\w+/]+", rewriter.rewrite("text", secret)))
    for kept in ("5d41402abc4b2a76b9719d911017c592" * 2, "at 12:30:45:123:9", "a.c:12:3:1f:9"):
        assert rewriter.rewrite("text", kept) == kept


def test_a_query_that_begins_like_a_placeholder_is_rewritten() -> None:
    rewriter = TextRewriter(NameMap(), "names")
    assert rewriter.rewrite("query", "<insufficient privilege>") == "<insufficient privilege>"
    assert "bob" not in rewriter.rewrite("query", "<x> select 'bob'")


@pytest.mark.parametrize("spelled", ["Zapp+m%C3%B8ller+%C3%BC", "zapp+møller+ü", "zapp møller u\u0308"])
def test_a_name_is_replaced_however_it_is_spelled(spelled: str, tmp_path: Path) -> None:
    made = recorder(tmp_path)
    record_samples(made, ticks(3))
    made.put_lines([LogLine(NOW_US, "X", 'user "Zapp møller ü"'), LogLine(NOW_US, "X", f"say {spelled}")])
    assert made.close("done")
    session = opened(share(made.directory, tmp_path / "n.zip")[0], tmp_path / "n")
    assert "say user_1" in (session / "session.log").read_text()


def test_hostile_text_goes_through_unharmed(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    record_samples(made, ticks(3))
    texts = ["<script>x</script>", "=1+1", "a\x1b[2J\u202eb", "{{7*7}}", "''\"\"``", "%s%n", "\ud800", "(" * 500,
             "/" * 500, "::" * 200, "a=" * 500, "%41" * 300, "A" * 5000, "1.2.3.4." * 300, "x@" * 300]  # fmt: skip
    for text in texts:
        made.put_event(Event(wall_us=NOW_US, kind="note", text=text.encode("utf-8", "replace").decode()))
        made.put_lines([LogLine(NOW_US, "X", text.encode("utf-8", "replace").decode())])
    assert made.close("done")
    file, done, _ = share(made.directory, tmp_path / "h.zip")
    assert verify(opened(file, tmp_path / "h")).ok
    assert done.events == len(texts) + 2
