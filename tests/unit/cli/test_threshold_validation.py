"""Figures of findings in the configuration: what cannot be meant is refused, with its line and why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.cli.config_file import LoadedConfig
from dba_console.watch.disks.file_system_rules import DiskLimits
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.safety.wraparound_rules import WraparoundLimits
from tests.unit.cli.test_config_file import complaint, load


def limits(loaded: LoadedConfig) -> Limits:
    return Limits.configured(loaded.config.findings)


def test_a_threshold_may_be_an_integer_where_a_number_is_expected(tmp_path: Path) -> None:
    loaded = load(tmp_path, "[findings.disks]\nfull_warning_pct = 85\n")
    assert limits(loaded).of(DiskLimits).full_warning_pct == 85.0
    assert loaded.origin("findings.disks.full_warning_pct") == f"{tmp_path}/config.toml:2"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("-1.0", "-1.0 is negative"),
        ("101", "101 is more than 100 %"),
        ("inf", "inf is not a valid threshold"),
        ("nan", "nan is not a valid threshold"),
        ('"85 %"', "'85 %' is not a number"),
    ],
)
def test_a_meaningless_threshold_is_refused_with_its_line(value: str, why: str, tmp_path: Path) -> None:
    text = complaint(tmp_path, f"[findings.disks]\nfull_warning_pct = {value}\n")
    assert ":2: findings.disks.full_warning_pct" in text
    assert why in text


def test_a_percentage_of_a_smaller_value_may_be_above_100(tmp_path: Path) -> None:
    loaded = load(tmp_path, "[findings.safety]\nxid_overdue_pct = 150.0\n")
    assert limits(loaded).of(WraparoundLimits).xid_overdue_pct == 150.0


def test_a_warning_threshold_beyond_the_critical_one_is_refused(tmp_path: Path) -> None:
    text = complaint(tmp_path, "[findings.disks]\n\nfull_warning_pct = 95.0\n")
    assert ":3: findings.disks.full_warning_pct (95.0) must be at most findings.disks.full_critical_pct (90.0)" in text


def test_a_critical_time_is_shorter_than_a_warning_time(tmp_path: Path) -> None:
    text = complaint(tmp_path, "[findings.disks]\nfull_in_critical_s = 90000\n")
    assert ":2: findings.disks.full_in_critical_s (90000) must be at most" in text
    both = "[findings.disks]\nfull_in_critical_s = 90000\nfull_in_warning_s = 172800\n"
    assert limits(load(tmp_path, both)).of(DiskLimits).full_in_critical_s == 90000.0


def test_a_disabled_rule_must_exist(tmp_path: Path) -> None:
    assert limits(load(tmp_path, '[findings]\noff = ["discard-mount"]\n')).off == ["discard-mount"]
    text = complaint(tmp_path, '[findings]\noff = ["disk-filing"]\n')
    assert ":2: findings.off: unknown rule 'disk-filing'" in text
    assert "did you mean disk-filling?" in text


def test_a_threshold_may_come_from_the_environment(tmp_path: Path) -> None:
    loaded = load(tmp_path, "", DBA_CONSOLE_FINDINGS_DISKS_FULL_WARNING_PCT="70")
    assert limits(loaded).of(DiskLimits).full_warning_pct == 70.0
    text = complaint(tmp_path, "", DBA_CONSOLE_FINDINGS_DISKS_FULL_WARNING_PCT="much")
    assert "DBA_CONSOLE_FINDINGS_DISKS_FULL_WARNING_PCT must be a number, not 'much'" in text


def test_thresholds_of_two_structs_of_a_family_are_also_compared(tmp_path: Path) -> None:
    text = complaint(tmp_path, "[findings.disks]\nfull_in_warning_s = 300\nfull_in_critical_s = 100\n")
    assert ":2: findings.disks.temp_full_in_critical_s (600.0) must be at most" in text


def test_a_configuration_without_thresholds_loads_no_rules(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[agent]\ngrace = "1m"\n')
    script = (
        "import sys; from pathlib import Path; from dba_console.cli.config_file import load_config\n"
        "load_config(Path(sys.argv[1]), {})\n"
        "print(*(name for name in sys.modules if name.startswith('dba_console.watch.findings')))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "config.toml")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == []
