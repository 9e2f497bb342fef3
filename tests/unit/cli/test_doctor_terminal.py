"""What the doctor says of terminals, logins and where sessions lie."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from dba_console.cli.doctor.check import DoctorCheck
from dba_console.cli.doctor.host import check_sessions, check_tools
from dba_console.cli.doctor.terminal import TerminalFacts, check_terminal, client_alive_interval
from dba_console.cli.sessions_directory_check import mount_of, unwritable_reason
from dba_console.watch.samples.host import Mount

GB = 1 << 30
SSH = {"TERM": "xterm-256color", "SSH_CONNECTION": "192.0.2.1 5 192.0.2.2 22"}


def terminal(
    environ: Mapping[str, str],
    *,
    size: tuple[int, int] | None = (80, 24),
    encoding: str = "UTF-8",
    user: str = "dba",
    kill: bool | None = False,
    lingers: bool = False,
    alive: int | None = 30,
) -> dict[str, DoctorCheck]:
    facts = TerminalFacts(size, encoding, environ, user, kill, lingers, alive)
    return {check.id: check for check in check_terminal(facts)}


def test_eighty_by_twenty_four_in_tmux_is_sufficient() -> None:
    assert {check.status for check in terminal({**SSH, "TMUX": "/tmp/x"}).values()} == {"ok"}


def test_ssh_outside_tmux_is_shown_how_to_keep_the_screen() -> None:
    assert terminal(SSH)["multiplexer"].fix == "tmux new -A -s dba"


def test_a_console_login_needs_no_tmux() -> None:
    found = terminal({"TERM": "linux"})
    assert found["multiplexer"].status == "ok"
    assert "ssh_keepalive" not in found


def test_a_dumb_terminal_is_referred_to_the_text_command() -> None:
    assert "dba-console show" in (terminal({"TERM": "dumb"})["colours"].fix or "")


def test_no_terminal_at_all_is_unknown_and_not_a_problem() -> None:
    assert terminal({}, size=None)["terminal"].status == "unknown"


def test_a_small_window_is_reported_with_its_size() -> None:
    assert terminal(SSH, size=(79, 24))["size"].text.startswith("79×24")


def test_a_logind_that_kills_at_logout_needs_more_than_lingering() -> None:
    fix = terminal(SSH, kill=True)["logout"].fix or ""
    assert "enable-linger dba" in fix
    assert "systemd-run --user --scope" in fix
    assert "enable-linger" not in (terminal(SSH, kill=True, lingers=True)["logout"].fix or "")


def test_logind_keeps_processes_of_root() -> None:
    assert terminal(SSH, kill=True, user="root")["logout"].status == "ok"


def test_an_unresponsive_logind_is_unknown() -> None:
    assert terminal(SSH, kill=None)["logout"].status == "unknown"


def test_sshd_without_keepalive_is_reported_with_the_setting() -> None:
    assert "ClientAliveInterval 30" in (terminal(SSH, alive=0)["ssh_keepalive"].fix or "")
    assert terminal(SSH, alive=None)["ssh_keepalive"].status == "unknown"


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        (["clientaliveinterval=15"], 15),
        (["Match User x", "ClientAliveInterval 15"], 0),
        (["#ClientAliveInterval 15"], 0),
        ([], 0),
    ],
)
def test_sshd_config_is_read_as_sshd_reads_it(lines: list[str], seconds: int) -> None:
    assert client_alive_interval(lines) == seconds


def test_a_missing_tool_is_reported_with_the_install_command_of_this_distribution() -> None:
    red = {check.id: check for check in check_tools({"dnf": "/usr/bin/dnf"}.get)}
    assert red["vmstat"].fix == "dnf install procps-ng"
    debian = {check.id: check for check in check_tools({"apt-get": "/usr/bin/apt-get", "psql": "/usr/bin/psql"}.get)}
    assert debian["psql"].status == "ok"
    assert debian["iostat"].fix == "apt-get install sysstat"


def storage(mount: Mount | None, refused: str | None = None) -> dict[str, DoctorCheck]:
    return {check.id: check for check in check_sessions("/s", refused, mount, 2 * GB)}


def mount_on(
    fstype: str = "ext4", *, holds: list[str] | None = None, available: int | None = 9 * GB, status: str = "ok"
) -> Mount:
    return Mount("/", "/dev/vda1", fstype, "rw", "vda", ["session", *(holds or [])], 0, 0, available, status=status)


def test_sessions_on_the_disk_of_the_wal_are_reported() -> None:
    assert "WAL" in storage(mount_on(holds=["data", "wal"]))["shared"].text
    assert storage(mount_on(holds=["log"]))["shared"].status == "ok"


def test_if_the_data_path_is_unknown_a_shared_disk_is_not_ruled_out() -> None:
    found = {check.id: check for check in check_sessions("/s", None, mount_on(), GB, locations_known=False)}
    assert found["shared"].status == "unknown"


def test_network_file_systems_and_memory_are_unsuitable_for_sessions() -> None:
    assert storage(mount_on("nfs4"))["file_system"].status == "missing"
    assert "reboot" in (storage(mount_on("tmpfs"))["file_system"].lost or "")
    assert storage(mount_on("xfs"))["file_system"].status == "ok"


def test_a_stalled_file_system_is_reported_and_its_space_is_unknown() -> None:
    found = storage(mount_on(available=None, status="timeout"))
    assert found["file_system"].status == "missing"
    assert found["space"].status == "unknown"


def test_less_space_than_the_session_limit_is_reported() -> None:
    assert storage(mount_on(available=GB))["space"].status == "missing"


def test_an_unwritable_directory_is_critical() -> None:
    assert storage(mount_on(), "it belongs to uid 7")["writable"].critical == 6


def test_a_real_directory_is_found_on_its_mount(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "yet"
    assert unwritable_reason(directory) is None
    assert not directory.exists()
    mount = mount_of(directory, None)
    assert mount is not None
    assert str(tmp_path).startswith(mount.path)
    assert mount.size == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert unwritable_reason(tmp_path / "file") == f"{tmp_path}/file is not a directory"


def test_a_directory_writable_by_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert unwritable_reason(tmp_path) == f"others may write into {tmp_path}: `chmod go-w {tmp_path}`"
