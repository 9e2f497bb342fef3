"""The list of incidents, and what is said to who asks for one that cannot be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.core.errors import PermissionDenied, UsageError
from dba_console.demo.incidents.incident import Incident, substitute_recording
from dba_console.demo.incidents.registry import (
    CLUSTER_INCIDENTS,
    INCIDENTS,
    find_cluster_incident,
    find_incident,
    incident_list,
)

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "incidents.md"


@pytest.mark.parametrize("name", INCIDENTS)
def test_every_incident_in_the_list_can_be_created(name: str) -> None:
    incident = find_incident(name)
    assert incident.name == name
    assert incident.title
    assert incident.within_s in (5.0, 10.0)


@pytest.mark.parametrize("name", INCIDENTS)
def test_every_incident_is_documented_with_its_finding(name: str) -> None:
    sections = {part.partition("\n")[0]: part for part in DOCUMENT.read_text().split("\n## ")}
    assert name in sections
    assert find_incident(name).finding in sections[name]


@pytest.mark.parametrize("name", CLUSTER_INCIDENTS)
def test_every_cluster_incident_is_documented_with_the_condition_it_fails(name: str) -> None:
    incident = find_cluster_incident(name)
    assert incident.name == name
    (row,) = [line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"| {name} |")]
    assert f"| `{incident.check}` |" in row


def test_a_single_server_incident_is_refused_on_a_cluster() -> None:
    with pytest.raises(UsageError, match="is for a single server"):
        find_cluster_incident("lock-queue")


def test_an_unknown_incident_is_reported_with_the_nearest_name_and_all_names() -> None:
    with pytest.raises(UsageError) as raised:
        find_incident("lock-que")
    assert raised.value.hint is not None
    assert "did you mean lock-queue?" in raised.value.hint
    assert all(name in raised.value.hint for name in [*INCIDENTS, *CLUSTER_INCIDENTS])


def test_the_list_has_a_line_for_each_and_loads_none_of_them() -> None:
    script = (
        "import sys\nfrom dba_console.demo.incidents.registry import incident_list\nprint(incident_list())\n"
        "print('\\nloaded', *sorted(name for name in sys.modules if name.startswith('dba_console')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in incident_list().splitlines()] == [*INCIDENTS, *CLUSTER_INCIDENTS]
    assert "dba_console.demo.practice_server" not in done.stdout.splitlines()[-1]


def test_an_incident_that_needs_root_is_not_started_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(PermissionDenied, match="needs root"):
        substitute_recording(NeedsRoot())


class NeedsRoot(Incident):
    name = "disk-of-its-own"
    title = "a disk fills up"
    finding = "disk-filling"
    needs_root = True
