"""Commands of a run: short ones within their timeout, long ones by their keeper's records, and their environment."""

from __future__ import annotations

import os
from pathlib import Path

from dba_console.agent.runs.action_control import ActionControl
from dba_console.agent.runs.commands import AttachedCommand, command_argv, command_environment, outcome_of, script_argv
from dba_console.core.clock import SYSTEM
from dba_console.core.config import ClusterConfig, Config, NodeConfig, PoolerConfig
from dba_console.core.short_command import OUTPUT_LIMIT, run_short
from dba_console.keeper.command_status import ExitRecord
from dba_console.keeper.output_log_reader import StampedLine
from dba_console.runbooks.libpq_environment import find_secrets, libpq_variables, server_environment


def short(body: str, timeout_s: float = 60.0) -> tuple[int | None, str, str]:
    ended = run_short(script_argv(body), command_environment({"RB_x": "a b"}), timeout_s, SYSTEM)
    return ended.code, ended.output, ended.errors


def test_a_short_command_returns_its_exit_code_and_both_outputs() -> None:
    assert short('echo "$RB_x"; echo bad >&2; exit 3') == (3, "a b\n", "bad\n")


def test_a_script_stops_at_its_first_error_even_in_a_pipeline() -> None:
    assert short("false | true; echo never")[0] == 1
    assert short('echo "$RB_missing"; echo never')[0] != 0


