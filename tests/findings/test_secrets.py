"""No password comes into a finding, a sample or an event, whichever way it stands in the server's words."""

from __future__ import annotations

from msgspec import msgpack

from dba_console.watch.findings.finding_events import change_event
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.idle_transactions import IdleTransactionLimits
from tests.background import idle_in_transaction
from tests.clusters import FreshCluster
from tests.findings.collector import local_agent
from tests.findings.test_server import reload

SECRET = "hunter2"
STATEMENTS = (
    f"create subscription s connection 'host=db1 password=''{SECRET}'' user=rep' publication p with (connect = false)",
    f"create role app password '{SECRET}'",
)
ARCHIVE = f"true -u backup:{SECRET} -T %p https://wal/%f"
SHORT_LIMITS = Limits(IdleTransactionLimits(idle_transaction_s=0.01))


def test_a_password_in_a_statement_or_in_a_command_is_shown_nowhere(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster({"archive_mode": "on", "archive_command": "true"})
    for statement in STATEMENTS:
        with (
            idle_in_transaction(cluster, statement, name="deploy"),
            local_agent(cluster.dsn(), "idle-in-transaction", "settings-changed", limits=SHORT_LIMITS) as agent,
        ):
            found = agent.until("idle-in-transaction", within_s=10)
            assert "********" in str(found.evidence["last_query"]), "it is this statement that is told"
            reload(cluster, "archive_command", f"'{ARCHIVE}'")
            changed = agent.until("settings-changed", within_s=31)
            assert "archive_command" in changed.text and "backup:********" in changed.text
            events = [change_event(change, 1, 1) for change in agent.changes]
            parts = [reading.part for reading in agent.picture.latest.values()]
            reported = msgpack.encode([*agent.rows, *events, *parts])
            assert b"deploy" in reported, "what is looked through holds what was read"
            assert SECRET.encode() not in reported
        reload(cluster, "archive_command", None)
