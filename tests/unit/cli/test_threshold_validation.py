"""Figures of findings in the configuration: what cannot be meant is refused, with its line and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.test_config_file import complaint, load


def test_a_threshold_may_be_an_integer_where_a_number_is_expected(tmp_path: Path) -> None:
    loaded = load(tmp_path, "[findings.disks]\nfull_warning_pct = 85\n")
    assert loaded.config.findings.disks.full_warning_pct == 85.0
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
    assert loaded.config.findings.safety.xid_overdue_pct == 150.0


def test_a_warning_threshold_beyond_the_critical_one_is_refused(tmp_path: Path) -> None:
    text = complaint(tmp_path, "[findings.disks]\n\nfull_warning_pct = 95.0\n")
    assert ":3: findings.disks.full_warning_pct (95.0) must be at most findings.disks.full_critical_pct (90.0)" in text


def test_a_critical_time_is_shorter_than_a_warning_time(tmp_path: Path) -> None:
    text = complaint(tmp_path, "[findings.disks]\nfull_in_critical_s = 90000\n")
    assert ":2: findings.disks.full_in_critical_s (90000) must be at most" in text
    both = "[findings.disks]\nfull_in_critical_s = 90000\nfull_in_warning_s = 172800\n"
    assert load(tmp_path, both).config.findings.disks.full_in_critical_s == 90000.0


def test_a_disabled_rule_must_exist(tmp_path: Path) -> None:
    assert load(tmp_path, '[findings]\noff = ["discard-mount"]\n').config.findings.off == ["discard-mount"]
    text = complaint(tmp_path, '[findings]\noff = ["disk-filing"]\n')
    assert ":2: findings.off: unknown rule 'disk-filing'" in text
    assert "did you mean disk-filling?" in text


def test_a_threshold_may_come_from_the_environment(tmp_path: Path) -> None:
    loaded = load(tmp_path, "", DBA_CONSOLE_FINDINGS_DISKS_FULL_WARNING_PCT="70")
    assert loaded.config.findings.disks.full_warning_pct == 70.0
    text = complaint(tmp_path, "", DBA_CONSOLE_FINDINGS_DISKS_FULL_WARNING_PCT="much")
    assert "DBA_CONSOLE_FINDINGS_DISKS_FULL_WARNING_PCT must be a number, not 'much'" in text
