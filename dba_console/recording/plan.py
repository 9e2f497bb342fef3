"""The plan of a run: a compiled runbook, in document order and normalised, so that its hash identifies it. Also the
records of a run's journal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

FORMAT = 1
"""Format number of plan.json; increased on an incompatible change."""

Kind = Literal[
    "check", "measure", "preview", "change", "run", "action", "wait", "confirm", "choose", "manual", "input", "repeat",
    "undo",
]  # fmt: skip
READING_KINDS: frozenset[str] = frozenset({"check", "measure", "preview", "wait"})
"""Read-only kinds; a rehearsal runs them."""
ACTING_KINDS: frozenset[str] = frozenset({"change", "run", "action"})
"""Kinds that may change something; the intent of each execution is on disk first."""

Level = Literal["ack", "yes", "type"]
CONFIRMATION_WORDS = ("target", "count", "name")
"""Reserved words of `type`; any other text is a phrase."""


class Confirmation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Confirmation that the operator must give before a block runs."""

    level: Level
    """ack: type y; yes: type yes; type: type the text below."""
    text: str = ""
    """With `type`: `target`, `count` (rows of the preview), `name` (of a single object; the count if several), or a
    phrase to type literally. `%(input)s` in a phrase is replaced by the value of an input."""
    people: int = 1
    """2: a second operator, with another login, must type it too."""


class BlockCondition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition that is true, false or unknown: `when`, `done`, `until`, `while`."""

    language: Literal["expr", "sql"]
    text: str


class Block(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One runnable fence."""

    id: str
    """`step/kind`, numbered from the second of a kind (`drop/check-2`), or `step/NAME` if the fence has `#NAME`."""
    kind: Kind
    line: int
    language: Literal["sql", "sh", "expr", "toml"]
    body: str
    """Verbatim; empty for toml, whose content is `settings`."""
    settings: dict[str, Any] = {}
    """Normalised settings of kinds without code: durations in seconds, sizes in bytes."""
    action: str | None = None
    name: str | None = None
    """`as=NAME`: name of its result in later blocks (measure, preview, run, input)."""
    title: str = ""
    """Its purpose, in a few words; the fence's `title=`."""
    when: BlockCondition | None = None
    """Skipped unless this holds."""
    done: BlockCondition | None = None
    """Skipped if this holds; also settles an unknown outcome."""
    timeout_s: float | None = None
    on: str = ""
    """primary, standby, or the name of a configured target; empty: the target of the run."""
    role: Literal["", "monitor", "operator"] = ""
    """monitor: use a read-only connection, whatever the kind."""
    confirm: Confirmation | None = None
    usual_s: float | None = None
    """Typical duration according to the author."""
    urgent: bool = False
    host: bool = False
    """A `run` that affects this host only: the server need not be identified."""
    tag: str = ""
    """Tag of its output's lines; empty: the run's."""
    leading: bool = False
    """A check before the first changing block of the document: runs before the start question."""
    transaction: bool = True
    """A `change` in its own transaction; False (`transaction=no`) for commands that cannot run in one, as VACUUM."""
    uses: tuple[str, ...] = ()
    """Names of inputs and results that its code uses."""
    undo: Literal["", "none"] = ""
    """none: according to the author nothing reverts it."""

    @property
    def changes(self) -> bool:
        """Whether it may change something: a command with `role=monitor` only reads."""
        return self.kind in ACTING_KINDS and not (self.kind == "run" and self.role == "monitor")

    def conditions(self) -> Iterator[BlockCondition]:
        """Yield its conditions: `when`, `done`, and those of its settings, `until` and `while`."""
        yield from (one for one in (self.when, self.done) if one is not None)
        for name in ("until", "while"):
            value = self.settings.get(name)
            if self.action is None and isinstance(value, dict):
                yield BlockCondition(**value)


class Prose(Struct, frozen=True, omit_defaults=True):
    """A paragraph, list item, heading or piece of code of a document's text, without Markdown's emphasis."""

    text: str
    """In one line; code has its own lines."""
    kind: Literal["text", "heading", "code"] = "text"
    lead: str = ""
    """What its first line begins with: `· ` or `1. ` of a list item, after its indentation."""
    gap: bool = False
    """A blank line comes before it."""


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A level-two heading with its blocks."""

    id: str
    title: str
    line: int
    prose: tuple[Prose, ...] = ()
    """Text of the step without its runnable fences."""
    blocks: tuple[Block, ...] = ()
    undo: tuple[Block, ...] = ()
    """Blocks that revert it; offered, not automatic."""
    point_of_no_return: bool = False
    then: str | None = None
    """Id of the later step that follows this one (the end of a branch), `end` for the end of the run."""
    branch: bool = False
    """Runs only when a decision leads to it."""
    panels: tuple[str, ...] = ()
    """Panels shown while it runs: from the author, else those in its expressions."""


class Input(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value asked for before the start."""

    name: str
    type: str
    help: str = ""
    default: Any = None
    required: bool = True
    choices: tuple[str, ...] = ()
    secret: bool = False
    """Never stored; asked again when a run is resumed."""
    minimum: float | None = None
    maximum: float | None = None
    pattern: str | None = None


class Plan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A runbook ready to be walked."""

    format: int = FORMAT
    id: str
    title: str
    prose: tuple[Prose, ...] = ()
    """Text before the first step: purpose, when not to use it, cost, whom to inform."""
    answers: tuple[str, ...] = ()
    """Rules whose findings it is offered for."""
    needs: tuple[str, ...] = ()
    """root, superuser, a predefined role, `server`, a program on PATH."""
    strict: bool = False
    """No step can be skipped or jumped to."""
    reverts: bool = False
    """If it is aborted before a point of no return, every step is reverted without a question."""
    tag: str = ""
    """Tag of lines in session.log; empty: the id in capitals without signs."""
    versions: tuple[int | None, int | None] = (None, None)
    """Lowest and highest major version of the server it is for."""
    inputs: tuple[Input, ...] = ()
    steps: tuple[Step, ...] = ()
    sources: tuple[Prose, ...] = ()
    """Text of the last section if it is `Sources`: tested versions and references."""
    source: str = ""
    """The file it was read from, as given by the caller."""
    sha256: str = ""
    """Of the document's bytes."""

    def blocks(self) -> Iterator[tuple[Step, Block]]:
        """Yield every block in document order, undo blocks of a step after its others."""
        for step in self.steps:
            for block in (*step.blocks, *step.undo):
                yield step, block

    def block(self, block_id: str) -> tuple[Step, Block]:
        """Return the block with this id and its step. Raises KeyError."""
        for step, block in self.blocks():
            if block.id == block_id:
                return step, block
        raise KeyError(block_id)

    def step(self, step_id: str) -> Step:
        """Return the step with this id. Raises KeyError."""
        for step in self.steps:
            if step.id == step_id:
                return step
        raise KeyError(step_id)


def log_tag(plan: Plan) -> str:
    """Return the tag of the run's lines in session.log.

    >>> log_tag(Plan(id="cache-drop", title="")), log_tag(Plan(id="x", title="", tag="MINE"))
    ('CACHEDROP', 'MINE')
    """
    return plan.tag or "".join(sign for sign in plan.id.upper() if sign.isalnum()) or "RUNBOOK"


_canonical = msgspec.json.Encoder(order="deterministic").encode


def plan_hash(plan: Plan, inputs: Mapping[str, Any] | None = None) -> str:
    """Return the hexadecimal SHA-256 of the normalised plan, independent of the document's path; with `inputs`, that of
    one run.
    """
    normal = msgspec.structs.replace(plan, source="")
    return hashlib.sha256(_canonical(normal if inputs is None else [normal, inputs])).hexdigest()


# Records of a run's journal, from which its state is replayed.


class JournalRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record of a run's journal, without its hash. Kinds:

    run.planned run.started run.paused run.resumed run.interrupted run.ended · step.started step.ended ·
    block.started block.seen block.asked block.answered block.intent block.result block.settled block.skipped ·
    wait.began wait.held · repeat.round · choose.taken · rows.chosen · input.given · undo.offered undo.settings
    undo.began undo.ended · deviation (skip, jump, retry, input) · person.took ·
    journal.began journal.reopened journal.fallback journal.home

    Those of `journal.` belong to the journal; the walk ignores them.
    """

    kind: str
    text: str
    """Text for session.log."""
    step: str = ""
    block: str = ""
    execution: int = 0
    round: int = 0
    state: str = ""
    who: str | None = None
    fields: dict[str, Any] = {}
    wall_us: int = 0
    """Set when it is written; 0 before."""
    mono_us: int = 0
