"""Control of one node's server: stop, start, make a standby, rewind, clone, and read pg_control while it is down.

Commands run on its host as the owner of its data directory. An exit code does not prove a state: whether the server
runs is read from postmaster.pid and /proc, how it ended from global/pg_control.
"""

from __future__ import annotations

import math
import os
import pwd
import re
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence

from dba_console.clusters import host_scripts
from dba_console.clusters.node_host import Host, HostConnectionLost, confining_unit, last_line, last_word
from dba_console.core.clock import Clock
from dba_console.core.config import NodeConfig
from dba_console.core.errors import ConfigError, ConsoleError, Refused, Unsupported
from dba_console.core.short_command import CommandResult
from dba_console.watch.probes.host.data_directory import DamagedControl, PgControl, parse_control
from dba_console.watch.probes.host.kernel_files import read_stat

POLL_S = 0.005
"""Poll interval for a local server that stops or starts: short, because clients wait and it reads two small files."""
_NEVER = threading.Event()
STOP_S = 60.0
"""pg_ctl's default timeout."""
POSTMASTER_START_S, STOP_CHECK_S = 10.0, 1.0
"""Time for a postmaster to appear after a successful start command; interval of checks for a stop request."""
_USUAL_OWNER = "postgres"
"""Account used if others may not see the data directory, as in /var/lib/pgsql."""
ALONE = "dba_console.alone=on"
"""Option before those of a start for crash recovery only: the next start does not repeat them."""
CLEAN_STATES = ("shut down", "shut down in recovery")
_BEGIN, _END = "# dba-console: standby\n", "# dba-console: end\n"
_BLOCK = re.compile(rf"^{_BEGIN}.*?^{_END}", re.M | re.S)
_OPTION = re.compile(r' "(.*?)"(?= "|\n|$)', re.S)


