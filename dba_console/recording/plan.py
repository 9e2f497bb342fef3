"""A compiled runbook: what will be walked, in document order. Normalised, so that its hash names it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

FORMAT = 1
"""Of plan.json; raised on an incompatible change."""

Kind = Literal[
    "check", "measure", "preview", "change", "run", "action", "wait", "confirm", "choose", "manual", "input", "repeat",
    "undo",
]  # fmt: skip
READING_KINDS: frozenset[str] = frozenset({"check", "measure", "preview", "wait"})
"""Kinds that only look; a rehearsal really runs them."""
ACTING_KINDS: frozenset[str] = frozenset({"change", "run", "action"})
"""Kinds that may change the world; each execution has its intent on disk first."""

Level = Literal["ack", "yes", "type"]
CONFIRMATION_WORDS = ("target", "count", "name")
"""What `type` may ask for by a word of its own; anything else is a phrase."""


class Confirmation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person has to say before a block runs."""

    level: Level
    """ack: a letter; yes: the word typed; type: the text below typed."""
    text: str = ""
    """With `type`: `target`, `count` (rows of the preview), `name` (of the one thing, of several their count), or a
    phrase to be typed as it stands. `%(input)s` in a phrase is the value of an input, once the run has them."""
    people: int = 1
    """2: a second person, by another login, types it too."""


class BlockCondition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question about the world that is answered yes, no, or not at all: `when`, `done`, `until`, `while`."""

    language: Literal["expr", "sql"]
    text: str


class Block(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One runnable fence."""

    id: str
    """`step/kind`, numbered from the second of a kind (`drop/check-2`), or `step/NAME` where the fence has `#NAME`."""
    kind: Kind
    line: int
    language: Literal["sql", "sh", "expr", "toml"]
    body: str
    """Verbatim; empty for toml, whose content is `settings`."""
    settings: dict[str, Any] = {}
    """Of the kinds without code, as the schema normalised them: durations in seconds, sizes in bytes."""
    action: str | None = None
    name: str | None = None
    """`as=NAME`: what later blocks call its result (measure, preview, run, input)."""
    title: str = ""
    """What it is for, in a few words; the fence's `title=`."""
    when: BlockCondition | None = None
    """Not applicable unless this holds: skipped."""
    done: BlockCondition | None = None
    """Already true: skipped; also what settles an execution of unknown end."""
    timeout_s: float | None = None
    on: str = ""
    """primary, standby, or the name of a configured target; empty: the run's own target."""
    role: Literal["", "monitor", "operator"] = ""
    """monitor: over a read-only connection whatever the kind."""
    confirm: Confirmation | None = None
    usual_s: float | None = None
    """What the author says it takes."""
    urgent: bool = False
    host: bool = False
    """A `run` that touches this host only: needs no server to be identified."""
    tag: str = ""
    """Tag of its output's lines; empty: the run's."""
    leading: bool = False
    """A check that stands before the first acting block of the document: run before Start is asked."""
    transaction: bool = True
    """A `change` in a transaction of its own; False (`transaction=no`) for what cannot run in one, as VACUUM."""
    uses: tuple[str, ...] = ()
    """Names of inputs and results its code refers to."""
    undo: Literal["", "none"] = ""
    """none: the author says that nothing takes it back."""


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A level-two heading with its blocks."""

    id: str
    title: str
    line: int
    prose: str = ""
    """Markdown of the step without its runnable fences."""
    blocks: tuple[Block, ...] = ()
    undo: tuple[Block, ...] = ()
    """What takes it back; offered, never automatic."""
    point_of_no_return: bool = False
    then: str | None = None
    """Id of the later step that follows this one (the end of a branch), `end` for the end of the run."""
    branch: bool = False
    """Reached only by a decision: skipped when walked onto from above."""
    panels: tuple[str, ...] = ()
    """Those that matter while it runs: as the author says, else those its expressions name."""


class Input(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value asked for before the start."""

    name: str
    type: str
    help: str = ""
    default: Any = None
    required: bool = True
    choices: tuple[str, ...] = ()
    secret: bool = False
    """Never written anywhere; asked for again when a run is resumed."""
    minimum: float | None = None
    maximum: float | None = None
    pattern: str | None = None


