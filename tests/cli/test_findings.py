"""Findings on the command line: listed, acknowledged, silenced, counted by `check`. Real server, real agent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.background import wait_until
from tests.cli.console import BUSY_HOST, Agent, CompletedCommand, Console, own_console

FILLING = (
    BUSY_HOST
    + """
[findings.connections]
near_pct = 0.5
clear_pct = 0.1
critical_pct = {critical}
storm_warn_pct = 0.1
"""
)
"""The console's own connection is enough to be near such a limit."""
RULE = "connections-filling"


@pytest.fixture(scope="module")
def console_with_finding(cluster: Cluster) -> Iterator[Console]:
    """A console with an agent that finds the server's connections nearly taken. Its findings stay as they are."""
    with own_console() as console, running_agent(console, cluster):
        yield console


@contextmanager
def running_agent(console: Console, cluster: Cluster) -> Iterator[Agent]:
    console.write_config(FILLING.format(critical=95.0))
    with console.watching(cluster.dsn()) as agent:
        agent.raised(RULE)
        yield agent


def wait_for_state(agent: Agent, state: str) -> None:
    """Wait until the finding is in that state."""
    agent.until(lambda frame: [row.state for row in frame.findings if row.rule == RULE] == [state], f"{RULE}: {state}")


def test_a_finding_is_listed_with_its_start_and_its_severity(console_with_finding: Console, cluster: Cluster) -> None:
    done = console_with_finding.run("findings", "list", cluster.dsn())
    assert done.code == 0
    row = next(line for line in done.out.splitlines() if "connections-filling" in line)
    assert "warning" in row and "open" in row


def test_a_finding_has_all_its_evidence_as_json(console_with_finding: Console, cluster: Cluster) -> None:
    found = console_with_finding.run("findings", "list", "--json", cluster.dsn()).objects()
    filling = next(one for one in found if one["id"] == "connections-filling")
    assert filling["evidence"]["used"] >= 1
    assert filling["evidence"]["usable"] > filling["evidence"]["used"]
    assert filling["since"].endswith("Z")


def test_a_finding_is_shown_in_full_by_a_prefix_of_its_name(console_with_finding: Console, cluster: Cluster) -> None:
    done = console_with_finding.run("findings", "show", "connections-f", cluster.dsn())
    assert done.code == 0
    assert "evidence: used" in done.out


def test_the_findings_are_in_the_json_object_of_show(console_with_finding: Console, cluster: Cluster) -> None:
    [tick] = console_with_finding.run("show", "--json", cluster.dsn()).objects()
    assert [one["severity"] for one in tick["findings"] if one["id"] == "connections-filling"] == ["warning"]


def test_an_acknowledged_finding_has_name_and_note_and_is_an_event(console: Console, cluster: Cluster) -> None:
    with running_agent(console, cluster) as agent:
        done = console.run("findings", "ack", RULE, "--note", "pool is being resized", cluster.dsn())
        assert done.code == 0, done.err
        assert "acknowledged by" in done.out
        wait_for_state(agent, "acknowledged")
        listed = console.run("findings", "list", cluster.dsn())
        assert listed.code == 0 and "acknowledged" in listed.out
        [tick] = console.run("show", "--json", "events", cluster.dsn()).objects()
        assert any("pool is being resized" in row["text"] for row in tick["panels"]["events"]["rows"])


def test_a_silenced_finding_does_not_alarm_even_with_another_agent_until_unsilenced(
    console: Console, cluster: Cluster
) -> None:
    with running_agent(console, cluster) as agent:
        assert console.run("check", cluster.dsn()).code == 1
        assert console.run("findings", "silence", RULE, "--for", "1h", cluster.dsn()).code == 0
        wait_for_state(agent, "silenced")
        quiet = console.run("check", cluster.dsn())
        assert (quiet.code, "silenced" in quiet.out) == (0, True)
    with running_agent(console, cluster) as agent:
        wait_for_state(agent, "silenced")
        assert "silenced" in console.run("findings", "list", cluster.dsn()).out
        assert console.run("findings", "unsilence", RULE, cluster.dsn()).code == 0
        wait_for_state(agent, "open")
        assert console.run("check", cluster.dsn()).code == 1


def test_an_acknowledgement_of_an_unknown_finding_is_refused_with_a_hint(
    console_with_finding: Console, cluster: Cluster
) -> None:
    done = console_with_finding.run("findings", "ack", "disk-on-fire", cluster.dsn())
    assert done.code == 2
    assert done.err.startswith("error: no open finding 'disk-on-fire'\nhint: open findings: connections-filling")


def test_without_a_server_name_the_only_agent_is_used_and_that_is_reported(console_with_finding: Console) -> None:
    listed = console_with_finding.run("findings", "list")
    assert listed.code == 0 and RULE in listed.out
    assert "the only running agent, which watches postgres" in listed.err
    refused = console_with_finding.run("findings", "ack", "no-such-rule")
    assert "no open finding 'no-such-rule'" in refused.err


def test_for_another_server_the_running_agents_are_listed(console_with_finding: Console) -> None:
    named = console_with_finding.run("findings", "silence", RULE, "host=/nowhere dbname=app")
    assert (named.code, "no agent watches app" in named.err, "agents run for postgres" in named.err) == (3, True, True)
    by_environment = console_with_finding.run("findings", "silence", RULE, PGDATABASE="app", PGHOST="/nowhere")
    assert (by_environment.code, "no agent watches app" in by_environment.err) == (3, True)


def test_without_an_agent_nothing_can_be_acknowledged_and_an_error_says_so(console: Console, cluster: Cluster) -> None:
    done = console.run("findings", "ack", "connections-filling", cluster.dsn())
    assert done.code == 3
    assert "no agent watches" in done.err and "hint:" in done.err


def test_without_an_agent_the_rules_are_evaluated_and_nothing_is_left_behind(
    console: Console, cluster: Cluster
) -> None:
    console.write_config(FILLING.format(critical=95.0))
    done = console.run("findings", "list", cluster.dsn())
    assert "connections-filling" in done.out, done.err
    assert not console.sessions.exists()


@pytest.mark.parametrize(("critical", "code"), [(95.0, 1), (0.5, 2)])
def test_check_without_an_agent_follows_the_configured_thresholds(
    console: Console, cluster: Cluster, critical: float, code: int
) -> None:
    console.write_config(FILLING.format(critical=critical))
    done = console.run("check", cluster.dsn())
    assert done.code == code, done.out + done.err
    assert "connections-filling" in done.out.splitlines()[0]


def test_replay_can_start_at_a_raised_finding(console_with_finding: Console) -> None:
    def shown() -> CompletedCommand | None:
        done = console_with_finding.run("replay", "last", "--at", "finding:connections-filling", "--show", "--json")
        return done if done.code == 0 else None

    done = wait_until(shown, 60, what="the finding in the recording")
    assert "connections-filling" in [one["id"] for one in json.loads(done.out)["findings"]]


def test_every_rule_is_listed_with_what_it_detects(console: Console) -> None:
    done = console.run("findings", "rules", "--json")
    named = {rule["name"]: rule["title"] for rule in done.objects()}
    assert len(named) > 30 and all(named.values())
    inodes = next(rule for rule in done.objects() if rule["name"] == "inodes-filling")
    assert inodes["settings"] == ["disks.inodes_warning_pct", "disks.inodes_critical_pct"]
    assert inodes["kinds"] == dict.fromkeys(inodes["settings"], "judgement")
