"""The gate: policy, server, host, preview, typed text; each check refuses alone, and a refusal gives the reason."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
import pytest
from msgspec.structs import replace

from dba_console.actions.acting_connection import ServerRestarted
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.identity import HostIdentity, ServerIdentity, host_identity, server_mismatch
from dba_console.actions.permission_gate import (
    ActRequest,
    CurrentTarget,
    PlannedTarget,
    authorize,
    confirmation_refusal,
    refuse_changed,
)
from dba_console.actions.policy import find_read_only_target, policy_refusal
from dba_console.actions.query_connection import QueryConnection
from dba_console.core.config import ActionsConfig, ClusterConfig, Config, NodeConfig, TargetConfig
from dba_console.core.errors import Refused
from dba_console.core.target import make_target
from dba_console.recording.plan import Confirmation

SERVER = ServerIdentity(
    system_identifier="7412", role="primary", timeline=3, server_start_us=1_000_000, version_num=150018,
    data_directory="/srv/data", port=5432,
)  # fmt: skip
TYPED = Confirmation(level="type", text="target")
REQUEST = ActRequest(
    kind="action", target="db2", action="drop-slot", confirm=TYPED, answer="db2", confirmed_by=("ann",)
)
PREVIEW = ActionPreview(text="one slot", exact="drop it", rows=({"slot_name": "old"},), count=1)


class IdentityConnection:
    """A connection that reports its identity and nothing else."""

    def __init__(self, identity: ServerIdentity) -> None:
        self._identity = identity

    def read_identity(self) -> ServerIdentity:
        return self._identity


def current_target(server: ServerIdentity = SERVER, **more: object) -> CurrentTarget:
    return replace(CurrentTarget(connection=cast("QueryConnection", IdentityConnection(server))), **more)


def attempt(
    request: ActRequest = REQUEST,
    where: CurrentTarget | None = None,
    now: ActionPreview = PREVIEW,
    shown: ActionPreview | None = PREVIEW,
) -> None:
    authorize(request, PlannedTarget(server=SERVER), where or current_target(), look=lambda: now, shown=shown)


def test_a_change_as_shown_and_confirmed_is_permitted() -> None:
    permit = authorize(REQUEST, PlannedTarget(server=SERVER), current_target(), look=lambda: PREVIEW, shown=PREVIEW)
    assert (permit.server, permit.preview) == (SERVER, PREVIEW)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"system_identifier": "9999"}, "another cluster answers"),
        ({"role": "standby"}, "is a standby now"),
        ({"timeline": 4}, "on timeline 4 now"),
        ({"data_directory": "/srv/copy"}, "data directory /srv/copy answers"),
        ({"port": 5433}, "port 5433"),
        ({"system_identifier": None}, "cannot verify that this is the same server"),
        ({"server_start_us": 2_000_000}, "was started at"),
    ],
)
def test_every_identity_value_of_another_server_refuses(change: dict[str, object], expected: str) -> None:
    with pytest.raises(Refused, match=expected):
        attempt(where=current_target(replace(SERVER, **change)))


def test_only_a_restart_is_a_refusal_that_can_be_confirmed() -> None:
    with pytest.raises(ServerRestarted):
        attempt(where=current_target(replace(SERVER, server_start_us=2)))
    with pytest.raises(Refused) as refused:
        attempt(where=current_target(replace(SERVER, server_start_us=2, port=5433)))
    assert not isinstance(refused.value, ServerRestarted)


def test_identity_values_a_role_may_never_read_do_not_refuse() -> None:
    modest = replace(SERVER, system_identifier=None, timeline=None, data_directory=None)
    assert server_mismatch(modest, modest) is None and server_mismatch(modest, SERVER) is None


def test_a_run_without_a_server_changes_no_server() -> None:
    with pytest.raises(Refused, match="started without one"):
        authorize(REQUEST, PlannedTarget(), CurrentTarget(), look=lambda: PREVIEW, shown=PREVIEW)


# -- the host --------------------------------------------------------------------------------------------------------

ON_HOST = ActRequest(kind="run", target="db2", server=False, host=True)


def test_another_host_or_another_boot_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("second\n")
    here = host_identity(str(tmp_path))
    authorize(ON_HOST, PlannedTarget(host=here), CurrentTarget(), proc=str(tmp_path))
    for planned, message in (
        (HostIdentity(name="elsewhere", boot_id="second"), "started on elsewhere"),
        (replace(here, boot_id="first"), "rebooted since"),
    ):
        with pytest.raises(Refused, match=message):
            authorize(ON_HOST, PlannedTarget(host=planned), CurrentTarget(), proc=str(tmp_path))


def test_a_run_with_an_unknown_host_changes_no_host() -> None:
    with pytest.raises(Refused, match="the host the run was started on is unknown"):
        authorize(ON_HOST, PlannedTarget(), CurrentTarget())


def test_a_host_not_proven_to_be_that_of_the_server_is_not_changed() -> None:
    with pytest.raises(Refused, match="db2 is not proven to run here"):
        authorize(ON_HOST, PlannedTarget(host=host_identity()), CurrentTarget(server_is_local=False))


def test_a_cluster_change_continues_from_the_host_it_was_started_on_whatever_runs_there() -> None:
    request = ActRequest(kind="run", target="db2", server=False, cluster=True)
    here = host_identity()
    authorize(request, PlannedTarget(host=replace(here, boot_id="first")), CurrentTarget(server_is_local=False))
    with pytest.raises(Refused, match="started on elsewhere"):
        authorize(request, PlannedTarget(host=replace(here, name="elsewhere")), CurrentTarget())


# -- policy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (ActionsConfig(allow=False), "allow = false"),
        (ActionsConfig(deny=["drop-slot"]), "forbids drop-slot"),
        (ActionsConfig(deny=["drop-slots"]), "did you mean drop-slot"),
    ],
)
def test_the_configuration_can_refuse(config: ActionsConfig, expected: str) -> None:
    with pytest.raises(Refused, match=expected):
        attempt(where=current_target(config=config))


def test_a_read_only_target_is_not_changed_with_any_connection_string() -> None:
    config = Config(targets={"prod": TargetConfig(dsn="host=db1 dbname=app user=u", read_only=True)})
    assert find_read_only_target(config, make_target("postgresql://u@db1/app"))
    assert not find_read_only_target(config, make_target("host=db2 dbname=app user=u"))
    with pytest.raises(Refused, match="read_only = true for target prod"):
        attempt(where=current_target(read_only="prod"))


def test_a_cluster_with_a_read_only_node_is_not_changed() -> None:
    nodes = {"db1": NodeConfig(dsn="host=db1 user=admin dbname=postgres"), "db2": NodeConfig(dsn="host=db2")}
    config = Config(
        targets={"prod": TargetConfig(dsn="host=db2 dbname=app user=u", read_only=True)},
        clusters={"shop": ClusterConfig(nodes=nodes)},
    )
    target = make_target("host=db1 dbname=app user=u")
    assert (find_read_only_target(config, target), find_read_only_target(config, target, "shop")) == ("", "prod")


def test_sql_and_commands_of_a_runbook_can_be_forbidden_too() -> None:
    config = ActionsConfig(deny=["change"])
    assert policy_refusal(config, "change", ["vacuum"]) is not None
    assert policy_refusal(config, "run", ["vacuum"]) is None


# -- what was shown --------------------------------------------------------------------------------------------------


def action_preview(*names: str, exact: str = "drop them") -> ActionPreview:
    return ActionPreview(text="", exact=exact, rows=tuple({"slot_name": name} for name in names), count=len(names))


def test_a_set_that_grew_or_shrank_is_not_the_confirmed_one() -> None:
    with pytest.raises(Refused, match="1 of 3 objects it would act on were not in the confirmed preview"):
        refuse_changed(action_preview("a", "b", "c"), action_preview("a", "b"))
    with pytest.raises(Refused, match="1 of 2 confirmed objects no longer exist"):
        refuse_changed(action_preview("a"), action_preview("a", "b"))
    refuse_changed(action_preview("a", exact="drop a"), action_preview("a", "b"), may_shrink=True)
    with pytest.raises(Refused, match="were not in the confirmed preview"):
        refuse_changed(action_preview("a", "c"), action_preview("a", "b"), may_shrink=True)


def test_descriptive_fields_of_a_member_may_change() -> None:
    idle = ActionPreview(text="", exact="end 7", rows=({"pid": 7, "state": "idle"},))
    active = ActionPreview(text="", exact="end 7", rows=({"pid": 7, "state": "active"},))
    refuse_changed(active, idle, key=("pid",))
    with pytest.raises(Refused, match="were not in the confirmed preview"):
        refuse_changed(active, idle)


def test_a_preview_is_compared_as_it_was_recorded() -> None:
    written = msgspec.convert(msgspec.json.decode(msgspec.json.encode(action_preview("a", "b"))), ActionPreview)
    refuse_changed(action_preview("b", "a"), written)


def test_a_change_that_differs_from_its_preview_is_refused() -> None:
    with pytest.raises(Refused, match="differs from what was shown: rm b"):
        refuse_changed(ActionPreview(text="", exact="rm b"), ActionPreview(text="", exact="rm a"))
    with pytest.raises(Refused, match="no preview was shown"):
        refuse_changed(PREVIEW, None)


def test_the_refusal_of_the_action_counts_until_the_last_moment() -> None:
    with pytest.raises(Refused, match="in use"):
        attempt(now=replace(PREVIEW, refusal="it is in use now", hint="stop its reader"))


def test_an_action_with_nothing_to_do_is_permitted() -> None:
    attempt(now=ActionPreview(text="gone already", exact="", done=True), shown=PREVIEW)


# -- what was typed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("confirm", "good", "bad"),
    [
        (Confirmation(level="ack"), "y", ""),
        (Confirmation(level="yes"), "yes", "y"),
        (Confirmation(level="type", text="target"), "db2", "db1"),
        (Confirmation(level="type", text="count"), "7", "8"),
        (Confirmation(level="type", text="remove it"), "remove it", "remove"),
    ],
)
def test_only_the_requested_text_confirms(confirm: Confirmation, good: str, bad: str) -> None:
    asked = replace(REQUEST, confirm=confirm, count=7)
    assert confirmation_refusal(replace(asked, answer=good)) is None
    for answer in (bad, "", None, "no", "\n"):
        assert confirmation_refusal(replace(asked, answer=answer)) is not None
        with pytest.raises(Refused):
            attempt(replace(asked, answer=answer))


def test_an_unknown_number_and_an_empty_phrase_confirm_nothing() -> None:
    counted = replace(REQUEST, confirm=Confirmation(level="type", text="count"), answer="")
    assert confirmation_refusal(counted) is not None
    assert confirmation_refusal(replace(REQUEST, confirm=Confirmation(level="type"), answer="")) is not None


def test_two_operators_must_be_different() -> None:
    asked = replace(REQUEST, confirm=replace(TYPED, people=2))
    reported = confirmation_refusal(replace(asked, confirmed_by=("ann", "ann")))
    assert reported is not None and "of 2 operators" in reported
    assert confirmation_refusal(replace(asked, confirmed_by=("ann", "bob"))) is None


def test_every_change_needs_a_confirmation() -> None:
    for kind in ("action", "change"):
        assert confirmation_refusal(ActRequest(kind=kind, target="db2")) is not None
    assert confirmation_refusal(ActRequest(kind="run", target="db2")) is None
    assert confirmation_refusal(ActRequest(kind="action", target="db2", undo=True)) is None


def test_one_object_is_confirmed_by_its_name_and_several_by_their_number() -> None:
    asked = replace(REQUEST, confirm=Confirmation(level="type", text="name"))
    assert confirmation_refusal(replace(asked, answer="old", count=1, object_name="old")) is None
    assert confirmation_refusal(replace(asked, answer="1", count=1, object_name="old")) is not None
    assert confirmation_refusal(replace(asked, answer="2", count=2)) is None
    assert confirmation_refusal(replace(asked, answer="old", count=2)) is not None
    assert confirmation_refusal(replace(asked, answer="old")) is not None, "nothing is known of what it acts on"