def test_a_command_that_does_not_end_is_ended_with_all_its_child_processes(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code, output, _ = short(f"echo begun; (read -r x < {fifo}; echo never) & wait", 1.0)
    assert code is None and "never" not in output


def test_a_flood_of_output_is_read_and_not_stored() -> None:
    code, output, _ = short("head -c 3000000 /dev/zero | tr '\\0' x")
    assert code == 0 and len(output) == OUTPUT_LIMIT


OWN_VARIABLES = "-c search_path=pg_catalog,pg_temp -c role=none"


def test_a_script_finds_this_program_by_name_and_its_messages_are_english() -> None:
    code, output, errors = short("dba-console --version; echo $LC_ALL $PG_COLOR; echo \"language '$LANGUAGE'\"")
    assert code == 0, errors
    assert output.splitlines()[1:] == ["C.UTF-8 never", "language ''"]
    assert output.startswith("dba-console")
    assert command_argv(["dba-console", "--version"])[-1] == "--version" and command_argv(["psql"]) == ["psql"]


def test_a_command_finds_the_server_of_its_run() -> None:
    found = server_environment(
        "postgresql://anna:s3cret@db1:5433/app?sslmode=require", {"PGPORT": "1", "PGAPPNAME": "x"}
    )
    assert found == {
        "PGAPPNAME": "x", "PGHOST": "db1", "PGPORT": "5433", "PGDATABASE": "app", "PGUSER": "anna",
        "PGPASSWORD": "s3cret", "PGSSLMODE": "require", "PGOPTIONS": OWN_VARIABLES,
    }  # fmt: skip
    assert find_secrets("password=s3cret", Config(), {"key": "k3y", "plain": "x"}, frozenset({"key"}))[0] == "s3cret"


def test_passwords_of_cluster_nodes_and_poolers_are_secrets_of_every_run() -> None:
    nodes = {"db1": NodeConfig(dsn="host=a password=one"), "db2": NodeConfig(dsn="postgresql://u:tw%6f@b/x")}
    pooler = PoolerConfig(dsn="host=c password=three")
    cluster = ClusterConfig(nodes=nodes, poolers={"main": pooler}, clients="host=c password=four")
    config = Config(clusters={"shop": cluster})
    assert find_secrets("host=d", config, {"to": "db2"}, frozenset()) == ("one", "two", "three", "four")


def test_a_command_connects_with_the_same_session_setup_as_its_run() -> None:
    # Those of libpq 18 that decide whether a server is trusted; by the table of its keywords (fe-connect.c).
    given = {
        "gssencmode": ("disable", "PGGSSENCMODE"), "channel_binding": ("require", "PGCHANNELBINDING"),
        "krbsrvname": ("db", "PGKRBSRVNAME"), "sslcrl": ("/crl", "PGSSLCRL"), "sslrootcert": ("/root", "PGSSLROOTCERT"),
        "ssl_min_protocol_version": ("TLSv1.3", "PGSSLMINPROTOCOLVERSION"), "requirepeer": ("db", "PGREQUIREPEER"),
        "sslmode": ("verify-full", "PGSSLMODE"),
    }  # fmt: skip
    conninfo = " ".join(f"{key}={value}" for key, (value, _) in given.items())
    assert server_environment(conninfo, {}, direct=False) == {name: value for value, name in given.values()}
    for newer in ("sslcertmode", "require_auth", "load_balance_hosts"):  # since 16, where libpq has them
        assert libpq_variables().get(newer) in (None, f"PG{newer.replace('_', '').upper()}")


def test_libpq_settings_without_a_variable_and_console_settings_reach_no_command() -> None:
    mine = "keepalives=1 tcp_user_timeout=25000 application_name=console client_encoding=UTF8 host=db1"
    found = server_environment(mine, {"PGAPPNAME": "x"}, direct=False)
    assert found == {"PGAPPNAME": "x", "PGHOST": "db1"}


def test_settings_of_the_caller_override_neither_search_path_nor_read_only_checks() -> None:
    found = server_environment("options='-c search_path=evil -c work_mem=1MB'", {}, read_only=True)
    assert found == {
        "PGOPTIONS": f"-c search_path=evil -c work_mem=1MB {OWN_VARIABLES} -c default_transaction_read_only=on"
    }


def test_the_outcome_of_a_command_is_known_from_its_exit_record() -> None:
    ended = ExitRecord(code=0, out_lines=2, wall_s=1.5)
    assert outcome_of(ended, (0,)).state == "ok" and outcome_of(ended, (0,)).machine_s == 1.5
    assert outcome_of(ExitRecord(code=3), (0, 3)).state == "ok"
    failed = outcome_of(ExitRecord(code=1), (0,), "first", "the last words")
    assert (failed.state, failed.text) == ("failed", "exit 1: the last words")
    assert failed.values["first_line"] == "first"
    assert (
        outcome_of(ExitRecord(code=1), (0,), "", "COPY 45562", "gzip: unexpected end").text
        == "exit 1: gzip: unexpected end"
    )
    assert outcome_of(ExitRecord(signal=15, stopped_by="anna"), (0,)).state == "stopped"
    assert "timeout: it was terminated" in outcome_of(ExitRecord(signal=9, timed_out=True), (0,)).text
    assert outcome_of(ExitRecord(error="no such file"), (0,)).text == "it was not started: no such file"


def followed_command(directory: Path) -> AttachedCommand:
    def feed(lines: list[StampedLine]) -> None:
        raise AssertionError(lines)

    return AttachedCommand(directory, SYSTEM, ActionControl(SYSTEM, lambda: None), feed, (0,))


def test_a_command_no_keeper_started_is_known_as_such_and_can_no_longer_start(tmp_path: Path) -> None:
    directory = tmp_path / "step.run.1"
    found = followed_command(directory)
    assert found.settle().text == "it was never started"
    directory.mkdir(mode=0o700)
    assert found.settle().state == "failed"
    assert not directory.exists(), "a keeper that comes too late would find its place"
    found.close()


def test_a_change_is_stopped_and_paused_only_while_it_is_active() -> None:
    controls = ActionControl(SYSTEM, lambda: None)
    assert not controls.stop("anna") and not controls.pause(True)
    controls.begin()
    assert controls.pause(True) and controls.pause_requested()
    assert controls.stop("anna") and controls.stop_requested() and not controls.pause_requested()
    assert controls.wait(3600.0)
    controls.end()
    controls.begin()
    assert not controls.stop_requested() and controls.stopped_by == ""


def test_a_failed_command_names_the_processes_that_outlive_it() -> None:
    left = ExitRecord(code=137, left=[[4711, "pg_restore"], [4712, "odd\nname"]])
    reported = outcome_of(left, (0,), last="creating INDEX x").text
    assert reported.startswith(
        "exit 137: creating INDEX x; processes it started are still running: 4711 (pg_restore), 4712"
    )
    assert "\n" not in reported
    assert outcome_of(ExitRecord(code=0, left=[[4711, "sleep"]]), (0,)).text == "exit 0"