class ServerControl:
    """One node's server on its host. Not thread-safe."""

    def __init__(
        self, name: str, config: NodeConfig, data_directory: str, bin_directory: str | None, clock: Clock
    ) -> None:
        self.name, self.data_directory, self.host = name, data_directory, Host(config.ssh, clock)
        self._config, self._bin, self._clock = config, config.bin_directory or bin_directory, clock
        self._kind, _, self._unit = (config.control or "pg_ctl").partition(":")
        self._owner: str | None = None
        self.should_stop_waiting: Callable[[], bool] = lambda: False  # asked while it waits for the server
        if self._kind not in ("pg_ctl", "systemd", "pg_ctlcluster") or (self._kind == "pg_ctl") == bool(self._unit):
            raise ConfigError(
                f"control of {name} is {config.control!r}",
                hint="use pg_ctl, systemd:UNIT or pg_ctlcluster:VERSION/NAME",
            )

    # -- reading -------------------------------------------------------------------------------------------------

    def control_file(self) -> PgControl:
        """Read global/pg_control. Raises ConsoleError if it cannot be read or parsed."""
        for last in (False, False, True):
            data = self.host.read(f"{self.data_directory}/global/pg_control", user=self.owner())
            if data is None:
                raise ConsoleError(f"{self.name}: {self.data_directory} on {self.host.name} has no global/pg_control")
            try:
                control = parse_control(data)
            except DamagedControl as error:
                if last:  # otherwise it was read during a write of the server
                    raise ConsoleError(f"{self.name}: {error}") from error
                continue
            break
        if control.state is None or control.checkpoint_lsn is None:
            raise Unsupported(f"{self.name}: pg_control has the unknown format {control.version_number}")
        return control

    def running(self) -> bool:
        """Whether postmaster.pid names a live postmaster of this data directory. Raises ConsoleError."""
        return self._wait("", 0) != "stopped"

    def owner(self) -> str:
        """Return the owner of the data directory, the account its programs run as."""
        if self._owner is None and self.host.ssh is None:
            self._owner = self._local_owner()
        if self._owner is None:
            # While `clone` swaps the directories, only the new one may exist.
            script = 'stat -L -c %U "$1" || stat -L -c %U "$1.dba-console-new" 2>/dev/null'
            argv = ["sh", "-c", f"LC_ALL=C; export LC_ALL; {script}", "sh", self.data_directory]
            ended = self.host.run(argv, repeatable=True)
            if ended.code != 0 and "Permission denied" in ended.errors:
                ended = self.host.run(argv, user=_USUAL_OWNER, repeatable=True)
            if ended.code != 0 or not ended.output.strip():
                raise ConsoleError(
                    f"{self.name}: cannot find data directory {self.data_directory} on {self.host.name}: "
                    f"{last_line(ended)}",
                    hint="set data_directory, and ssh if the server is on another host",
                )
            self._owner = last_word(ended)
        if self._owner == "root":
            # Otherwise a link, or a server that reports a wrong directory, would make root run its programs.
            raise Unsupported(
                f"{self.name}: {self.data_directory} on {self.host.name} belongs to root, and PostgreSQL does not run "
                "as root",
                hint="check data_directory, and whether it is a link",
            )
        return self._owner

    # -- stop and start ------------------------------------------------------------------------------------------

    def stop_command(self, timeout_s: float = STOP_S) -> list[str]:
        """Return the stop command: fast mode, never immediate."""
        if self._config.stop:
            return self._config.stop
        if self._kind == "systemd":
            return self.host.command(["systemctl", "stop", self._unit], user="root")
        self._refuse_memory_limit()
        seconds = str(max(1, math.ceil(timeout_s)))
        if self._kind == "pg_ctlcluster":
            return self._pg_ctlcluster("stop", "-m", "fast", "--", "-t", seconds)
        # pg_ctl -w polls ten times a second; `stop` polls more often.
        argv = [self.program("pg_ctl"), "stop", "-D", self.data_directory, "-m", "fast", "-W"]
        return self.host.command(argv, user=self.owner())

    def start_command(self, timeout_s: float = STOP_S) -> list[str]:
        """Return the start command; for pg_ctl with the options of the previous start."""
        if self._config.start:
            return self._config.start
        if self._kind == "systemd":
            return self.host.command(["systemctl", "start", self._unit], user="root")
        self._refuse_memory_limit()
        seconds = str(max(1, math.ceil(timeout_s)))
        if self._kind == "pg_ctlcluster":
            return self._pg_ctlcluster("start", "--", "-t", seconds)
        directory, options = self.previous_start_options()
        argv = [self.program("pg_ctl"), "start", "-D", directory, "-w", "-t", seconds, "-l", self.log_path]
        if options:
            argv += ["-o", shlex.join(options)]
        return self.host.command(argv, user=self.owner())

    def stop(self, timeout_s: float) -> CommandResult:
        """Stop the server. `code` 0: it is down, whatever the command returned. Raises as Host.run."""
        if not self.running():
            return CommandResult(0, "", "", 0.0)
        ended = self._execute(self.stop_command(timeout_s), host_scripts.ATTACHED * bool(self._config.stop), timeout_s)
        return self._confirm_state(ended, "stopped", timeout_s)

    def start(self, timeout_s: float) -> CommandResult:
        """Start the server. `code` 0: it accepts connections, or replays with hot_standby off."""
        if self._wait("", 0) == "ready":
            return CommandResult(0, "", "", 0.0)
        ended = self._execute(
            self.start_command(timeout_s), host_scripts.DETACHED * bool(self._config.start), timeout_s
        )
        return self._confirm_state(ended, "ready", timeout_s)

    def kill(self, timeout_s: float) -> None:
        """Kill all processes of the server with SIGKILL: for one that is frozen. It needs crash recovery afterwards.

        Raises ConsoleError if a process remains.
        """
        argv = ["sh", "-c", host_scripts.KILL, "sh", self.data_directory, str(math.ceil(timeout_s))]
        ended = self.host.run(argv, user=self.owner(), timeout_s=timeout_s + 5)
        if ended.code != 0:
            raise ConsoleError(f"{self.name} cannot be killed: {last_line(ended)}")

    @property
    def log_path(self) -> str:
        """Log file (-l) of a server started by pg_ctl."""
        return f"{self.data_directory}/dba-console-start.log"

    @property
    def log_command(self) -> str | None:
        """The command that shows its log, if pg_ctl does not start it; empty: not known. None: see `log_path`."""
        if self._kind == "systemd":
            return f"journalctl -u {self._unit}"
        if self._kind == "pg_ctlcluster":
            return f"tail /var/log/postgresql/postgresql-{self._unit.replace('/', '-')}.log"
        return "" if self._config.start else None

    # -- standby -------------------------------------------------------------------------------------------------

    def make_standby(self, primary_conninfo: str, slot: str | None) -> None:
        """Configure the stopped server as a standby of `primary_conninfo`. Safe to repeat.

        standby.signal is written first: from then on the server cannot start as a primary.
        """
        self.fence()
        # Written also without a slot: otherwise a slot name of an earlier role would be used on the new primary.
        values = f"primary_conninfo = {_quoted(primary_conninfo)}\nprimary_slot_name = {_quoted(slot or '')}\n"
        self._write_settings(f"{_BEGIN}{values}{_END}")

    def fence(self, *, running_too: bool = False) -> None:
        """Write standby.signal, so that the stopped server can only start as a standby. Safe to repeat.

        With `running_too` before it is stopped: a supervisor may start it again at once.
        """
        if not running_too:
            self._refuse_running("made a standby")
        self.host.write(f"{self.data_directory}/standby.signal", b"", user=self.owner())

    def is_fenced(self) -> bool:
        """Whether its data directory has standby.signal. Raises ConsoleError."""
        return self.host.read(f"{self.data_directory}/standby.signal", user=self.owner()) is not None

    def undo_standby(self) -> None:
        """Undo make_standby: the server starts as a primary again. Safe to repeat."""
        self._refuse_running("made a primary")
        self._write_settings("")
        self.host.remove(f"{self.data_directory}/standby.signal", user=self.owner())

    def rewind(self, source_conninfo: str, *, dry_run: bool, timeout_s: float) -> CommandResult:
        """Run pg_rewind on the stopped server, back to the point where its history diverged; then it is a standby.

        `code` None: it is still running on the host, and the next call waits for it. Raises ConsoleError: nothing was
        done.
        """
        self._refuse_running("rewound")
        state = self.control_file().state
        # A complete pg_rewind leaves `in archive recovery`: then its record counts, as long as no server was started.
        if state not in CLEAN_STATES and not self.was_rebuilt():
            raise Refused(
                f"{self.name} was not shut down: pg_control says `{state}`, and pg_rewind needs `shut down`",
                hint="complete its crash recovery first, or copy it from the primary",
            )
        options, passfile = _without_password(source_conninfo)
        argv = ["pg_rewind", "-D", self.data_directory, f"--source-server={options}", "-P", *self._restore_options()]
        return self._rebuild("dry" if dry_run else "rewind", argv + ["-n"] * dry_run, passfile, timeout_s)

    def clone(
        self, source_conninfo: str, timeout_s: float, tablespaces: Mapping[int, str] | None = None
    ) -> CommandResult:
        """Replace the stopped server's data directory by a base backup of the source, configured as a standby.

        The old directory is renamed to DIRECTORY.before-TIME and kept, and so are the contents of its `tablespaces`
        (oid -> location on the source). `code` and errors as for `rewind`.
        """
        if self.host.run(["test", "-e", self.data_directory], user=self.owner(), repeatable=True).code == 0:
            self._refuse_running("copied")
        options, passfile = _without_password(source_conninfo)
        argv = ["pg_basebackup", "-d", options, "-X", "stream", "-c", "fast", "-P", "-w"]
        for oid, location in (tablespaces or {}).items():
            argv.append(f"--tablespace-mapping={location}={self._tablespace(oid, location)}/{host_scripts.NEW}")
        return self._rebuild("clone", argv, passfile, timeout_s)

    # -- internals -----------------------------------------------------------------------------------------------

    def program(self, name: str) -> str:
        """Return the path of one of the server's programs. Raises ConfigError if it is unknown."""
        if self._bin is None:
            opts = self._read_postmaster_opts()
            self._bin = opts.split(' "')[0].strip().rpartition("/")[0] or None
        if self._bin is None:
            raise ConfigError(f"{self.name}: the directory of its programs is unknown", hint="set bin_directory")
        return f"{self._bin}/{name}"

    def previous_start_options(self) -> tuple[str, list[str]]:
        """Return the directory and the other options of the last start, from postmaster.opts."""
        options = _OPTION.findall(self._read_postmaster_opts())
        if ALONE in options:
            del options[options.index(ALONE) - 1 :]
        directory = self.data_directory
        if "-D" in options[:-1]:
            at = options.index("-D")
            given_directory = options[at + 1]
            del options[at : at + 2]
            # -D may be a directory of configuration files only; in a copied data directory it names the original. A
            # relative one was relative to a directory that is not known.
            if (
                given_directory.startswith("/")
                and self.host.run(
                    ["test", "-e", f"{given_directory}/PG_VERSION"], user=self.owner(), repeatable=True
                ).code
                == 1
            ):
                directory = given_directory
        return directory, options

    def _pg_ctlcluster(self, *arguments: str) -> list[str]:
        version, _, cluster = self._unit.partition("/")
        # The owner may run it; for root it uses systemd, if systemd manages the cluster.
        user = None if self.host.account() == self.owner() else "root"
        return self.host.command(["pg_ctlcluster", version, cluster, *arguments], user=user)

    def _tablespace(self, oid: int, location: str) -> str:
        """Return where this server has the tablespace; one that it does not have yet needs an empty directory."""
        links = [f"{self.data_directory}{copy}/pg_tblspc/{oid}" for copy in ("", f".{host_scripts.NEW}")]
        script = 'readlink "$1" || readlink "$2" || [ -z "$(ls -A "$3" 2>/dev/null)" ] || exit 9'
        ended = self.host.run(["sh", "-c", script, "sh", *links, location], user=self.owner(), repeatable=True)
        own = ended.output.strip().removesuffix(f"/{host_scripts.NEW}") or location
        if ended.code == 9:
            raise Refused(
                f"{self.name}: {location} on {self.host.name} is not empty, and not a tablespace of this server",
                hint="the tablespace of the source needs this directory: empty it, or check that the hosts differ",
            )
        if any(sign in f"{own}{location}" for sign in "=\\\n"):
            raise Unsupported(f"{self.name}: pg_basebackup cannot map the tablespace in {location}")
        return own

    def was_rebuilt(self) -> bool:
        """Whether pg_rewind or a copy has completed, and no server was started on its result since."""
        script = '[ "$(cksum <"$1/global/pg_control")" = "$(sed "s/^[a-z]* //" "$1.dba-console/done")" ]'
        ended = self.host.run(["sh", "-c", script, "sh", self.data_directory], user=self.owner(), repeatable=True)
        return ended.code == 0

    def _restore_options(self) -> list[str]:
        """Return the options with which pg_rewind fetches WAL that is no longer in pg_wal by restore_command."""
        directory, options = self.previous_start_options()
        files = [one.partition("=")[2] for one in options if one.startswith("config_file=")]
        if directory != self.data_directory:
            files.append(f"{directory}/postgresql.conf")
        configured = [f"--config-file={files[0]}"] if files else []
        argv = [self.program("postgres"), "-D", directory, "-C", "restore_command", *options]
        ended = self.host.run(argv, user=self.owner(), repeatable=True)
        if ended.code != 0 or not ended.output.strip():
            return []
        return ["--restore-target-wal", *configured] if self._knows(configured) else []

    def _knows(self, options: list[str]) -> bool:
        """Whether pg_rewind has these options: --config-file exists since 15."""
        if not options:
            return True
        ended = self.host.run([self.program("pg_rewind"), "--help"], user=self.owner(), repeatable=True)
        return "--config-file" in ended.output

    def _rebuild(self, how: str, argv: list[str], passfile: bytes, timeout_s: float) -> CommandResult:
        argv[0] = self.program(argv[0])
        if self.host.run(["test", "-x", argv[0]], user=self.owner(), repeatable=True).code != 0:
            raise Unsupported(
                f"{self.name}: {argv[0]} is missing on {self.host.name}",
                hint="install the package with the programs of this server version, or set bin_directory",
            )
        if passfile:
            argv = ["env", "PGPASSFILE=/dev/fd/3", *argv]
        seconds = str(math.ceil(timeout_s))
        script = ["sh", "-c", host_scripts.REBUILD, "sh", host_scripts.REBUILD_BODY, seconds, self.data_directory, how]
        return self.host.run([*script, *argv], user=self.owner(), data=passfile, timeout_s=timeout_s)

    def _execute(self, command: Sequence[str], script: str, timeout_s: float) -> CommandResult:
        """Run a command, a configured one with `script`; our own commands get 5 s more than their own timeout."""
        if script:
            return self.host.run(["sh", "-c", script, "sh", *command], timeout_s=timeout_s)
        return self.host.run(command, timeout_s=timeout_s + 5, repeatable=True)

    def _confirm_state(self, ended: CommandResult, wanted_state: str, timeout_s: float) -> CommandResult:
        left_s = max(0.0, timeout_s - ended.seconds)
        try:
            wait_s = left_s if ended.code == 0 else 0.0
            now = self._wait(wanted_state, min(wait_s, POSTMASTER_START_S) if wanted_state == "ready" else wait_s)
            if (
                wanted_state == "ready" and now == "running"
            ):  # it may also have been started by an earlier command whose connection broke
                now = self._wait(wanted_state, left_s)
        except ConsoleError as error:  # the command has run
            raise HostConnectionLost(
                f"the state of {self.name} cannot be read: {error.message}", hint=error.hint
            ) from error
        if now == wanted_state:
            return CommandResult(0, ended.output, ended.errors, ended.seconds)
        return CommandResult(ended.code or None, ended.output, ended.errors, ended.seconds)

    def _wait(self, wanted_state: str, seconds: float) -> str:
        """Return the server's state (stopped, running, ready) as soon as it is `wanted_state`, or after `seconds`."""
        now = self._wait_once(wanted_state, min(seconds, STOP_CHECK_S))
        while now != wanted_state and (seconds := seconds - STOP_CHECK_S) > 0 and not self.should_stop_waiting():
            now = self._wait_once(wanted_state, min(seconds, STOP_CHECK_S))
        return now

    def _wait_once(self, wanted_state: str, seconds: float) -> str:
        if self.host.ssh is None and os.geteuid() == 0:
            return self._wait_locally(wanted_state, seconds)
        arguments = ["sh", "-c", host_scripts.STATE, "sh", self.data_directory, wanted_state, str(math.ceil(seconds))]
        ended = self.host.run(arguments, user=self.owner(), timeout_s=seconds + 10, repeatable=True)
        if ended.code is None:
            raise HostConnectionLost(
                f"{self.name}: whether the server runs could not be read within {seconds + 10:g} s"
            )
        if ended.code != 0:
            raise ConsoleError(f"{self.name}: cannot read whether the server runs: {last_line(ended)}")
        state = last_word(ended)  # behind what a login shell printed
        if state not in ("stopped", "running", "ready"):
            raise ConsoleError(f"{self.name}: cannot read whether the server runs: {last_line(ended)}")
        return state

    def _wait_locally(self, wanted_state: str, seconds: float) -> str:
        until_us = self._clock.mono_us() + int(seconds * 1e6)
        while (now := self._read_local_state()) != wanted_state and self._clock.mono_us() < until_us:
            _NEVER.wait(POLL_S)
        return now

    def _read_local_state(self) -> str:
        """Return the state of a local server, like the script for other hosts."""
        content = self.host.read(f"{self.data_directory}/postmaster.pid")
        if content is None:
            if not os.path.isdir(self.data_directory):
                raise ConsoleError(f"{self.name}: cannot find data directory {self.data_directory} on {self.host.name}")
            return "stopped"
        lines = content.decode("utf-8", "replace").split("\n")
        pid = "".join(sign for sign in lines[0] if sign in "0123456789")
        stat = read_stat("/proc", int(pid or 0))
        try:
            is_same_directory = os.path.samefile(os.readlink(f"/proc/{pid}/cwd"), self.data_directory)
        except OSError:
            return "stopped"
        if stat is None or stat.state in "ZX" or not is_same_directory:
            return "stopped"
        return "ready" if len(lines) > 7 and lines[7].strip() in ("ready", "standby") else "running"

    def _local_owner(self) -> str | None:
        try:
            return pwd.getpwuid(os.stat(self.data_directory).st_uid).pw_name
        except (OSError, KeyError):
            return None

    def _read_postmaster_opts(self) -> str:
        data = self.host.read(f"{self.data_directory}/postmaster.opts", user=self.owner())
        return (data or b"").decode("utf-8", "surrogateescape")

    def _refuse_memory_limit(self) -> None:
        """Refuse start and stop inside a unit with a memory limit, which a started server would inherit."""
        if self.host.ssh is None and (unit := confining_unit()) is not None:
            raise Refused(
                f"{self.name}: a server started here would run within the memory limit of {unit}",
                hint="set control = systemd:UNIT for it, or run the cutover from an agent of a login session",
            )

    def _refuse_running(self, what: str) -> None:
        if self.running():
            raise Refused(f"{self.name} is running: it must be stopped before it is {what}")

    def _write_settings(self, block: str) -> None:
        """Replace our block at the end of postgresql.auto.conf: the last setting of a name takes effect."""
        path = f"{self.data_directory}/postgresql.auto.conf"
        old = (self.host.read(path, user=self.owner()) or b"").decode("utf-8", "surrogateescape")
        rest = _BLOCK.sub("", old)
        new = (rest if not block or not rest or rest.endswith("\n") else rest + "\n") + block
        if new != old:
            self.host.write(path, new.encode("utf-8", "surrogateescape"), user=self.owner())


def _without_password(conninfo: str) -> tuple[str, bytes]:
    """Return the connection string without its password, and a passfile with it; empty: no password.

    A file and not PGPASSWORD: `ps e` shows the environment.

    >>> _without_password("host=db2 user=r password='a:b' passfile=/x")
    ('user=r host=db2', b'*:*:*:*:a\\\\:b\\n')
    """
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    options = conninfo_to_dict(conninfo)
    if "sslpassword" in options:
        raise ConfigError("the connection string has an sslpassword, which could only be passed as an argument")
    password = str(options.pop("password", None) or "")
    if not password:
        return make_conninfo("", **options), b""
    if "\n" in password:
        raise ConfigError("the password has a line break, which is not possible in a passfile")
    options.pop("passfile", None)
    escaped = password.replace("\\", "\\\\").replace(":", "\\:")
    return make_conninfo("", **options), f"*:*:*:*:{escaped}\n".encode()


def _quoted(value: str) -> str:
    """Return a value quoted for the configuration file.

    >>> _quoted("password='it\\\\'s'")
    "'password=''it\\\\\\\\''s'''"
    """
    if not value.isprintable():
        raise ConfigError("a setting may only contain printable characters")
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
