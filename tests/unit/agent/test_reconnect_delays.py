"""How often a server is asked again, by what it said."""

from __future__ import annotations

from itertools import accumulate

from dba_console.agent.server_service import delay_s, delays_after
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed


def attempts_in(seconds: float, error: ConnectFailed) -> int:
    """Attempts within so much time, the first one at its start."""
    waits = (delay_s(delays_after(error), number) for number in range(1000))
    return 1 + sum(1 for at in accumulate(waits) if at < seconds)


def test_a_wrong_password_is_not_retried_each_second() -> None:
    error = ConnectFailed("auth", "password authentication failed", sqlstate="28P01")
    assert attempts_in(60, error) == 5
    assert attempts_in(3600, error) < 125


def test_a_free_slot_is_tried_each_second() -> None:
    assert attempts_in(60, ConnectFailed("no_slots", "too many clients", limit="server")) == 60


def test_a_role_connection_limit_is_retried_less_often() -> None:
    assert attempts_in(60, ConnectFailed("no_slots", "too many for role", limit="role")) < 20


def test_a_started_server_is_connected_within_seconds() -> None:
    assert delays_after(ConnectFailed("starting", "starting up"))[-1] <= 5
