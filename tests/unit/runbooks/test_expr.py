"""Expressions: fields, units, three values, and what an expression may not be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.runbooks.expr import FUNCTIONS, ExpressionResult, Scope, evaluate, evaluate_measurement
from dba_console.runbooks.expr_lint import read_expression
from dba_console.runbooks.result_tables import replace_units
from dba_console.watch.connections.panel import ConnectionsPanel
from dba_console.watch.disks.panel import DisksPanel, MountRow
from dba_console.watch.frames.model import Finding, Frame, TargetFrame
from dba_console.watch.io.panel import IoPanel
from dba_console.watch.memory.panel import MemoryPanel
from dba_console.watch.replication.panel import ReplicationPanel, SlotRow

MB = 1 << 20
REPLICATION = ReplicationPanel(slots=[SlotRow(name="old", kind="physical", retained_bytes=None)], age_s=1.0)
DISKS = DisksPanel(
    mounts=[MountRow(path="/", used_pct=40.0), MountRow(path="/pg", used_pct=91.0, full_in_s=600.0)], age_s=2.0
)
MEMORY = MemoryPanel(cached_change_bytes_per_s=-60.0 * MB, free_bytes=20 << 30, thp="always", age_s=0.4)
CONNECTIONS = ConnectionsPanel(used=100, usable=247, status="stale", note="no answer", age_s=30.0)
IO = IoPanel(read_bytes_per_s=None, iowait_pct=12.5, age_s=1.0)
SCOPE = Scope(
    frame=Frame(
        target=TargetFrame(name="db2", role="primary", server_version=160004),
        panels={
            "connections": CONNECTIONS, "disks": DISKS, "io": IO, "memory": MEMORY, "replication": REPLICATION
        },
        findings=[Finding(id="disk-filling:/pg", rule="disk-filling", severity="warning", subject="/pg", text="x")],
        judged=True,
    ),
    inputs={"limit": 90, "mount": "/pg", "token": "hush"},
    results={"before": {"free_bytes": 10 << 30}, "idle": {"rows": 3}},
    secrets=frozenset({"token"}),
)  # fmt: skip


def result_of(text: str) -> ExpressionResult:
    return evaluate(text, SCOPE)


@pytest.mark.parametrize(
    "text",
    [
        "memory.cached_change_bytes_per_s < -50MB",
        "memory.free_bytes >= 20GB and not io.iowait_pct > 20%",
        "10GB < memory.free_bytes <= 20GB",
        "memory.thp == 'always' or io.read_bytes_per_s > 1MB",
        "target.role in ('primary', 'standby')",
        "target.role not in ['standby']",
        "target.server_version / 10000 >= 16",
        "max(disks.mounts.used_pct) > limit",
        "disks.mounts['/pg'].full_in_s < 15m",
        "disks.mounts[mount].used_pct > limit",
        "count(disks.mounts) == 2",
        "memory.free_bytes > 1.5 * before.free_bytes",
        "idle.rows == 3",
        "known(memory.free_bytes) and not known(io.read_bytes_per_s)",
        "finding('disk-filling') and not finding('lock-queue')",
        "abs(memory.cached_change_bytes_per_s) > 50MB",
        "memory.free_bytes > 1GB\n  and memory.thp != 'never'",
    ],
)
def test_an_expression_is_true(text: str) -> None:
    assert result_of(text).holds is True, result_of(text)
    assert read_expression(text, [*SCOPE.inputs, *SCOPE.results]).wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "io.read_bytes_per_s < 1MB",
        "not io.read_bytes_per_s < 1MB",
        "io.read_bytes_per_s == io.read_bytes_per_s",
        "io.read_bytes_per_s < 1MB or io.iowait_pct > 50",
        "io.read_bytes_per_s < 1MB and io.iowait_pct > 5",
        "disks.mounts['/nowhere'].used_pct < 90",
        "max(disks.mounts.full_in_s) > 5",
        "sum(disks.mounts.full_in_s) > 5",
        "replication.slots['old'].retained_bytes > 1GB",
        "connections.used < 200",
        "io.read_bytes_per_s + 1 > 0",
        "-io.read_bytes_per_s < 0",
        "io.read_bytes_per_s in (1, 2)",
        "1 in (io.read_bytes_per_s, 2)",
        "memory.free_bytes / 0 > 1",
        "nowhere > 1",
    ],
)
def test_an_unknown_value_decides_nothing(text: str) -> None:
    assert result_of(text).holds is None
    assert result_of(text).error is None


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("io.read_bytes_per_s < 1MB and io.iowait_pct > 50", False),
        ("io.read_bytes_per_s < 1MB or io.iowait_pct > 5", True),
        ("1 < io.read_bytes_per_s < 0 < 0", False),
        ("1 in (io.read_bytes_per_s, 1)", True),
    ],
)
def test_an_unknown_value_does_not_hide_a_result_decided_without_it(text: str, holds: bool) -> None:
    assert result_of(text).holds is holds


def test_a_verdict_shows_every_value_with_unit_and_age_even_if_the_result_is_already_clear() -> None:
    reported = result_of("io.iowait_pct > 50 and memory.cached_change_bytes_per_s < -50MB and limit == 90").text
    assert reported == "io.iowait_pct 12% (1.0s old), memory.cached_change_bytes_per_s -60.0 MB/s (0.4s old), limit 90"


def test_a_stale_panel_is_reported_as_unknown_with_the_reason() -> None:
    assert result_of("connections.used < 200").text == "connections.used unknown (connections is stale)"


def test_a_secret_is_compared_and_not_shown() -> None:
    found = result_of("token == 'hush'")
    assert found.holds is True
    assert "hush" not in f"{found.text} {found.values}"


def test_no_expression_is_true_before_the_first_read() -> None:
    for text in ("memory.free_bytes > 0", "finding('lock-queue')", "not finding('lock-queue')"):
        assert evaluate(text, Scope()).holds is None


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "memory.__class__",
        "disks.mounts.__class__.__mro__ == 1",
        "(lambda: true)()",
        "[x for x in disks.mounts]",
        "'{0}'.format(memory) == ''",
        "f'{memory}' == ''",
        "memory.free_bytes ** 9999999 > 1",
        "'a' * 99999999 == 'b'",
        "1 << 99999999 > 1",
        "memory.free_bytes.real > 1",
        "open('/etc/passwd') == 1",
        "true if memory else false",
        "memory.free_bytes := 3",
        "~idle.rows == 3",
        "abs('x') > 1",
        "max() > 1",
        "1" + "0" * 400 + " * 1.5 > 0",
        "9" * 5000 + " > 0",
        "memory",
        "memory.thp > 3",
        "memory.free_bytes",
        "",
        "(" * 500 + "1" + ")" * 500 + " > 0",
    ],
)
def test_an_invalid_expression_is_an_error_and_never_true(text: str) -> None:
    found = result_of(text)
    assert found.holds is None
    assert found.error


@given(st.text(alphabet="abcimoxyz.()[]<>=+-*/'\" 0123456789%MBs,_\n", max_size=80))
def test_no_text_crashes_the_parser(text: str) -> None:
    found = result_of(text)
    assert found.holds in (True, False, None)
    read_expression(text, ["a"])


@given(st.recursive(
    st.sampled_from([("io.iowait_pct > 5", True), ("io.iowait_pct > 50", False), ("io.read_bytes_per_s > 5", None)]),
    lambda inner: st.tuples(st.sampled_from(["and", "or", "not"]), inner, inner),
    max_leaves=12,
))  # fmt: skip
def test_and_or_not_treat_unknown_like_null_in_sql(tree: object) -> None:
    text, holds = text_and_value(tree)
    assert result_of(text).holds is holds


def text_and_value(tree: object) -> tuple[str, bool | None]:
    """The text of a tree, and what it comes to by Kleene's tables."""
    assert isinstance(tree, tuple)
    if len(tree) == 2:
        text, holds = tree
        return f"({text})", holds
    word, left, right = tree
    (first, a), (second, b) = text_and_value(left), text_and_value(right)
    if word == "not":
        return f"(not {first})", None if a is None else not a
    values = {a, b}
    decisive = word == "or"
    holds = decisive if decisive in values else None if None in values else not decisive
    return f"({first} {word} {second})", holds


