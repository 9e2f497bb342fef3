"""Which server a pending revert belongs to: a server and its standby have more in common than a name."""

from __future__ import annotations

from dba_console.actions.identity import STANDBY, ServerIdentity
from dba_console.actions.temporary_settings import PendingRevert, filter_by_server

PRIMARY = ServerIdentity(system_identifier="7412", timeline=3, data_directory="/var/lib/postgresql/15/main", port=5432)
STANDBY_OF_IT = ServerIdentity(
    system_identifier="7412", role=STANDBY, timeline=3, data_directory="/var/lib/postgresql/15/main", port=5432
)
PENDING = PendingRevert(id="a", parameter="fsync", target_key="k", server=PRIMARY)


def test_pending_reverts_are_per_server_of_a_cluster() -> None:
    assert filter_by_server([PENDING], PRIMARY, "another spelling") == [PENDING]
    assert filter_by_server([PENDING], STANDBY_OF_IT, "another target") == []


def test_a_server_that_became_a_standby_keeps_its_pending_reverts() -> None:
    assert filter_by_server([PENDING], STANDBY_OF_IT, "k") == [PENDING]


def test_unknown_values_of_a_server_hide_no_pending_revert() -> None:
    bare = ServerIdentity(system_identifier="7412", data_directory="/var/lib/postgresql/15/main")
    of_standby = PendingRevert(id="a", parameter="fsync", target_key="k", server=STANDBY_OF_IT)
    assert filter_by_server([of_standby], bare, "another spelling") == [of_standby]
