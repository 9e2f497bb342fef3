"""What the console reads from others, changed at random, and what reads it.

Six kinds: frames of the agent's socket, documents, sessions, shared files, journals of runs, dumps. A case may be
refused with an error of our own; any other exception is a failure, and so is a case that takes longer than its limit.
Each kind is tried in a process of its own, so that its memory is known.
"""

from __future__ import annotations

import gc
import hashlib
import io
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import dba_console
from bench.process import peak_mb
from dba_console.agent import protocol
from dba_console.agent.client import AgentClient
from dba_console.agent.runs.interrupted_runs import find_interrupted_runs
from dba_console.cli.runbook.run_history import _cells as runs_row
from dba_console.cli.runbook.run_history import _print_run as told
from dba_console.cli.session import show_lines, verify_lines
from dba_console.core.errors import ConsoleError
from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.archives.toc import ArchiveError
from dba_console.jobs.tools.verify_archive import verify_archive
from dba_console.recording.hash_chain import ChainHead
from dba_console.recording.recording import Recording
from dba_console.recording.run_journal import RunJournal
from dba_console.recording.run_paths import run_directory
from dba_console.recording.run_reader import read_run
from dba_console.recording.run_reader import row_of as run_row
from dba_console.recording.run_records import RunAbout
from dba_console.recording.sample_block import BlockWriter, SampleBlock
from dba_console.recording.session_lookup import row_of as session_row
from dba_console.recording.shared_file import Manifest, extract, is_shared_file, pack
from dba_console.recording.verify import verify
from dba_console.runbooks.compile import check_text, compile_text
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import derive
from dba_console.watch.samples.sample import encode_sample
from tests.unit.runbooks.scripted_agent import run as walk_through
from tests.unit.runbooks.test_walk_documents import ObligingAgent

ROOT = Path(dba_console.__file__).parent
DOCUMENTS = tuple(sorted((ROOT.parent / "runbooks").glob("*.md")))
RECORDED = ROOT / "demo" / "recordings" / "reclaim-stall"
SESSION = "20261120T145307Z-db2-1a2b3c4d"
RUN = "20261120T145307Z-lock-queue-1a2b"
TOKENS = (
    b"```", b"[[", b"]]", b"{{", b"%(x)s", b"${x}", b"$(x)", b"\x00", b"\xe2\x80\xae", b"\xff", b"\n## ",
    b"\n```toml {action ", b" confirm=type:", b"[inputs.v]\ntype = ", b"pattern = ", b'"""', b"'''", b"not ", b"and ",
    b"1+", b"(", b"-", b"9" * 400, b"1e999", b"\\", b"\r", b"--", b"/*", b"'", b'"', b"=", b"\n", b"repeat",
    b"until = ", b"when=", b"a" * 3000, b"|", b"*" * 50,
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 70, -(1 << 63), 1e308, "", "x" * 5000, "\x1b[2J\u202e", [], {}, [[[[]]]], {"a": {"b": []}},
    ["x"] * 300,
)  # fmt: skip


class Outcome(NamedTuple):
    """What came of the cases of one kind."""

    cases: int
    longest_s: float
    """Of frames until the next console was greeted; else processor time."""
    peak_mb: float
    failures: list[str]


class Hang(BaseException):
    """A case took longer than its limit. Not an Exception, so that nothing takes it for one of its own."""


Attempt = Callable[[], object]


def fuzz_in_process(kind: str, count: int, seed: int, limit_s: float, *, agent: str = "") -> Outcome:
    """Try `count` cases in a separate process. `agent`: the socket that frames are sent to."""
    asked = json.dumps([kind, count, seed, limit_s, agent])
    command = [sys.executable, "-m", "tests.attacks.fuzzing", asked]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return Outcome(*json.loads(done.stdout.splitlines()[-1]))


