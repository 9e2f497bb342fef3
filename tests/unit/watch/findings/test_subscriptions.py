"""Subscriptions: new errors, missing workers, disabled ones; errors from before raise nothing."""

from __future__ import annotations

from typing import Any

from dba_console.watch.replication.readings import Subscription, Subscriptions
from tests.readings import of
from tests.unit.watch.findings.reading_ticks import ReadingTicks, only, primary

TURN_S = 30.0
"""The cadence of pg.subscriptions."""


class SubscriptionTicks:
    def __init__(self) -> None:
        self.watching = ReadingTicks("subscription-failing")
        self.watching.tick({"pg.server": primary()})

    def tick(self, ticks: int = 1, **fields: Any) -> Any:
        made = {"name": "feed", "database": "shop", "enabled": True, "has_slot": True, "worker_pid": 7}
        row = of(Subscription, **{"apply_errors": 3, "sync_errors": 0, **made, **fields})
        for _ in range(ticks):
            found = self.watching.tick({"pg.subscriptions": Subscriptions([row])}, after_s=TURN_S)
        return found


def test_errors_are_reported_when_counted_and_earlier_ones_are_not() -> None:
    subscriptions = SubscriptionTicks()
    assert subscriptions.tick(3) == {}
    found = only(subscriptions.tick(apply_errors=9))
    assert (found.id, found.severity) == ("subscription-failing:shop.feed", "warning")
    assert found.text == "Subscription feed in database shop fails: 6 errors counted recently"
    assert subscriptions.tick(6, apply_errors=9) == {}, "it goes on"


def test_a_briefly_missing_worker_is_not_a_finding_and_after_a_minute_it_is() -> None:
    subscriptions = SubscriptionTicks()
    assert subscriptions.tick(2, worker_pid=None) == {}
    assert "has had no apply worker for 1m" in only(subscriptions.tick(worker_pid=None)).text


def test_a_subscription_disabled_by_an_error_is_a_warning_and_by_a_user_info() -> None:
    error = only(SubscriptionTicks().tick(enabled=False, worker_pid=None, disable_on_error=True))
    assert error.severity == "warning" and "was disabled by an error, and its slot retains WAL" in error.text
    meant = only(SubscriptionTicks().tick(enabled=False, worker_pid=None, disable_on_error=True, apply_errors=0))
    assert (meant.severity, meant.text) == (
        "info", "Subscription feed in database shop is disabled, and its slot retains WAL on the publisher",
    )  # fmt: skip


def test_a_reset_counter_is_not_an_error() -> None:
    subscriptions = SubscriptionTicks()
    subscriptions.tick(2)
    assert subscriptions.tick(2, apply_errors=0) == {}