def test_a_measurement_stores_and_shows_values_by_name() -> None:
    values, reported = evaluate_measurement(
        "memory.free_bytes\nratio = memory.free_bytes / before.free_bytes\nio.read_bytes_per_s\n", SCOPE
    )
    assert values == {"free_bytes": 20 << 30, "ratio": 2.0, "read_bytes_per_s": None}
    assert reported.startswith("free_bytes 20.0 GB (0.4s old), ratio 2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory.free_byts > 1", "did you mean free_bytes?"),
        ("conections.used > 1", "did you mean connections.used?"),
        ("limt > 1", "did you mean limit?"),
        ("memory.free_bytes > 5mb", "5mb has an unknown unit"),
        ("memory.free_bytes > 1GB && true", "write and for &&"),
        ("memory.thp = 'always'", "== compares"),
        ("memory.free_bytes + 1GB", "is not a condition"),
        ("memory > 3", "is a whole panel"),
        ("size(disks.mounts) > 1", "unknown function size"),
        ("count(disks.mounts, 3) > 1", "count takes one argument"),
        ("disks.mounts['/'].use_pct > 1", "did you mean used_pct?"),
        ("memory.free_bytes['x'] > 1", "selects a row"),
        ("%(limit)s > 1", "without % or $"),
        ("memory.free_bytes ** 2 > 1", "not allowed in expressions"),
    ],
)
def test_the_lint_suggests_the_probable_name(text: str, expected: str) -> None:
    wrong = " ".join(f"{one} {hint}" for one, hint in read_expression(text, ["limit"]).wrong)
    assert expected in wrong


def test_quantities_become_bytes_seconds_and_percent_outside_of_texts_only() -> None:
    assert (
        replace_units("a > 64kB and b < 250ms and c > 10% and d == '1GB'")
        == "a > 65536 and b < 0.25 and c > 10 and d == '1GB'"
    )


def test_every_function_known_to_the_lint_can_be_evaluated() -> None:
    for name in FUNCTIONS:
        argument = (
            "'lock-queue'" if name == "finding" else "disks.mounts.used_pct" if name != "abs" else "io.iowait_pct"
        )
        assert result_of(f"known({name}({argument}))").error is None