def _all(kind: str, count: int, seed: int, limit_s: float, agent: str) -> Outcome:
    drawn, failures, longest_s = random.Random(seed), list[str](), 0.0
    # What is read here keeps a processor busy, of which other processes take their share; an agent is waited for.
    clock = time.monotonic if kind == "frames" else time.process_time
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        cases = _KINDS[kind](drawn, Path(place), agent)
        gc.freeze()  # what is imported need not be searched for garbage after each case
        for number in range(count):
            attempt = next(cases)
            begun = clock()
            try:
                with _limited(limit_s, wall=kind == "frames"):
                    attempt()
            except ConsoleError:
                pass
            except Hang:
                failures.append(f"{kind} {number} of seed {seed}: longer than {limit_s:g} s\n{traceback.format_exc()}")
            except Exception:
                failures.append(f"{kind} {number} of seed {seed}:\n{traceback.format_exc()}")
            longest_s = max(longest_s, clock() - begun)
            gc.collect()  # a program reads one file: garbage of the cases before is not its memory
    return Outcome(count, longest_s, peak_mb(os.getpid()), failures)


@contextmanager
def _limited(limit_s: float, *, wall: bool) -> Iterator[None]:
    """Raise Hang after so much processor time, or time; and after ten times as long where something waits for ever."""

    def over(number: int, frame: object) -> None:
        raise Hang

    before = {one: signal.signal(one, over) for one in (signal.SIGALRM, signal.SIGPROF)}
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    signal.setitimer(signal.ITIMER_REAL, limit_s if wall else 10 * limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for one, handler in before.items():
            signal.signal(one, handler)


def mutated(data: bytes, drawn: random.Random) -> bytes:
    """The bytes with one change or some, of any kind."""
    made = bytearray(data)
    for _ in range(drawn.choice((1, 1, 1, 2, 4, 16))):
        at, end = sorted(drawn.randrange(len(made) + 1) for _ in range(2))
        end = min(end, at + drawn.choice((1, 4, 16, 300)))
        match drawn.randrange(7):
            case 0 if at < len(made):
                made[at] ^= 1 << drawn.randrange(8)
            case 1:
                del made[at:end]
            case 2:
                made[at:at] = made[at:end] * drawn.choice((1, 2, 50))
            case 3:
                made[at:end] = drawn.randbytes(end - at)
            case 4:
                made[at:at] = drawn.choice(TOKENS) * drawn.choice((1, 1, 1, 2000))
            case 5:
                made[at:end] = drawn.choice((b"\xff", b"\x00", b"\x7f", b"\x80")) * (end - at)
            case 6 if drawn.random() < 0.2:
                del made[at:]
    return bytes(made)


def odd(value: Any, drawn: random.Random) -> Any:
    """Plain JSON with one unexpected value."""
    if isinstance(value, dict) and value and drawn.random() < 0.85:
        name = drawn.choice(sorted(value))
        if drawn.random() < 0.15:
            return {key: one for key, one in value.items() if key != name}
        return {**value, name: odd(value[name], drawn)}
    if isinstance(value, list) and value and drawn.random() < 0.85:
        at = drawn.randrange(len(value))
        return [*value[:at], odd(value[at], drawn), *value[at + 1 :]]
    return drawn.choice(ODD_VALUES)


# frames


def _frames(drawn: random.Random, directory: Path, agent: str) -> Iterator[Attempt]:
    document = '# A\n\n```toml {runbook}\nid = "a"\n```\n\nx\n\n## B\n\n```expr {check}\n1 > 2\n```\n'
    words: list[protocol.Message] = [
        protocol.Mark(text="here"), protocol.Note(text="a note", occurred_us=1),
        protocol.Acknowledge(finding="f-1", note="known"), protocol.Silence(finding="lock-queue", seconds=60.0),
        protocol.RunWatch(run=RUN), protocol.RunResume(run=RUN), protocol.RunAnswer(run=RUN, question=1, text="y"),
        protocol.RunControl(run=RUN, verb="pause"), protocol.RunBegin(text=document, source="t.md"),
    ]  # fmt: skip
    greeting = protocol.pack(protocol.Greeting(protocol=protocol.PROTOCOL, version="x", login="fuzz", role="show"))

    def attempt(data: bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(30.0)
            connection.connect(agent)
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while said := connection.recv(1 << 16):
                    assert b", a defect" not in said, said[-300:]
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before all of it was sent
        AgentClient.connect(agent, role="show", timeout_s=30.0).close()  # and the next one is served

    while True:
        frame = protocol.pack(drawn.choice(words))
        first = greeting if drawn.random() < 0.9 else mutated(greeting, drawn)
        yield partial(attempt, first + mutated(frame, drawn))


# documents


def _documents(drawn: random.Random, directory: Path, agent: str) -> Iterator[Attempt]:
    texts = [path.read_bytes() for path in DOCUMENTS]

    def attempt(text: str) -> None:
        checked = check_text(text, "fuzz.md")
        assert checked.plan is not None or checked.problems

    while True:
        yield partial(attempt, mutated(drawn.choice(texts), drawn).decode("utf-8", "replace"))


# sessions


def _sessions(drawn: random.Random, base: Path, agent: str) -> Iterator[Attempt]:
    directory = base / SESSION
    directory.mkdir()
    shutil.copy(RECORDED / "session.log", directory)
    whole, samples = (RECORDED / "session.db").read_bytes(), (RECORDED / "session.samples").read_bytes()

    def read_all() -> None:
        found = session_row(directory)
        recording = Recording.open(directory)
        try:
            events, gaps = recording.events(limit=20), recording.gaps()
            for at in (recording.first_us, (recording.first_us + recording.last_us) // 2, recording.last_us):
                picture = recording.picture_at(at)
                recording.step(at, +1)
                if picture is not None:
                    derive(picture, ChartHistory(), events)
            recording.points(recording.first_us, recording.last_us)
        finally:
            recording.close()
        show_lines(found, gaps, events)
        verify_lines(directory.name, verify(directory))

    def attempt(change: int) -> None:
        for left in directory.glob("session.db*"):
            left.unlink()
        database = directory / "session.db"
        database.write_bytes(mutated(whole, drawn) if change == 0 else whole)
        (directory / "session.samples").write_bytes(mutated(samples, drawn) if change == 2 else samples)
        if change == 1:
            _change_rows(database, drawn)
        elif change == 3:
            _change_samples(directory, drawn)
        read_all()

    while True:
        yield partial(attempt, drawn.randrange(4))


def _change_rows(database: Path, drawn: random.Random) -> None:
    """Odd values in columns."""
    with sqlite3.connect(database, isolation_level=None) as connection:
        table = drawn.choice(("meta", "blocks", "gaps", "journal"))
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        value = drawn.choice((None, -1, 0, (1 << 63) - 1, 1e300, "", "x" * 3000, b"", b"\x00" * 500, '{"blocks": [1]}'))
        with suppress(sqlite3.IntegrityError):  # the key of a table is a number
            connection.execute(f"UPDATE OR REPLACE {table} SET {drawn.choice(columns)} = ?", (value,))
    connection.close()


def _change_samples(directory: Path, drawn: random.Random) -> None:
    """Blocks and chart values whose contents are odd and whose checksum holds."""
    recording = Recording.open(directory)
    entry = recording.stored.blocks()[0]
    block, writer = SampleBlock(recording.stored.block(entry.first_seq)), BlockWriter()
    points = recording.stored.points(entry.first_seq)
    recording.close()
    records = b"".join(
        writer.add(sample.seq, sample.wall_us, mutated(encode_sample(sample), drawn)) for sample in block.samples()
    )
    (directory / "session.samples").write_bytes(records + points[:16] + mutated(points[16:], drawn))
    with sqlite3.connect(directory / "session.db", isolation_level=None) as connection:
        connection.execute("UPDATE blocks SET size = ?", (len(records),))
    connection.close()


# shared files


def _bundles(drawn: random.Random, base: Path, agent: str) -> Iterator[Attempt]:
    directory = base / SESSION
    directory.mkdir()
    for name in ("session.db", "session.samples", "session.log"):
        shutil.copy(RECORDED / name, directory)
    packed = io.BytesIO()
    pack(directory, Manifest(session=SESSION, level="none", program_version="1"), packed)
    whole, file, place = packed.getvalue(), base / "shared.zip", base / "extracted"
    first, last = whole[:400], whole.rindex(b"PK\x01\x02", 0, whole.index(b"PK\x05\x06", -200)) - 300

    def attempt(change: int) -> None:
        # The data between the first header and the list of members is most of it, and a checksum covers it.
        made = {0: lambda: mutated(first, drawn) + whole[len(first) :],
                1: lambda: whole[:last] + mutated(whole[last:], drawn), 2: lambda: mutated(whole, drawn)}  # fmt: skip
        file.write_bytes(made[change]())
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        if is_shared_file(file):
            verify(extract(file, place))

    while True:
        yield partial(attempt, drawn.choice((0, 1, 1, 2)))


# dumps


def _dumps(drawn: random.Random, base: Path, agent: str) -> Iterator[Attempt]:
    made = make_archives(base)
    wholes = {path: path.read_bytes() for directory in made for path in sorted(directory.iterdir())}
    names = list(wholes)

    def attempt(path: Path) -> None:
        path.write_bytes(mutated(wholes[path], drawn))
        try:
            verify_archive(path.parent, None, 0, 1, bindir="/nowhere", report=lambda line: None)
        except ArchiveError:
            pass
        finally:
            path.write_bytes(wholes[path])

    while True:
        yield partial(attempt, drawn.choice(names))


def make_archives(base: Path) -> list[Path]:
    """Directory dumps of a small database, uncompressed and compressed."""
    with Cluster(durable=False) as cluster:
        cluster.psql(
            "create table t as select g, md5(g::text) from generate_series(1, 500) g; create index on t (g);"
            " select lo_from_bytea(0, 'abc'); create view v as select * from t"
        )
        found = []
        for level in (0, 6):
            path = base / f"dump{level}"
            command = [str(cluster.binaries.program("pg_dump")), "-Fd", f"-Z{level}", "-b", "-f", str(path)]
            subprocess.run([*command, "-d", cluster.dsn()], check=True, capture_output=True)
            found.append(path)
    return found


# journals


def _journals(drawn: random.Random, base: Path, agent: str) -> Iterator[Attempt]:
    session = base / SESSION
    session.mkdir()
    shutil.copy(RECORDED / "session.db", session)
    text = (ROOT.parent / "runbooks" / "lock-queue.md").read_text()
    plan = compile_text(text, "lock-queue.md")
    directory = run_directory(session, RUN)
    about = RunAbout(run=RUN, runbook=plan.id, title=plan.title, target="appdb", target_key="key1")
    journal = RunJournal.create(directory, about, text=text, plan=plan)
    _, _, world = walk_through(plan, ObligingAgent())
    for record in world.records[:-1]:
        journal.append(record)
    journal.close()
    lines, papers = (directory / "journal.jsonl").read_bytes(), (directory / "plan.json").read_bytes()

    def read_all() -> None:
        with redirect_stdout(StringIO()):
            for json_wanted in (False, True):
                told(read_run(directory), json=json_wanted)
            runs_row(run_row(directory))
        list(find_interrupted_runs(base, "key1"))

    def attempt(change: int) -> None:
        (directory / "plan.json").write_bytes(papers)
        if change == 0:
            (directory / "journal.jsonl").write_bytes(mutated(lines, drawn))
        else:
            told = [json.loads(line) for line in lines.splitlines()]
            if change == 1:
                at = drawn.randrange(len(told))
                told[at] = odd(told[at], drawn)
            else:
                made = json.dumps(odd(json.loads(papers), drawn)).encode()
                (directory / "plan.json").write_bytes(made)
                told[0]["fields"]["plan_sha256"] = hashlib.sha256(made).hexdigest()
            (directory / "journal.jsonl").write_bytes(chained(told))
        read_all()

    while True:
        yield partial(attempt, drawn.randrange(3))


def chained(told: list[Any], run: str = RUN) -> bytes:
    """Lines whose hashes follow from one another, whatever they say."""
    made, head = b"", ChainHead.of(run)
    for line in told:
        if isinstance(line, dict):
            line.pop("hash", None)
        bare = json.dumps(line, separators=(",", ":")).encode()
        head = head.after(bare)
        made += bare[:-1] + b',"hash":"' + head.hash.encode() + b'"}\n'
    return made


_KINDS: dict[str, Callable[[random.Random, Path, str], Iterator[Attempt]]] = {
    "frames": _frames, "documents": _documents, "sessions": _sessions, "bundles": _bundles,
    "journals": _journals, "dumps": _dumps,
}  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(_all(*json.loads(sys.argv[1]))))
