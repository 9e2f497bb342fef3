"""Commands and files on this host and over a real ssh: what became of them is known, or said to be unknown."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dba_console.actions.action import ActionContext, ActionResult, Control, PlainControl
from dba_console.actions.action_preview import ActionPreview
from dba_console.clusters.node_host import Host, HostConnectionLost, confining_unit
from dba_console.clusters.steps.promote import Promote
from dba_console.core.clock import SYSTEM
from dba_console.core.errors import ConfigError, ConnectError, ConsoleError, PermissionDenied
from dba_console.demo.server_account import server_account
from tests.background import wait_until
from tests.requirements import require_tool
from tests.sshd import BEHIND, NAME, Sshd, sshd

pytestmark = pytest.mark.xdist_group("sshd")  # where paths are long their shared connections lie in one directory


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("s")) as running:
        yield running


@pytest.fixture(params=["here", "ssh"])
def host(request: pytest.FixtureRequest) -> Host:
    """This host, directly and over ssh."""
    if request.param == "ssh":
        request.getfixturevalue("remote")
    return Host(NAME if request.param == "ssh" else None, SYSTEM)


@pytest.fixture
def over_ssh(remote: Sshd) -> Host:
    return Host(NAME, SYSTEM)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory in which every user may write."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o777)
        yield Path(made)


def processes(mark: str) -> list[int]:
    """The processes that have `mark` in their arguments."""
    found = []
    for pid in [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]:
        try:
            if mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and pid != os.getpid():
                found.append(pid)
        except OSError:
            pass  # ended meanwhile
    return found


def test_a_command_gives_its_exit_code_and_both_outputs(host: Host) -> None:
    ended = host.run(["sh", "-c", "cat; echo bad >&2; exit 3"], data=b"x" * 300_000)
    assert (ended.code, len(ended.output), ended.errors) == (3, 65536, "bad\n")
    assert host.run(["printf", "%s|", "it's", "$HOME `id`", "*", ""]).output == "it's|$HOME `id`|*||"


def test_the_ssh_configuration_of_the_operator_with_its_jump_host_is_used(remote: Sshd) -> None:
    host = Host(BEHIND, SYSTEM)
    before = remote.logins()
    assert [host.run(["echo", text]).output for text in ("one", "two")] == ["one\n", "two\n"]
    assert remote.logins() - before == 2, "one at the jump host and one at the host, for both commands"


def test_exit_code_255_of_a_command_is_not_read_as_a_lost_connection(over_ssh: Host) -> None:
    assert over_ssh.run(["sh", "-c", "exit 255"]).code == 254


def test_a_command_that_exceeds_its_timeout_is_ended_on_its_host(host: Host) -> None:
    assert host.run(["sleep", "4711"], timeout_s=0.2).code is None
    wait_until(lambda: not processes("sleep\x004711"), what="the end of the command")


def test_a_file_is_replaced_atomically_and_keeps_its_owner_and_mode(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "a b'c"
    assert host.read(str(path)) is None
    host.write(str(path), b"\x00\xff first", mode=0o640)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"\x00\xff first", 0o640)
    path.chmod(0o604)
    if os.geteuid() == 0:
        os.chown(path, 4711, 4712)
    before = path.stat()
    host.write(str(path), content := os.urandom(200_000), mode=0o600)
    after = path.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert host.read(str(path)) == path.read_bytes() == content
    host.remove(str(path))
    host.remove(str(path))
    assert os.listdir(tmp_path) == []


def test_a_link_stays_a_link_and_its_file_is_replaced(host: Host, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    host.write(str(tmp_path / "link"), b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_a_read_or_write_failure_is_an_error_with_the_path(host: Host, tmp_path: Path) -> None:
    with pytest.raises(ConsoleError, match=rf"cannot read {tmp_path} on .*: .*directory"):
        host.read(str(tmp_path))
    with pytest.raises(ConsoleError, match=rf"cannot write {tmp_path}/none/x on "):
        host.write(f"{tmp_path}/none/x", b"")


@pytest.mark.root
def test_as_another_user_only_that_users_rights_apply(host: Host, open_directory: Path) -> None:
    user = server_account().name
    assert host.run(["id", "-un"], user=user).output.split() == [user]
    (open_directory / "other").write_text("x")
    (open_directory / "other").chmod(0o600)
    with pytest.raises(ConsoleError, match="Permission denied"):
        host.read(str(open_directory / "other"), user=user)


def test_a_connection_lost_while_a_command_runs_leaves_its_outcome_unknown(
    over_ssh: Host, remote: Sshd, tmp_path: Path
) -> None:
    begun, wanted, ended = tmp_path / "begun", tmp_path / "wanted", tmp_path / "ended"

    def cut_connection() -> None:
        wait_until(begun.exists)
        remote.cut()

    thread = threading.Thread(target=cut_connection)
    thread.start()
    with pytest.raises(HostConnectionLost, match=f"connection to {NAME} was lost while a command ran"):
        script = f"touch {begun}; until [ -e {wanted} ]; do sleep 0.02; done; touch {ended}"
        over_ssh.run(["sh", "-c", script], timeout_s=60)
    thread.join()
    assert over_ssh.run(["touch", str(wanted)]).code == 0, "the next command connects again"
    wait_until(ended.exists, what="the end of the command that went on")


def test_an_interrupted_write_leaves_the_old_file_or_the_new_one(over_ssh: Host, remote: Sshd, tmp_path: Path) -> None:
    path, new = tmp_path / "file", b"n" * 30_000_000
    path.write_bytes(b"old")

    def cut_connection() -> None:
        wait_until(lambda: (tmp_path / "file.dba-console-new").exists() or path.stat().st_size > 3)
        remote.cut()

    thread = threading.Thread(target=cut_connection)
    thread.start()
    try:
        over_ssh.write(str(path), new)
    except HostConnectionLost:
        pass
    thread.join()
    assert path.read_bytes() in (b"old", new)


def test_a_host_that_does_not_answer_ends_the_wait_at_the_timeout(remote: Sshd) -> None:
    host = Host(NAME, SYSTEM)
    host.run(["true"])
    with remote.silent():
        assert host.run(["true"], timeout_s=0.1).code is None


def test_on_an_unreachable_host_nothing_was_run(remote: Sshd, over_ssh: Host) -> None:
    over_ssh.run(["true"])
    remote.stop()
    try:
        for one in (over_ssh, Host(NAME, SYSTEM)):
            with pytest.raises(ConnectError, match=f"cannot connect to {NAME} by ssh: .*refused"):
                one.run(["true"])
    finally:
        remote.start()


def test_another_host_key_is_refused(remote: Sshd) -> None:
    remote.cut()
    right = (remote.directory / "known").read_text()
    remote.known(right.split()[0] + " " + (remote.directory / "client.pub").read_text())
    try:
        with pytest.raises(ConnectError, match="Host key verification failed"):
            Host(NAME, SYSTEM).run(["true"])
    finally:
        remote.known(right)


def test_an_option_is_not_accepted_as_a_host_name() -> None:
    with pytest.raises(ConfigError):
        Host("-oProxyCommand=id", SYSTEM)


def test_output_of_a_login_shell_is_not_read_as_an_answer(tmp_path: Path) -> None:
    with sshd(tmp_path, through="echo welcome to db1; exec"):
        host = Host(NAME, SYSTEM)
        (tmp_path / "file").write_text("content")
        assert host.read(str(tmp_path / "file")) == b"content"
        assert host.account() == Host(None, SYSTEM).account()


AS_NOBODY = "setpriv --reuid=nobody --regid=nogroup --clear-groups"


@pytest.mark.root
def test_without_a_sudo_rule_the_reason_and_the_rule_are_named(tmp_path: Path) -> None:
    require_tool("sudo")
    with sshd(tmp_path, through=AS_NOBODY):
        with pytest.raises(PermissionDenied) as refused:
            Host(NAME, SYSTEM).run(["systemctl", "stop", "x"], user="root")
        assert refused.value.message.startswith(f"nobody may not run commands as root on {NAME}: sudo: ")
        assert refused.value.hint is not None
        assert "nobody ALL=(root) NOPASSWD: systemctl" in refused.value.hint


@pytest.mark.root
def test_with_a_sudo_rule_files_belong_to_the_other_user(tmp_path: Path, open_directory: Path) -> None:
    require_tool("sudo")
    place = open_directory
    with sshd(tmp_path, through=AS_NOBODY, sudoers="nobody ALL=(daemon) NOPASSWD: ALL\n"):
        host = Host(NAME, SYSTEM)
        assert host.command(["id"], user="daemon") == ["sudo", "-n", "-u", "daemon", "--", "id"]
        host.write(str(place / "file"), b"x", user="daemon")
        assert host.read(str(place / "file"), user="daemon") == b"x"
        assert (place / "file").owner() == "daemon"


def test_a_step_whose_host_was_lost_has_an_unknown_outcome() -> None:
    class CutConnection(Promote):
        def run(self, settings: Any, context: ActionContext, control: Control) -> ActionResult:
            raise HostConnectionLost("the ssh connection to db1 was lost")

    assert (
        CutConnection().act(None, ActionPreview(text="", exact=""), ActionContext(), PlainControl()).state == "unknown"
    )


def test_a_service_with_a_memory_limit_is_recognised_by_its_control_group(tmp_path: Path) -> None:
    """Files as the kernel writes them: a service of systemd is not everywhere."""
    own, unit = tmp_path / "proc/self", tmp_path / "sys/fs/cgroup/system.slice/dba-console.service"
    for place in (own, unit):
        place.mkdir(parents=True)
    assert confining_unit(str(tmp_path)) is None
    (own / "cgroup").write_text("0::/system.slice/dba-console.service\n")
    for limit, found in (("max", None), ("268435456", "dba-console.service")):
        (unit / "memory.max").write_text(f"{limit}\n")
        assert confining_unit(str(tmp_path)) == found