class Plan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A runbook ready to be walked."""

    format: int = FORMAT
    id: str
    title: str
    prose: str = ""
    """Markdown before the first step: why, when not, what it costs, whom to tell."""
    answers: tuple[str, ...] = ()
    """Ids of the findings' rules it is offered for."""
    needs: tuple[str, ...] = ()
    """root, superuser, a predefined role, `server`, a program on PATH."""
    strict: bool = False
    """No step may be skipped or jumped to."""
    reverts: bool = False
    """Given up before a point of no return, it reverts every step without a question: half of it is worse than none."""
    tag: str = ""
    """Tag of lines in session.log; empty: the id in capitals without signs."""
    versions: tuple[int | None, int | None] = (None, None)
    """Lowest and highest major version of the server it is for."""
    inputs: tuple[Input, ...] = ()
    steps: tuple[Step, ...] = ()
    sources: str = ""
    """Markdown of the last section, where it is `Sources`: what it was tried on, where its claims are from."""
    source: str = ""
    """The file it was read from, as named by who read it."""
    sha256: str = ""
    """Of the document's bytes."""

    def blocks(self) -> Iterator[tuple[Step, Block]]:
        """Every block in document order, undo blocks of a step after its own."""
        for step in self.steps:
            for block in (*step.blocks, *step.undo):
                yield step, block

    def block(self, block_id: str) -> tuple[Step, Block]:
        """The block of this id with its step. Raises KeyError."""
        for step, block in self.blocks():
            if block.id == block_id:
                return step, block
        raise KeyError(block_id)

    def step(self, step_id: str) -> Step:
        """The step of this id. Raises KeyError."""
        for step in self.steps:
            if step.id == step_id:
                return step
        raise KeyError(step_id)


def log_tag(plan: Plan) -> str:
    """Of the run's lines in session.log.

    >>> log_tag(Plan(id="cache-drop", title="")), log_tag(Plan(id="x", title="", tag="MINE"))
    ('CACHEDROP', 'MINE')
    """
    return plan.tag or "".join(sign for sign in plan.id.upper() if sign.isalnum()) or "RUNBOOK"


_canonical = msgspec.json.Encoder(order="deterministic").encode


def plan_hash(plan: Plan, inputs: Mapping[str, Any] | None = None) -> str:
    """SHA-256 of the normalised plan, hexadecimal: the same for documents that differ only in where they lie. With the
    values of its inputs that of one run of it.
    """
    normal = msgspec.structs.replace(plan, source="")
    return hashlib.sha256(_canonical(normal if inputs is None else [normal, inputs])).hexdigest()


# What a run remembers: the records its journal is made of, from which its state can be told again.


class JournalRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a run's journal, before its chain is added. Kinds:

    run.planned run.started run.paused run.resumed run.interrupted run.ended · step.started step.ended ·
    block.started block.seen block.asked block.answered block.intent block.result block.settled block.skipped ·
    wait.began wait.held · repeat.round · choose.taken · rows.chosen · input.given · undo.offered undo.settings
    undo.began undo.ended · deviation (skip, jump, adhoc, retry) · person.took ·
    journal.began journal.reopened journal.fallback journal.home

    Those of `journal.` are the journal's own, and mean nothing to the walk.
    """

    kind: str
    text: str
    """One sentence for session.log."""
    step: str = ""
    block: str = ""
    execution: int = 0
    round: int = 0
    state: str = ""
    who: str | None = None
    fields: dict[str, Any] = {}
    wall_us: int = 0
    """Set by who writes it; 0 before."""
    mono_us: int = 0
