"""Autovacuum that does not finish is reported with the cause; one that keeps up raises nothing."""

from __future__ import annotations

from typing import Any

from dba_console.watch.progress.readings import Operation, Operations
from dba_console.watch.safety.readings import DeadRows, DeadRowTables
from dba_console.watch.samples.console import PendingRevertNow, PendingRevertsNow
from tests.readings import activity, of, sessions
from tests.unit.watch.findings.reading_ticks import ReadingTicks, only, primary

MINUTE = 60.0


def reading_ticks() -> ReadingTicks:
    """A server whose autovacuum is on and has three workers."""
    reading_ticks = ReadingTicks("autovacuum-behind", "autovacuum-busy", "autovacuum-off")
    reading_ticks.tick(
        {"pg.server": primary(set={"autovacuum": "on", "track_counts": "on", "autovacuum_max_workers": "3"})}
    )
    return reading_ticks


def table_with_dead_rows(**fields: Any) -> DeadRows:
    made = {"name": "public.orders", "dead": 50_000, "live": 50_000, "trigger": 10_050, "enabled": True, "vacuums": 4}
    return of(DeadRows, **{**made, **fields})


def minutes(reading_ticks: ReadingTicks, count: int, *rows: DeadRows, **more: Any) -> Any:
    for _ in range(count):
        found = reading_ticks.tick({**more, "pg.dead_rows": DeadRowTables("shop", list(rows))}, after_s=MINUTE)
    return found


def test_a_table_never_vacuumed_is_reported_after_an_hour_and_not_before() -> None:
    ticks = reading_ticks()
    assert minutes(ticks, 60, table_with_dead_rows()) == {}
    found = only(minutes(ticks, 2, table_with_dead_rows(last_vacuum=ticks.ago(86_400))))
    assert found.text.startswith(
        "Dead rows are not removed from public.orders of database shop: 50k, autovacuum triggers"
    )
    assert "not vacuumed since, the last one 1d" in found.text
    assert found.severity == "warning"


def test_a_table_slightly_above_its_threshold_is_not_reported() -> None:
    assert minutes(reading_ticks(), 120, table_with_dead_rows(dead=19_000)) == {}


def test_the_time_of_a_table_cleaned_in_between_starts_again() -> None:
    ticks = reading_ticks()
    minutes(ticks, 50, table_with_dead_rows())
    minutes(ticks, 1)
    assert minutes(ticks, 50, table_with_dead_rows(vacuums=5)) == {}


def test_a_repeatedly_vacuumed_table_is_reported_with_what_holds_its_rows() -> None:
    ticks = reading_ticks()
    for number in range(62):
        found = minutes(ticks, 1, table_with_dead_rows(vacuums=4 + number))
    reported = only(found)
    assert "vacuumed 61 times since, without effect: an old snapshot may still need the rows" in reported.text
    assert "oldest xmin" in (reported.advice or "")


def test_a_table_with_autovacuum_disabled_is_reported_as_such() -> None:
    assert (
        "autovacuum_enabled is off for it"
        in only(minutes(reading_ticks(), 62, table_with_dead_rows(enabled=False))).text
    )


def test_workers_cancelled_each_time_are_reported() -> None:
    ticks = reading_ticks()
    for number in range(62):
        work = of(Operation, kind="vacuum", pid=500 + number % 5, object="public.orders")
        found = minutes(ticks, 1, table_with_dead_rows(), **{"pg.progress": Operations([work])})
    assert "5 workers started since and none finished" in only(found).text


def test_all_workers_busy_for_an_hour_are_reported_with_the_oldest() -> None:
    ticks = reading_ticks()

    def busy(count: int, ticks_busy: int) -> Any:
        for _ in range(ticks_busy):
            query = "autovacuum: VACUUM public.orders"
            rows = [
                activity(n, "active", backend_type="autovacuum worker", query=query, xact_start=ticks.ago(7200))
                for n in range(count)
            ]
            found = minutes(ticks, 1, **{"pg.activity": sessions(*rows, now_us=0)})
        return found

    assert busy(3, 60) == {}
    reported = only(busy(3, 2))
    assert reported.text.startswith("All 3 autovacuum workers have been busy for 1h")
    assert "VACUUM public.orders for 2h" in reported.text
    busy(2, 4)
    assert busy(3, 59) == {}, "one was free in between"


def test_autovacuum_turned_off_is_a_warning_and_info_while_a_run_has_it_off() -> None:
    ticks = ReadingTicks("autovacuum-off")
    off = {"pg.server": primary(set={"autovacuum": "off", "track_counts": "on"})}
    assert only(ticks.tick(off)).severity == "warning"
    lent = of(PendingRevertNow, parameter="autovacuum", run_is_active=True)
    assert only(ticks.tick({**off, "reverts": PendingRevertsNow(0, (lent,))})).severity == "info"
    assert ReadingTicks("autovacuum-off").tick({"pg.server": primary(set={"autovacuum": "on"})}) == {}


def test_autovacuum_turned_off_on_a_standby_is_left_to_its_primary() -> None:
    off = primary(set={"autovacuum": "off"}, in_recovery=True)
    assert ReadingTicks("autovacuum-off").tick({"pg.server": off}) == {}
