"""Connections against the limit, with and without a connection."""

from __future__ import annotations

from dba_console.watch.connections.panel import ConnectionsPanel, derive_connections
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.samples import host, postgres
from tests.build import NOW_US, part, picture, sample, series
from tests.readings import activity, of, server, sessions


def connections(latest: Picture, history: ChartHistory | None = None) -> ConnectionsPanel:
    return derive_connections(PictureFacts(latest, history or ChartHistory()))


def watched(*rows: postgres.Activity, hidden: int = 0, **of_server: object) -> Picture:
    return series({"pg.server": [server(**of_server)], "pg.activity": [sessions(*rows, hidden=hidden)]})


def rising(per_s: float, *, last: float, seconds: int = 120) -> ChartHistory:
    history = ChartHistory()
    for tick in range(seconds):
        used = last - per_s * (seconds - 1 - tick)
        history.add(NOW_US + tick * 1_000_000, {"connections.used": used})
    return history


def titles(*rows: host.ProcessTitle, unreadable: int = 0, updated: bool = True) -> host.ProcessTitles:
    return host.ProcessTitles(900, list(rows), unreadable, updated)


def title(pid: int, state: str | None, kind: str = "client backend") -> host.ProcessTitle:
    return host.ProcessTitle(pid, kind, "app", "appdb", "[local]", state, 5)


def test_only_client_backends_are_used_connections() -> None:
    panel = connections(
        watched(
            activity(1, "active"),
            activity(2, backend_type="parallel worker", leader_pid=1),
            activity(3, backend_type="walsender"),
            activity(4, backend_type="checkpointer"),
        )
    )
    assert panel.used == 1


def test_usable_connections_exclude_both_reserves() -> None:
    panel = connections(watched(version_num=160004, with_settings={"reserved_connections": "5"}))
    assert (panel.max, panel.reserved_superuser, panel.reserved_role, panel.usable) == (250, 3, 5, 242)


def test_before_16_no_connections_are_reserved_for_a_role() -> None:
    panel = connections(watched(version_num=150018))
    assert (panel.reserved_role, panel.usable) == (0, 247)


def test_states_are_counted() -> None:
    panel = connections(
        watched(
            activity(1, "active", wait_event_type="Lock"),
            activity(2, "idle"),
            activity(3, "idle in transaction"),
            activity(4, "idle in transaction (aborted)"),
            activity(5, "starting"),
        )
    )
    assert (panel.active, panel.idle, panel.idle_in_transaction, panel.waiting, panel.other_states) == (1, 1, 2, 1, 1)


def test_hidden_states_are_unknown_and_the_grant_is_named() -> None:
    panel = connections(watched(activity(1, "active"), activity(2, None, backend_type=None), hidden=1))
    assert (panel.used, panel.active, panel.idle) == (2, None, None)
    assert panel.note is not None
    assert "GRANT pg_monitor" in panel.note


def test_the_oldest_idle_session_of_a_group_is_measured_by_the_server_clock() -> None:
    panel = connections(
        watched(activity(1, state_change=NOW_US - 5_000_000), activity(2, state_change=NOW_US - 90_000_000))
    )
    assert panel.by_application[0].oldest_idle_s == 90.0


def test_a_role_without_a_limit_has_none_and_that_of_a_superuser_does_not_count() -> None:
    roles = [of(postgres.Role, name="app", connection_limit=20), postgres.Role("root", 1, True)]
    panel = connections(watched(activity(1), activity(2, user="root"), activity(3, user="new"), roles=roles))
    assert {group.name: group.limit for group in panel.by_user} == {"app": 20, "root": None, "new": None}


def test_a_steady_rise_gives_the_time_when_the_server_is_full() -> None:
    rows = [activity(pid) for pid in range(200)]
    panel = connections(watched(*rows), rising(0.2, last=200))
    assert panel.growth_per_min is not None and round(panel.growth_per_min) == 12
    assert panel.full_in_s is not None and 225 < panel.full_in_s < 245


def test_a_pool_that_has_opened_all_its_connections_stops_growing() -> None:
    counts = [*[6.0] * 120, *[6.0 + 6 * second for second in range(1, 31)], *[186.0] * 30]
    history = ChartHistory()
    for second, count in enumerate(counts):
        history.add(NOW_US + second * 1_000_000, {"connections.used": count})
    panel = connections(watched(*[activity(pid) for pid in range(186)]), history)
    assert (panel.growth_per_min, panel.full_in_s) == (0.0, None)


def test_a_full_server_is_full_now() -> None:
    panel = connections(watched(*[activity(pid) for pid in range(247)]))
    assert (panel.used_pct, panel.full_in_s) == (100.0, 0.0)


def test_without_minutes_of_history_growth_is_unknown() -> None:
    panel = connections(watched(activity(1)))
    assert (panel.growth_per_min, panel.full_in_s) == (None, None)


def test_blind_mode_counts_process_titles_against_the_last_known_limit() -> None:
    latest = picture(
        sample(part("pg.server", server()), part("pg.activity", sessions(activity(1))), at_s=1),
        sample(
            part("host.titles", titles(title(1, "idle"), title(2, "SELECT"), title(3, "SELECT waiting")), at_s=2),
            at_s=2,
        ),
    )
    panel = connections(latest)
    assert (panel.source, panel.status, panel.used, panel.usable) == ("process_titles", "ok", 3, 247)
    assert (panel.active, panel.idle, panel.waiting) == (2, 1, 1)
    assert panel.note is not None and "process titles" in panel.note


def test_blind_mode_before_any_connection_uses_the_limit_from_the_control_file() -> None:
    control = of(host.ControlFile, max_connections=100)
    panel = connections(series({"host.titles": [titles(title(1, "idle"))], "host.control": [control]}))
    assert (panel.max, panel.used, panel.usable, panel.used_pct) == (100, 1, None, None)


def test_a_server_without_processes_has_no_count() -> None:
    latest = picture(
        sample(part("host.titles", titles(title(1, "idle")), at_s=1), at_s=1),
        sample(part("host.titles", None, at_s=2, status="unsupported", note="no server process is found"), at_s=2),
    )
    panel = connections(latest)
    assert (panel.status, panel.used, panel.active, panel.note) == ("stale", None, None, "no server process is found")


def test_titles_without_a_state_leave_the_states_unknown() -> None:
    panel = connections(series({"host.titles": [titles(title(1, None), updated=False)]}))
    assert (panel.used, panel.active, panel.idle) == (1, None, None)


def test_a_restored_connection_takes_precedence_over_older_titles() -> None:
    latest = picture(
        sample(part("host.titles", titles(title(1, "idle")), at_s=1), at_s=1),
        sample(part("pg.activity", sessions(activity(1), activity(2)), at_s=2), at_s=2),
    )
    assert (connections(latest).source, connections(latest).used) == ("sql", 2)


def test_untracked_sessions_leave_the_state_counts_unknown_with_the_reason() -> None:
    rows = [activity(1, "active"), activity(2, "disabled"), activity(3, "disabled", wait_event_type="Lock")]
    panel = connections(watched(*rows))
    assert (panel.used, panel.active, panel.idle, panel.idle_in_transaction, panel.other_states) == (3, *[None] * 4)
    assert (panel.waiting, panel.status) == (1, "unsupported")
    assert panel.note == "track_activities is off for 2 of 3 sessions: their state and query are unknown"
    assert [group.active for group in panel.by_user] == [None]
