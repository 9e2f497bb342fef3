"""What each panel says about a state of the server."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from dba_console.tui.panel_detail import parse_backend_key
from dba_console.watch.block_devices import Device
from dba_console.watch.connections.panel import ConnectionsPanel
from dba_console.watch.console.panel import EventRow
from dba_console.watch.disks.panel import MountRow
from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.drawing.text_elements import Table, TableRow, line_text, move_spare_columns_last
from dba_console.watch.drawing.time_formats import local_time_of_day
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.io.panel import ServerIoRow
from dba_console.watch.locks.layout import walk_trees
from dba_console.watch.locks.panel import LockNode, LocksPanel
from dba_console.watch.progress.panel import ProgressPanel
from dba_console.watch.progress.rows import ProgressRow
from dba_console.watch.replication.panel import ReplicationPanel, SlotRow, StandbyRow
from dba_console.watch.safety.panel import SafetyPanel
from dba_console.watch.sessions.layout import session_order
from dba_console.watch.sessions.panel import SessionRow, SessionsPanel
from tests.build import busy_frame, busy_history, empty_frame


def compact(name: str, frame: Frame, width: int = 78, height: int = 6) -> list[str]:
    return [line_text(one) for one in PANELS[name].compact(frame, width, height, busy_history())]


def table(name: str, frame: Frame, which: str) -> Table:
    detail = PANELS[name].full(frame, 120, ChartHistory())
    return next(one for one in detail.tables if one.id == which)


def frame_with_sessions(*rows: SessionRow) -> Frame:
    return Frame(panels={"sessions": SessionsPanel(rows=list(rows))})


def texts(row: TableRow, one: Table) -> dict[str, str]:
    return {column.id: cell.text for column, cell in zip(one.columns, row.cells, strict=True)}


def test_every_panel_of_the_contract_has_its_key() -> None:
    assert "".join(kind.key for kind in PANELS.values()) == "1234567890ojfc"


@pytest.mark.parametrize("name", list(PANELS))
def test_a_panel_without_data_has_no_number(name: str) -> None:
    if name != "own":
        assert not any(sign.isdigit() for text in compact(name, empty_frame()) for sign in text)
        assert compact(name, empty_frame())


@pytest.mark.parametrize("name", list(PANELS))
def test_rows_are_distinguished_and_one_column_grows(name: str) -> None:
    for one in PANELS[name].detail(busy_frame(), 120, busy_history()).tables:
        keys = [row.key for row in one.rows]
        assert len(set(keys)) == len(keys)
        assert sum(column.grow for column in one.columns) <= 1
        assert one.sort is None or one.sort in {column.id for column in one.columns}


def test_a_device_with_no_completions_has_no_await(frame: Frame) -> None:
    frame.io.devices = [Device(name="sdb", reads_per_s=0.0, writes_per_s=0.0, util_pct=0.0)]
    devices = table("io", frame, "devices")
    assert texts(devices.rows[0], devices)["read_await_ms"] == "–"
    assert "– " in compact("io", frame)[1] + " "


def test_a_device_read_once_has_unknown_rates_and_an_unknown_await(frame: Frame) -> None:
    frame.io.devices = [Device(name="sdb")]
    devices = table("io", frame, "devices")
    assert texts(devices.rows[0], devices)["read_await_ms"] == "?"
    assert texts(devices.rows[0], devices)["reads_per_s"] == "?"


def test_a_time_that_the_server_does_not_measure_says_so() -> None:
    frame = busy_frame()
    counts = {"writes_per_s": 4.0, "reads_per_s": 0.0}
    frame.io.track_io_timing, frame.io.track_wal_io_timing = "off", "on"
    frame.io.server = [
        ServerIoRow(backend_type="walwriter", object=name, context="normal", **counts) for name in ("relation", "wal")
    ]
    untimed, timed = [[cell.text for cell in row.cells] for row in table("io", frame, "pg_stat_io").rows]
    assert [untimed[8], untimed[5]] == ["timing is off", "–"]
    assert [timed[8], timed[5]] == ["–", "–"]


def test_with_checksums_off_no_failures_are_shown() -> None:
    frame = Frame(panels={"safety": SafetyPanel(data_checksums="off", xid_age=5)})
    assert "failures not counted" in compact("safety", frame)[0]
    assert "failures 0" not in compact("safety", frame)[0]


def test_past_the_warning_the_time_to_the_stop_is_shown() -> None:
    panel = SafetyPanel(data_checksums="on", xid_age=5, xid_pct=99.0, warn_in_s=0.0, stop_in_s=7200.0)
    frame = Frame(panels={"safety": panel})
    assert "stop in 2h00" in compact("safety", frame)[1]


def test_an_estimate_is_marked_and_unknown_progress_shows_time_and_wait_instead() -> None:
    lines = compact("progress", busy_frame())
    assert "68% est" in lines[0]
    assert "41% measured" in lines[1]
    assert "progress ?" in lines[2] and "for 42s, Lock:relation" in lines[2]


def test_work_without_measurable_progress_draws_no_bar() -> None:
    work = ProgressRow(kind="vacuum", pid=4, elapsed_s=61.0)
    frame = Frame(panels={"progress": ProgressPanel(operations=[work], age_s=0.1)})
    assert "▇" not in compact("progress", frame)[0]
    assert "▁" not in compact("progress", frame)[0]


def test_no_long_work_is_shown_only_if_it_was_read() -> None:
    assert "no dump" in compact("progress", Frame(panels={"progress": ProgressPanel(age_s=0.2)}))[0]
    assert "no dump" not in compact("progress", Frame())[0]


def test_the_longest_wait_is_shown_with_its_root_blocker() -> None:
    assert compact("locks", busy_frame())[0] == (
        "3 waiting, 42s: 8123 app alter table orders add column note text ← 8001 pg_dump"
    )


def test_a_blocker_without_a_session_is_shown_as_a_prepared_transaction() -> None:
    root = LockNode(pid=0, waiters=[LockNode(pid=7, wait_s=3.0)], behind=1)
    frame = Frame(panels={"locks": LocksPanel(waiting=1, longest_wait_s=3.0, trees=[root])})
    assert "← prepared transaction" in compact("locks", frame)[0]


def test_a_session_behind_two_blockers_is_two_rows() -> None:
    waiter = LockNode(pid=7, backend_start="2026-11-20T14:00:00Z", wait_s=3.0)
    frame = Frame(
        panels={
            "locks": LocksPanel(waiting=1, trees=[LockNode(pid=1, waiters=[waiter]), LockNode(pid=2, waiters=[waiter])])
        }
    )
    keys = [row.key for row in table("locks", frame, "locks").rows]
    assert len(keys) == len(set(keys)) == 4


def test_a_wait_chain_deeper_than_the_stack_is_traversed() -> None:
    node = LockNode(pid=5000)
    for pid in range(4999, 0, -1):
        node = LockNode(pid=pid, waiters=[node])
    assert sum(1 for _ in walk_trees([node])) == 2000


def test_branches_end_at_the_last_waiter() -> None:
    root = LockNode(pid=1, waiters=[LockNode(pid=2, waiters=[LockNode(pid=4)]), LockNode(pid=3)])
    assert [(place.node.pid, place.prefix) for place in walk_trees([root])] == [
        (1, ""),
        (2, "├ "),
        (4, "│ └ "),
        (3, "└ "),
    ]


def test_a_lost_slot_comes_before_one_that_retains_more() -> None:
    slots = [SlotRow(name="big", kind="physical", active=True, retained_bytes=1 << 40, wal_status="extended"),
             SlotRow(name="gone", kind="logical", wal_status="lost")]  # fmt: skip
    frame = Frame(panels={"replication": ReplicationPanel(role="primary", slots=slots)})
    assert compact("replication", frame)[1].startswith("inactive slot gone")


def test_a_failure_archiving_has_recovered_from_is_not_an_alarm(frame: Frame) -> None:
    assert "archiving fails" not in " ".join(compact("replication", frame))
    frame.replication.last_failed_age_s = 3.0
    assert "archiving fails" in " ".join(compact("replication", frame))


def test_a_standby_with_paused_replay_says_so_first() -> None:
    frame = Frame(
        panels={
            "replication": ReplicationPanel(role="standby", replay_paused=True, receiver_status="streaming", lag_s=1.0)
        }
    )
    assert compact("replication", frame)[0].startswith("replay paused")


def test_a_base_backup_is_not_counted_as_a_standby_and_has_no_lag() -> None:
    rows = [StandbyRow(application="pg_basebackup", state="backup"), StandbyRow(application="db3", state="streaming",
            lag_bytes=1 << 20, lag_s=0.2)]  # fmt: skip
    frame = Frame(panels={"replication": ReplicationPanel(role="primary", standbys=rows, lag_bytes=1 << 20, lag_s=0.2)})
    lines = compact("replication", frame)
    assert "standbys 1 · backups, receivers 1" in lines[0]
    assert "pg_basebackup · base backup" in lines
    standbys = table("replication", frame, "standbys")
    assert [texts(standbys.rows[0], standbys)[name] for name in ("lag_bytes", "sent_lag_bytes", "flush_lag_bytes")] == [
        "–",
        "–",
        "–",
    ]


def test_an_unresponsive_file_system_comes_first_with_its_reason() -> None:
    assert compact("disks", busy_frame())[0].startswith("/srv/backup timeout: statvfs did not answer")


def test_the_mount_that_fills_up_first_comes_before_fuller_ones() -> None:
    frame = Frame()
    frame.disks.mounts = [
        MountRow(path="/a", used_pct=90.0, available_bytes=1 << 30),
        MountRow(path="/b", used_pct=40.0, available_bytes=1 << 30, full_in_s=1800.0),
    ]
    assert compact("disks", frame)[0].startswith("/b")
    assert "full in 30m" in compact("disks", frame)[0]


def test_blocked_sessions_come_before_active_ones_and_those_before_idle_ones() -> None:
    rows = [
        SessionRow(pid=1, state=None, backend_type="checkpointer"),
        SessionRow(pid=2, state="idle", state_age_s=9000.0),
        SessionRow(pid=3, state="idle in transaction", xact_age_s=50.0),
        SessionRow(pid=4, state="active", query_age_s=3.0),
        SessionRow(pid=5, state="active", query_age_s=30.0),
        SessionRow(pid=6, state="active", query_age_s=1.0, wait="Lock:relation"),
    ]
    assert [row.pid for row in sorted(rows, key=session_order)] == [6, 5, 4, 3, 2, 1]


def test_a_session_keeps_its_identity_when_its_pid_is_reused() -> None:
    frame = frame_with_sessions(
        SessionRow(pid=9, backend_start="2026-11-20T14:00:00Z"), SessionRow(pid=9, backend_start="2026-11-20T14:30:00Z")
    )
    first, second = table("sessions", frame, "sessions").rows
    assert first.key != second.key


def test_the_detail_of_a_session_shows_its_query_to_the_end(frame: Frame) -> None:
    tail = "the end"
    frame.sessions.rows = [SessionRow(pid=9, state="active", query="select " + "x, " * 2000 + tail)]
    (row,) = table("sessions", frame, "sessions").rows
    assert len(row.cells[-1].text) < 500
    assert line_text(row.detail()[-1]).endswith(tail)


def test_cpu_that_cannot_be_read_is_unknown_and_not_zero() -> None:
    frame = frame_with_sessions(SessionRow(pid=9, state="active"))
    sessions = table("sessions", frame, "sessions")
    shown = texts(sessions.rows[0], sessions)
    assert (shown["cpu"], shown["read"], shown["rss"]) == ("?", "?", "?")


def test_sessions_hidden_from_this_role_are_counted_with_the_required_grant(frame: Frame) -> None:
    frame.sessions.hidden = 12
    head = " ".join(line_text(one) for one in PANELS["sessions"].detail(frame, 120, ChartHistory()).head)
    assert "12 sessions hide" in head and "GRANT pg_monitor" in head


def test_a_note_on_a_healthy_panel_is_in_its_full_screen(frame: Frame) -> None:
    frame.connections.note = "limits of roles could not be read"
    head = [line_text(one) for one in PANELS["connections"].detail(frame, 120, ChartHistory()).head]
    assert head[0] == "limits of roles could not be read"


def test_a_query_of_many_lines_is_one_line_in_a_table() -> None:
    frame = frame_with_sessions(SessionRow(pid=9, state="active", query="select *\n\n   from\tt"))
    (row,) = table("sessions", frame, "sessions").rows
    assert row.cells[-1].text == "select * from t"
    assert compact("sessions", frame)[1].endswith("select * from t")


def test_the_console_does_not_list_itself_among_the_active_sessions() -> None:
    own = SessionRow(pid=9, state="active", application="dba-console", query="select 1")
    frame = frame_with_sessions(own)
    assert "no session runs a query" in compact("sessions", frame)[0]
    assert len(table("sessions", frame, "sessions").rows) == 1


def test_a_host_without_swap_has_no_swap_rates(frame: Frame) -> None:
    frame.memory.swap_total_bytes = 0
    assert compact("memory", frame)[5] == "no swap"


def test_the_stall_trend_is_next_to_its_label_however_short_it_is() -> None:
    history = ChartHistory()
    for second in range(20, -1, -1):
        history.add(busy_frame().at_us - second * 1_000_000, {"io.psi_full_pct": 3.0})
    line = next(one for one in map(line_text, PANELS["io"].compact(busy_frame(), 60, 6, history)) if "blocked" in one)
    assert "full ▃" in line or "full ▂" in line


def test_with_an_unknown_reserve_the_count_is_next_to_the_limit() -> None:
    frame = empty_frame()
    frame.panels["connections"] = ConnectionsPanel(used=57, max=60, source="process_titles")
    assert compact("connections", frame, 38, 1)[0] == "57 of 60 max_connections"


def test_a_server_without_a_free_slot_is_full_and_not_full_soon() -> None:
    frame = empty_frame()
    frame.panels["connections"] = ConnectionsPanel(used=57, usable=57, full_in_s=0.0)
    assert compact("connections", frame, 38, 3)[2].startswith("?/min, full  ")


@pytest.mark.parametrize("width", [78, 45, 38])
def test_the_number_of_waiting_sessions_is_in_words_at_every_width(width: int) -> None:
    assert "waiting 3" in compact("connections", busy_frame(), width)[1]


def test_a_fill_time_from_two_minutes_of_growth_is_shown_without_alarm() -> None:
    def style(**fields: Any) -> str:
        row = MountRow(path="/data", used_pct=17.0, available_bytes=1 << 30, **fields)
        frame = Frame()
        frame.disks.mounts = [row]
        (line,) = PANELS["disks"].compact(frame, 78, 1, ChartHistory())
        return next(span.style for span in reversed(line))

    assert style(full_in_s=3000.0, watched_s=120.0) == ""
    assert style(full_in_s=3000.0, watched_s=300.0) == "warn"
    assert style(full_in_s=6000.0, watched_s=300.0) == ""


def test_a_nearly_full_file_system_alarms_from_the_first_trend_on() -> None:
    frame = Frame()
    frame.disks.mounts = [MountRow(path="/data", used_pct=81.0, available_bytes=1, full_in_s=3000.0, watched_s=60.0)]
    (line,) = PANELS["disks"].compact(frame, 78, 1, ChartHistory())
    assert line[-1].style == "crit"


def test_a_file_system_is_shown_with_its_path_first() -> None:
    frame = Frame()
    frame.disks.mounts = [
        MountRow(path="/", holds=["data", "log", "session", "wal"], used_pct=17.0, available_bytes=1 << 30),
        MountRow(path="/var/lib/postgresql", holds=["wal"], used_pct=17.0, available_bytes=1 << 30),
    ]
    lines = compact("disks", frame, 38)
    assert lines[0].startswith("/ data,log")
    assert lines[1].startswith("/var/lib/postgresql ")


def test_values_pg_stat_io_does_not_have_are_a_dash_and_idle_rows_are_last(frame: Frame) -> None:
    reset = ServerIoRow(backend_type="slotsync", object="wal", context="normal")
    idle = structs.replace(reset, backend_type="checkpointer", writes_per_s=0.0)
    busy = structs.replace(reset, backend_type="walwriter", writes_per_s=4.0, write_await_ms=0.2)
    frame.io.server = [idle, reset, busy]
    shown = table("io", frame, "pg_stat_io")
    assert [row.cells[0].text for row in shown.rows] == ["walwriter", "checkpointer", "slotsync"]
    cells = [texts(row, shown) for row in shown.rows]
    assert [row["write_await_ms"] for row in cells] == ["0.2 ms", "–", "?"]
    assert cells[0]["reads_per_s"] == "–"


def test_a_command_is_spelled_the_same_in_overview_and_table() -> None:
    operations = table("progress", busy_frame(), "operations")
    assert [row.cells[0].text for row in operations.rows] == [
        "pg_dump -Fd -j4 appdb", "create index orders_pkey", "alter table orders add column note text",
    ]  # fmt: skip


def test_a_base_backup_has_no_database_and_an_unknown_one_is_unknown() -> None:
    rows = [ProgressRow(kind="basebackup", pid=1), ProgressRow(kind="copy", pid=2)]
    operations = table("progress", Frame(panels={"progress": ProgressPanel(operations=rows)}), "operations")
    assert [texts(row, operations)["database"] for row in operations.rows] == ["–", "?"]


def test_a_blocker_whose_waiters_are_listed_under_another_shows_the_sessions_it_blocks() -> None:
    first = LockNode(pid=1, behind=1, waiters=[LockNode(pid=7, wait_s=3.0, also_blocked_by=[2])])
    second = LockNode(pid=2, state="idle in transaction")
    frame = Frame(panels={"locks": LocksPanel(waiting=1, longest_wait_s=3.0, trees=[first, second])})
    lines = compact("locks", frame, 100)
    assert "also blocks 7" in next(one for one in lines if one.startswith("2 "))
    assert ", blocks " not in next(one for one in lines if one.startswith("2 "))
    shown = table("locks", frame, "locks")
    assert "also blocks 7" in texts(shown.rows[-1], shown)["query"]
    assert texts(shown.rows[-1], shown)["state"] == "idle in txn"


def test_the_application_of_a_blocker_is_in_the_table_at_120_columns() -> None:
    shown = move_spare_columns_last(table("locks", busy_frame(), "locks"), 120)
    assert [column.id for column in shown.columns][-4:] == ["user", "database", "xact_s", "behind"]


def test_at_160_columns_a_third_of_the_line_is_left_for_the_query() -> None:
    shown = move_spare_columns_last(table("sessions", busy_frame(), "sessions"), 160)
    names = [column.id for column in shown.columns]
    before = sum(column.width + 1 for column in shown.columns[: names.index("query")])
    assert before + 160 // 3 <= 160


def test_active_sessions_are_counted_as_in_the_connections_panel() -> None:
    rows = [SessionRow(pid=1, backend_type="client backend", state="active", query_age_s=90.0),
            SessionRow(pid=2, backend_type="parallel worker", state="active", query_age_s=90.0),
            SessionRow(pid=3, backend_type="walsender", state="active", query_age_s=9000.0)]  # fmt: skip
    frame = frame_with_sessions(*rows)
    head = line_text(PANELS["sessions"].full(frame, 120, ChartHistory()).head[0])
    assert head == "active 1 · parallel worker 1 · walsender 1"
    shown = table("sessions", frame, "sessions")
    ages = {row.cells[0].value: cell.style for row in shown.rows for cell, column in
            zip(row.cells, shown.columns, strict=True) if column.id == "age"}  # fmt: skip
    assert ages == {1: "warn", 2: "", 3: ""}


def test_a_tag_shared_by_all_events_takes_no_column(frame: Frame) -> None:
    for tags, shown in ((("A", "A"), False), (("A", "B"), True)):
        frame.events.rows = [EventRow(at="2026-11-20T14:57:00Z", kind="note", tag=tag, text="x", seq=n)
                             for n, tag in enumerate(tags)]  # fmt: skip
        assert ("tag" in [column.id for column in table("events", frame, "events").columns]) is shown


def test_an_idle_loop_device_takes_no_line_of_the_overview(frame: Frame) -> None:
    frame.io.devices = [Device(name="vda", holds=["data"], util_pct=3.0), Device(name="loop0", util_pct=0.0),
                        Device(name="loop1", util_pct=2.0)]  # fmt: skip
    text = "\n".join(compact("io", frame, 78, 9))
    assert "loop1" in text and "loop0" not in text
    assert len(table("io", frame, "devices").rows) == 3


def test_when_all_is_over_the_overview_names_the_session_that_blocked_others(frame: Frame) -> None:
    locks = frame.of(LocksPanel)
    frame.panels["locks"] = LocksPanel(waiting=0, age_s=0.1, episodes=locks.episodes[:1])
    until = local_time_of_day(locks.episodes[0].until)
    assert compact("locks", frame)[0] == f"no lock waits · 7412 batch blocked 2 for 2m48s until {until}"
    frame.of(LocksPanel).episodes[0].waited_s = 0.3
    assert compact("locks", frame)[0] == "no lock waits"


def test_who_blocked_whom_is_a_table_of_its_own_only_if_somebody_did(frame: Frame) -> None:
    episodes = table("locks", frame, "episodes")
    assert [texts(row, episodes)["pid"] for row in episodes.rows] == ["7412", "├ 8200", "└ 1 more", "8001", "└ 8123"]
    assert texts(episodes.rows[1], episodes)["query"] == "ShareLock on public.orders"
    assert texts(episodes.rows[3], episodes)["until"] == "now"
    frame.of(LocksPanel).episodes = []
    assert [one.id for one in PANELS["locks"].full(frame, 120, ChartHistory()).tables] == ["locks"]


def test_who_blocked_whom_is_shown_while_the_server_does_not_answer(frame: Frame) -> None:
    frame.panels["locks"] = LocksPanel(status="error", episodes=frame.of(LocksPanel).episodes)
    assert table("locks", frame, "episodes").rows


def test_a_session_that_blocked_others_can_be_chosen_by_its_identity(frame: Frame) -> None:
    row = table("locks", frame, "episodes").rows[1]
    assert parse_backend_key(row.key) == {"pid": 8200, "backend_start": "2026-11-20T14:49:02.000000Z"}
