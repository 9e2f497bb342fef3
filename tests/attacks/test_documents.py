"""Documents made to hang, exhaust or end their reader."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgspec
import pytest

from dba_console.agent.protocol import Deframer, Note, ProtocolError, pack
from dba_console.demo.temporary_server import Cluster
from dba_console.runbooks.compile import check_text
from dba_console.runbooks.parse import LONGEST
from dba_console.runbooks.values import LONGEST_SIMPLE, LONGEST_VALUE, backtracking_risk, matches_pattern
from tests.cli.console import Console, own_console
from tests.unit.runbooks.short_runbooks import fence, runbook_text

CHECK = fence("expr {check}", "memory.free_bytes > 1")

DEEP = {
    "arrays in its head": "x = " + "[" * 5_000,
    "tables in its head": ".".join("a" * 5_000) + " = 1",
}
EXPRESSIONS = {
    "not": "not " * 3_500 + "true", "sums": "1+" * 7_500 + "1 > 0", "signs": "-" * 14_000 + "1 < 0",
    "brackets": "(" * 6_000 + "1" + ")" * 6_000 + " > 0",
}  # fmt: skip


@pytest.mark.parametrize("head", DEEP.values(), ids=DEEP.keys())
def test_a_deeply_nested_front_matter_is_a_problem_of_the_document(head: str) -> None:
    assert check_text(runbook_text(CHECK, head=head + "\n"), "book.md").problems


@pytest.mark.parametrize("text", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_a_deeply_nested_expression_is_a_problem_of_the_document(text: str) -> None:
    assert check_text(runbook_text(fence("expr {check}", text)), "book.md").problems


def test_a_bad_document_does_not_keep_the_others_from_being_listed(tmp_path: Path) -> None:
    console = Console(tmp_path)
    console.write_config(f'[runbooks]\npath = ["{tmp_path}/books"]\n')
    (tmp_path / "books").mkdir()
    for number, head in enumerate(DEEP.values()):
        (tmp_path / "books" / f"deep-{number}.md").write_text(runbook_text(CHECK, head=head + "\n"))
    done = console.run("runbook", "list")
    assert "lock-queue" in done.out and "deep-1" in done.out and "internal error" not in done.err, done


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*b",
        "(a|ab)*c",
        "(?:x+x+)+y",
        "a*a*a*a*a*b",
        r"(.*)\1",
        "(a?)*b",
        "a?" * 30 + "a" * 30,
        "(" * 900,
    ],
)
def test_a_pattern_with_catastrophic_backtracking_is_refused(pattern: str) -> None:
    head = f'[inputs.v]\ntype = "text"\npattern = {msgspec.json.encode(pattern).decode()}\n'
    used = fence("sh {check}", 'a "$RB_v"')
    assert any("pattern" in problem.text for problem in check_text(runbook_text(used, head=head), "book.md").problems)


SLOW = "a*a*a*a?"
"""As ambiguous as a pattern may be."""


def test_ordinary_patterns_pass_and_match_only_short_text() -> None:
    for pattern in (
        "[a-z][a-z0-9_]{0,62}",
        r"\d+(\.\d+)?",
        r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}"[:0] or r"v\d+\.\d+",
        r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}",
        "a|b|c",
    ):
        assert backtracking_risk(pattern) is None, pattern
    assert matches_pattern("a*", "a" * LONGEST_SIMPLE) and not matches_pattern("a*", "a" * (LONGEST_SIMPLE + 1))
    assert matches_pattern(SLOW, "a" * LONGEST_VALUE) and not matches_pattern(SLOW, "a" * (LONGEST_VALUE + 1))


@pytest.mark.parametrize(
    "payload", [b"\xd9\x02\xff\xfe", b"\x91" * 1_000_000, b"\xdf\xff\xff\xff\xff", b"\x81\xa4text\xd9\x01\xff"]
)
def test_a_frame_that_cannot_be_decoded_is_a_protocol_error(payload: bytes) -> None:
    letter = pack(Note(text="x"))[4:5]
    with pytest.raises(ProtocolError):
        list(Deframer().feed((len(payload) + 1).to_bytes(4, "big") + letter + payload))


SHELL = """# Curious

```toml {runbook}
id = "curious"
needs = []
```

## Look

```sh {check}
touch "$RB_mark"
```
"""


def test_shell_checks_of_an_untrusted_document_run_in_a_rehearsal_only_if_allowed(
    cluster: Cluster,
) -> None:
    with own_console() as console, console.watching(cluster.dsn()):
        mark, path = console.home / "mark", console.home / "curious.md"
        path.write_text(SHELL.replace("needs = []\n", 'needs = []\n\n[inputs.mark]\ntype = "path"\n'))
        command = ("runbook", "rehearse", str(path), "--dsn", cluster.dsn(), "--input", f"mark={mark}")
        asked = console.run(*command)
        assert asked.code == 8 and "look/check" in asked.out + asked.err and "--yes" in asked.err + asked.out, asked
        assert not mark.exists()
        declined = console.run(*command, "--plain", stdin="no\n")
        assert declined.code == 7 and not mark.exists(), declined
        assert console.run(*command, "--yes").code == 0 and mark.exists()


@pytest.mark.parametrize(
    ("info", "filler"),
    [
        ("sql {check}", "a"), ("sql {check}", "/*"), ("sql {check}", "{{"), ("sql {check}", "from x "),
        ("sql {check}", "$a$$b$"), ("sh {check}", "(("), ("sh {check}", ";"), ("sh {check}", "$(("),
    ],
)  # fmt: skip
def test_no_block_takes_long_to_lint(info: str, filler: str) -> None:
    """What grows with the square of a block's length takes minutes at the longest there may be."""
    checked = check_text(runbook_text(*[fence(info, "select 1 " + filler * (15_500 // len(filler)))] * 15), "book.md")
    assert checked.plan is not None or checked.problems


@pytest.mark.parametrize("filler", ["~", "`", "*a*", "[", "![", "- - - -\n"])
def test_no_prose_takes_long_to_parse_or_much_memory(filler: str) -> None:
    """A line of tildes once took minutes, and a paragraph of asterisks 400 bytes per character."""
    text = runbook_text(CHECK)
    tracemalloc.start()
    try:
        checked = check_text(text + "\n" + filler * ((LONGEST - len(text) - 1) // len(filler)), "book.md")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert checked.plan is not None or checked.problems
    assert peak < 48_000_000
