"""What the kernel shows of the server to this user."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.cli.doctor.check import DoctorCheck, missing, ok, unknown
from dba_console.frames.picture import Picture
from dba_console.probes.host.mountinfo import hidepid_option
from dba_console.samples.host import ControlFile, HostSettings, Pressure, Processes

HOST = "host"


def check_host(picture: Picture, *, euid: int) -> Iterator[DoctorCheck]:
    """Access to the postmaster's processes and to what the kernel measures; `euid` is the console's user id."""
    yield _processes(picture)
    yield _process_io(picture)
    yield _pressure(picture)
    yield _delay_accounting(picture)
    yield _control_file(picture)
    yield _root(euid)


def _processes(picture: Picture) -> DoctorCheck:
    processes = picture.now("host.processes", Processes)
    if processes is not None:
        text = f"/proc shows the postmaster (pid {processes.postmaster}) and its {processes.total} processes"
        return ok(HOST, "processes", text)
    hidden = hidepid_option()
    lost = "CPU, I/O and state of each backend; the count of connections when no slot is free"
    return missing(
        HOST, "processes", _note(picture, "host.processes", "the postmaster was not found in /proc"), lost=lost,
        fix=f"run it as root or as the server's user, or mount /proc without {hidden}" if hidden else
        "run on the server's host",
    )  # fmt: skip


def _process_io(picture: Picture) -> DoctorCheck:
    processes = picture.now("host.processes", Processes)
    if processes is None or not processes.rows:
        return unknown(
            HOST, "process_io", "/proc/PID/io: not known without the postmaster",
            lost="bytes read and written by each backend", fix="run it as root or as the server's user",
        )  # fmt: skip
    if any(row.read_bytes is not None for row in processes.rows):
        return ok(HOST, "process_io", "/proc/PID/io of the backends can be read")
    return missing(
        HOST, "process_io", "/proc/PID/io of the backends cannot be read by this user",
        lost="bytes read and written by each backend", fix="sudo dba-console, or run it as the server's user",
    )  # fmt: skip


def _pressure(picture: Picture) -> DoctorCheck:
    pressure = picture.now("host.pressure", Pressure)
    if pressure is not None and pressure.io_some is not None:
        return ok(HOST, "psi", "pressure stall information (/proc/pressure) is there")
    fix = "boot with psi=1 on the kernel's command line (kernel 4.20 or newer)"
    lost = "the share of time in which tasks stall for I/O or memory"
    return missing(HOST, "psi", _note(picture, "host.pressure", "no /proc/pressure"), lost=lost, fix=fix)


def _delay_accounting(picture: Picture) -> DoctorCheck:
    settings = picture.now("host.settings", HostSettings)
    if settings is None or settings.task_delayacct is None:
        return unknown(HOST, "task_delayacct", _note(picture, "host.settings", "no kernel.task_delayacct here"))
    if settings.task_delayacct:
        return ok(HOST, "task_delayacct", "kernel.task_delayacct is on")
    return missing(
        HOST, "task_delayacct", "kernel.task_delayacct is off", lost="time each backend waits for block I/O",
        fix="sysctl -w kernel.task_delayacct=1",
    )  # fmt: skip


def _control_file(picture: Picture) -> DoctorCheck:
    if picture.now("host.control", ControlFile) is not None:
        return ok(HOST, "control_file", "global/pg_control can be read")
    return missing(
        HOST, "control_file", _note(picture, "host.control", "global/pg_control cannot be read by this user"),
        lost="identity, role and limits of the server while no connection can be had",
        fix="run as root or as the server's user, or initdb --allow-group-access with this user in its group",
    )  # fmt: skip


def _root(euid: int) -> DoctorCheck:
    if euid == 0:
        return ok(HOST, "root", "running as root")
    return missing(
        HOST, "root", f"not running as root (uid {euid}), and need not be",
        lost="what only root may read: /proc/PID/io of other users' processes, files of the data directory",
    )  # fmt: skip


def _note(picture: Picture, part: str, otherwise: str) -> str:
    """The probe's own sentence where it has one."""
    latest = picture.latest.get(part)
    return (latest.part.note if latest is not None else None) or otherwise
