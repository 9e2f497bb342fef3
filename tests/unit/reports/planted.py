"""A session with planted originals: names and addresses of every kind, in typed fields and in every kind of text."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from dba_console.clusters.subject.readings import ClusterNow, CutoverMark, NodeNow
from dba_console.core.units import human_bytes
from dba_console.recording.journal import LogLine
from dba_console.recording.layout import new_meta, session_directory
from dba_console.recording.plan import Block, Input, JournalRecord, Plan, Step
from dba_console.recording.recorder import Recorder
from dba_console.recording.run_journal import RunJournal
from dba_console.recording.run_paths import execution_directory, run_directory
from dba_console.recording.run_records import RunAbout
from dba_console.watch.locks.episodes import MAX_QUERY
from dba_console.watch.locks.readings import BlockedSession, LockEpisode, LockEpisodes
from dba_console.watch.replication.readings import Replication, Slot, Standby
from dba_console.watch.samples import host, jobs, postgres
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.findings import FindingNow, FindingsNow
from dba_console.watch.samples.sample import PARTS, Sample, encode_sample, make_part
from tests.build import NOW_US
from tests.clocks import HeldClock
from tests.readings import activity, busy_server, mount, of, server, setting

RUN = "20261120T145307Z-cache-drop-1a2b"
PATIENT_S = 120.0
SECRET_FILES = ("/etc/vault/master.key", "/home/kim/.pgpass", "/opt/keys/id_ed25519")
LITERALS = ("bob@customer.invalid", "4111111111111111", "Müller & Söhne")


class Planted(NamedTuple):
    """Originals by kind, as many of each."""

    hosts: list[str]
    addresses: list[str]
    users: list[str]
    databases: list[str]
    schemas: list[str]
    relations: list[str]
    applications: list[str]
    slots: list[str]
    nodes: list[str]
    mounts: list[str]

    def names(self) -> list[str]:
        """Every original; of a path its own component."""
        rest = [one for kind in self[:-1] for one in kind]
        return rest + [path.rpartition("/")[2] for path in self.mounts]


def planted(count: int) -> Planted:
    """`count` originals of each of the ten kinds, with forms that are easy to miss."""

    def each(word: str, *forms: str) -> list[str]:
        return [forms[number % len(forms)].format(word=word, n=number) for number in range(count)]

    return Planted(
        hosts=each("qhost", "{word}{n}", "{word}{n}.prod.quux-corp.example", "{word}-{n}-a", "Q{word}{n}"),
        addresses=[
            f"10.{77 + number % 3}.{number // 200}.{number % 200 + 1}"
            if number % 4
            else f"2001:db8:77:{number:x}::{number + 1:x}"
            for number in range(count)
        ],
        users=each("quser", "{word}{n}", "{word}_{n}_ro", "{word}.{n}", "O'{word}{n}", "Ünal{word}{n}"),
        databases=each("qdb", "{word}{n}", "{word}{n}_test", "Q{word}-{n}", "{word} {n} copy"),
        schemas=each("qschema", "{word}{n}", "Q{word}{n}"),
        relations=each("qtable", "{word}{n}", "{word}{n}_idx", "Q{word} {n}", '{word}"{n}'),
        applications=each("qapp", "{word}{n}", "{word} {n} (web)", "{word}-{n}/worker", "x" * 45 + "{word}{n}"),
        slots=each("qslot", "{word}_{n}"),
        nodes=each("qnode", "{word}{n}", "{word}-{n}"),
        mounts=each("qmount", "/srv/{word}{n}", "/mnt/data/{word}-{n}", "/srv/{word} {n} x"),
    )  # fmt: skip


def quoted(name: str) -> str:
    return name if name.isidentifier() and name.islower() else '"' + name.replace('"', '""') + '"'


def statement(what: Planted, number: int) -> str:
    table = f"{quoted(what.schemas[number])}.{quoted(what.relations[number])}"
    shouted = table if '"' in table else table.upper()
    return (
        f"/* {what.users[number]} */ SELECT t.id, '{LITERALS[number % 3]}' FROM {table} t"
        f" JOIN {shouted} u ON t.id = u.id WHERE t.mail = '{LITERALS[0]}' -- {LITERALS[1]}"
    )


def sentence(what: Planted, number: int) -> str:
    """Free text with one of each, as people and programs write them."""
    at = {kind: values[number] for kind, values in what._asdict().items()}
    login = base64.b64encode(f"{at['users']}:{at['databases']}".encode()).decode()
    return (
        f"{at['hosts'].upper()} ({at['addresses']}) refused {at['users']} on {at['databases']}: "
        f"{at['applications']} holds "
        f"{at['schemas']}.{at['relations']}, slot {at['slots']} of {at['nodes']} fills {at['mounts']}/base; "
        f"key {SECRET_FILES[number % 3]}, "
        f"postgresql://{quote(at['users'], safe='')}@{at['hosts']}:5432/{quote(at['databases'], safe='')}, "
        f"Authorization {login}; {at['relations'].lower()} {quote(at['applications'])}"
    )


def quoting(what: Planted, number: int) -> str:
    """An event that quotes the query of a session, as findings do."""
    return f"{what.databases[number]} (pid 4001: {short_statement(number)}) waits"


def short_statement(number: int) -> str:
    return f"update t{number} set mail = '{LITERALS[number % 3]}', n = 98765{number:03d}"


def log_line(what: Planted, number: int) -> str:
    return (
        f"user={what.users[number]},db={what.databases[number]},app={what.applications[number]},"
        f"client={what.addresses[number]} STATEMENT:  {statement(what, number)}"
    )


def command(what: Planted, number: int) -> str:
    return (
        f"pg_dump -h {what.hosts[number]} -U {quoted(what.users[number])} -t {quoted(what.relations[number])} "
        f"-f '{what.mounts[number]}/nightly.dump' -d {quoted(what.databases[number])}"
    )


def readings(what: Planted, tick: int, number: int) -> dict[str, Any]:
    """The parts of one tick that hold the originals of one number in typed fields."""
    count = len(what.users)
    parts = busy_server(10, tick)
    at = number
    relation = f"{quoted(what.schemas[at])}.{quoted(what.relations[at])}"
    query = statement(what, at)
    row = activity(
        4000, "active", user=what.users[at], database=what.databases[at], application=what.applications[at],
        client=what.addresses[at], query=query, query_id=4711, xact_start=NOW_US, wait_event_type="Lock",
    )  # fmt: skip
    parts["pg.activity"].rows.append(row)
    parts["pg.activity"].rows.append(activity(4001, "active", query=short_statement(at)))
    parts["pg.locks"] = postgres.Locks(
        [postgres.LockWaiter(4000, [1000], "relation", "RowExclusiveLock", relation, NOW_US)],
        [postgres.HeldLock(1000, "ShareLock", relation, "relation")],
    )
    blocked = of(
        BlockedSession, pid=4001, user=what.users[at], application=what.applications[at], relation=relation
    )  # fmt: skip
    episode = of(
        LockEpisode, pid=4000, user=what.users[at], database=what.databases[at], application=what.applications[at],
        query=query[:MAX_QUERY], waiters=[blocked],
    )  # fmt: skip
    parts["locks.episodes"] = of(LockEpisodes, rows=[episode])
    parts["pg.server"] = server(
        current_user=what.users[at], database=what.databases[at], data_directory=f"{what.mounts[at]}/data",
        server_address=what.addresses[at],
        databases=[of(postgres.Database, name=name, encoding="UTF8") for name in what.databases],
        roles=[of(postgres.Role, name=name) for name in what.users],
        tablespaces={f"space_{what.schemas[at]}": what.mounts[at]},
    )  # fmt: skip
    parts["pg.server"].settings.extend(
        [
            setting("cluster_name", what.nodes[at]),
            setting("archive_command", f"rsync %p {what.users[at]}@{what.hosts[at]}:{what.mounts[at]}/%f"),
            setting("listen_addresses", f"{what.addresses[at]},{what.hosts[at]}"),
        ]
    )
    parts["pg.replication"] = of(
        Replication, now_us=NOW_US, receiver_host=what.hosts[at],
        slots=[of(Slot, name=name, kind="physical") for name in what.slots[at : at + 3]],
        standbys=[of(Standby, pid=77, application=what.applications[at], client=what.addresses[at])],
    )  # fmt: skip
    parts["host.settings"] = of(host.HostSettings, hostname=what.hosts[at], kernel="6.1")
    parts["host.mounts"] = host.Mounts(
        [mount(path, size=1 << 40, used=1 << 38, holds=["data"]) for path in what.mounts[at : at + 3]],
        {"data": f"{what.mounts[at]}/data"},
    )
    mark = CutoverMark(
        run="20261124T1-cutover", host=what.hosts[at], operator=what.users[at], cluster=what.nodes[at], kind="cutover",
        old=what.nodes[(at + 1) % count], to=what.nodes[(at + 2) % count], system_identifier="7431204485839012345",
        role=what.users[at], begun_us=NOW_US, limits={what.databases[at]: 3},
        poolers={what.nodes[at]: (what.databases[at],)},
    )  # fmt: skip
    node = of(
        NodeNow, name=what.nodes[at], places=(f"{what.hosts[at]}:5432",), error=f"no route to {what.hosts[at]}",
        cutover=mark,
    )  # fmt: skip
    parts["cluster"] = ClusterNow(NOW_US, what.nodes[(at + 1) % count], (node,), ())
    parts["jobs.now"] = jobs.JobsNow(
        NOW_US,
        (
            jobs.JobNow(
                kind="pg_dump",
                pid=1,
                backends=(),
                sources=(),
                unknown=(),
                command=command(what, at),
                writes=f"{what.mounts[at]}/x",
            ),
        ),
    )
    parts["findings"] = FindingsNow([_finding(what, at)])
    return parts


def _finding(what: Planted, at: int) -> FindingNow:
    query = statement(what, at)[:79]
    text = f"{what.databases[at]} holds a lock, waits {at + 3}.5 s (pid 4000: {query}…), {human_bytes(at << 20)}"
    evidence = {
        "database": what.databases[at],
        "query": statement(what, at),
        "waits_s": at + 3.5,
        what.relations[at]: 4,
    }
    name = f"disk-full:{what.mounts[at]}"
    return FindingNow(
        name,
        "disk-full",
        "warning",
        what.mounts[at],
        text,
        evidence,
        NOW_US,
        NOW_US,
        [name],
        [f"mount:{what.mounts[at]}.used_bytes"],
    )


def record_planted(sessions: Path, what: Planted) -> Path:
    """A closed session with every original in typed fields, and in every kind of text."""
    count = len(what.users)
    clock = HeldClock()
    meta = new_meta(
        target=f"{what.databases[0]}:5432@{what.hosts[0]}",
        target_key="abc",
        host=what.hosts[0],
        program_version="0.1",
        clock=clock,
    )
    made = Recorder(session_directory(sessions, meta), meta, clock, block_samples=20)
    run = _run(made.directory, what, clock)
    for number in range(count):
        tick = number + 1
        wall_us, mono_us = NOW_US + tick * 1_000_000, 1_000_000_000 + tick * 1_000_000
        parts = [
            make_part(name, reading, at_us=mono_us, note=sentence(what, number) if name == "pg.wal" else None)
            for name, reading in readings(what, tick, number).items()
            if tick == 1 or tick % min(PARTS[name].every_s, 4) == 0 or name in _ALWAYS
        ]
        sample = Sample(tick, wall_us, mono_us, parts, "run1")
        made.put_sample(sample, encode_sample(sample))
        kind = ("note", "finding.raised", "server.lost", "mark")[number % 4]
        made.put_event(
            Event(
                wall_us=wall_us,
                kind=kind,
                text=sentence(what, number),
                who=what.users[number],
                details={
                    "what": log_line(what, number),
                    "quoted": quoting(what, number),
                    "list": [sentence(what, number)],
                    "id": f"slot-lag:{what.slots[number]}",
                },
            )
        )
        made.put_lines(
            [LogLine(wall_us, "PGDUMP", log_line(what, number)), LogLine(wall_us, "PGDUMP", sentence(what, number))]
        )
        if tick % 50 == 0:
            assert made.flush()
    for event in run:
        made.put_event(event)
    assert made.flush()
    assert made.close("done")
    out = made.directory / "out"
    out.mkdir()
    (out / "x.log").write_text("".join(f"{NOW_US} o {sentence(what, number)}\n" for number in range(count)))
    return made.directory


_ALWAYS = (
    "pg.activity", "pg.locks", "pg.replication", "host.mounts", "host.settings", "cluster", "jobs.now", "findings",
    "pg.server", "pg.wal", "locks.episodes",
)  # fmt: skip


def _run(session: Path, what: Planted, clock: HeldClock) -> list[Event]:
    """A run whose document, inputs, arguments, errors and output hold originals; its records as events."""
    count = len(what.users)
    text = "# Drop the cache\n\n" + "\n".join(sentence(what, number) for number in range(count))
    body = "\n".join(command(what, number) for number in range(count))
    step = Step(
        id="drop-it", title="Drop it", line=3,
        blocks=(Block(id="drop-it/run", kind="run", line=5, language="sh", body=body),),
    )  # fmt: skip
    plan = Plan(
        id="cache-drop",
        title="Drop the cache",
        inputs=(Input(name="database", type="text", default=what.databases[0]),),
        steps=(step,),
    )
    about = RunAbout(
        run=RUN,
        runbook="cache-drop",
        target="x",
        conninfo=f"host='{what.hosts[0]}' user='{what.nodes[0]}'",
        host=what.hosts[0],
    )
    directory = run_directory(session, RUN)
    journal = RunJournal.create(directory, about, text=text, plan=plan, clock=clock, deadline_s=PATIENT_S)
    events = [journal.event("CACHEDROP")]
    for number in range(count):
        journal.append(
            JournalRecord(
                kind="block.result",
                text=f"failed: {sentence(what, number)}",
                step="drop-it",
                block="drop-it/run",
                execution=1,
                state="failed",
                who=what.users[number],
                fields={
                    "error": log_line(what, number),
                    "command": command(what, number),
                    "inputs": {"database": what.databases[number]},
                    "rows": [{"datname": what.databases[number], "pid": number}],
                },
            )
        )
        events.append(journal.event("CACHEDROP"))
    journal.append(JournalRecord(kind="run.ended", text="done", state="done"))
    events.append(journal.event("CACHEDROP"))
    journal.close()
    step_directory = execution_directory(directory, "drop-it/run", 1)
    step_directory.mkdir(parents=True)
    head = "".join(f"{NOW_US} e {sentence(what, number)}\n" for number in range(count))
    (step_directory / "out.log").write_text(head)
    (step_directory / f"out-{len(head.encode()) + 100}-{count + 2}.tail").write_text(
        f"{NOW_US} o {sentence(what, 0)}\n"
    )
    (step_directory / "exit.json").write_text(json.dumps({"note": what.hosts[0]}))
    return events
