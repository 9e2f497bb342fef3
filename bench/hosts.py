"""Hosts in network namespaces, joined by a bridge: cables between two of them can be cut, and one can lose its power.

Everything is in a namespace of this process, whose own end of the bridge is the host `console`. The kernel removes it
all when the processes end. Root only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from dba_console.demo.child_processes import end_child, start_child

CONSOLE = "console"
_CLONE_NEWNET = 0x40000000
_NOWHERE = "02:00:00:00:ff:ff"
"""A hardware address that nobody has: what is sent there vanishes, without an error at either end."""
_libc = ctypes.CDLL(None, use_errno=True)


class Host:
    """One machine: what is started `inside` has its network, and ends when its power fails."""

    def __init__(self, name: str, number: int, device: str, holder: subprocess.Popen[bytes] | None) -> None:
        self.name, self.address, self.hardware = name, f"10.77.0.{number}", f"02:00:00:00:00:{number:02x}"
        self.device, self.holder = device, holder
        self.has_power = True

    @property
    def namespace(self) -> str:
        return f"/proc/{self.holder.pid}/ns/net" if self.holder is not None else ""

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Processes that this thread starts within the block run on this host."""
        ours = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if self.holder is not None:
                _enter(self.namespace)
            yield
        finally:
            _set_namespace(ours)
            os.close(ours)

    def processes(self, words: str = "") -> list[int]:
        """Pids of what runs here, of those with `words` in the command line."""
        if self.holder is None:
            return []
        found, ours = [], os.readlink(self.namespace)
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if int(name) != self.holder.pid and os.readlink(f"/proc/{name}/ns/net") == ours:
                    with open(f"/proc/{name}/cmdline", "rb") as file:
                        if words in file.read().decode(errors="replace"):
                            found.append(int(name))
        return found

    def signal(self, number: signal.Signals, words: str = "") -> None:
        for pid in self.processes(words):
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, number)

    def power_off(self) -> None:
        """Everything that runs here ends, and nothing starts any more."""
        self.has_power = False
        while self.processes():  # what is about to fork is found in the next round
            self.signal(signal.SIGKILL)


class Network:
    """`with Network(("db1", "db2")) as network:` creates the hosts, and `console` for this process."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Self:
        self._before = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no network namespace: this needs root")
        try:
            self._make()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def cut(self, one: str, *others: str) -> None:
        """Nothing that is sent between `one` and the others arrives; without others: between it and every host."""
        self._lead(one, others, cut=True)

    def join(self, one: str, *others: str) -> None:
        self._lead(one, others, cut=False)

    # -- inside --------------------------------------------------------------------------------------------------

    def _make(self) -> None:
        for command in ("link set lo up", "link add bridge type bridge forward_delay 0"):
            _ip(command)
        self.hosts[CONSOLE] = Host(CONSOLE, 1, "bridge", None)
        for number, name in enumerate(self._names, 11):
            self.hosts[name] = self._plug_in(Host(name, number, "eth0", _holder()), f"cable{number}")
        console = self.hosts[CONSOLE]
        _ip(f"link set bridge address {console.hardware} up")
        _ip(f"addr add {console.address}/24 dev bridge")
        for one in self.hosts:
            self.join(one)

    @staticmethod
    def _plug_in(host: Host, cable: str) -> Host:
        assert host.holder is not None
        _ip(f"link add {cable} type veth peer name eth0 netns {host.holder.pid}")
        _ip(f"link set {cable} master bridge up")
        with host.inside():
            for command in ("lo up", f"eth0 address {host.hardware} up"):
                _ip(f"link set {command}")
            _ip(f"addr add {host.address}/24 dev eth0")
        return host

    def _lead(self, one: str, others: tuple[str, ...], *, cut: bool) -> None:
        for name in others or [name for name in self.hosts if name != one]:
            for here, there in ((self.hosts[one], self.hosts[name]), (self.hosts[name], self.hosts[one])):
                with here.inside():
                    hardware = _NOWHERE if cut else there.hardware
                    _ip(f"neigh replace {there.address} lladdr {hardware} nud permanent dev {here.device}")

    def _end(self) -> None:
        for host in self.hosts.values():
            if host.holder is not None:
                host.power_off()
                end_child(host.holder)
        _set_namespace(self._before)
        os.close(self._before)


def _holder() -> subprocess.Popen[bytes]:
    """A process that keeps a new namespace."""
    holder = start_child(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], output=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    return holder


def _ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True, stdin=subprocess.DEVNULL, capture_output=True)


def _enter(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _set_namespace(descriptor)
    finally:
        os.close(descriptor)


def _set_namespace(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter the network namespace")
