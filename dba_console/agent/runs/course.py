"""The course of one dump or restore as its messages tell it: how far it is while it runs, and what it took."""

from __future__ import annotations

from typing import Any

from dba_console.archives.entries import Entry, Plan
from dba_console.archives.items import Item
from dba_console.archives.ledger import Ledger
from dba_console.archives.phases import PhaseSum
from dba_console.plans.view import Table
from dba_console.units import human_bytes, human_duration

LONGEST_TEXT = 400
RUNNING_TOLD = 3
ERRORS_TOLD = 2
"""In a sentence; the table has more."""
MOST_ERRORS = 50
MOST_LONGEST = 20
COLUMNS = ("of", "what", "took", "busy", "objects", "size", "rate")
"""busy: of all its objects together, which is more than what it took where several ran beside each other."""


class Course:
    """Of one execution. `plan` is what the archive holds, None where that is not known."""

    def __init__(self, plan: Plan | None, program: str, jobs: int | None) -> None:
        self._ledger = Ledger(plan, program, jobs)
        self._now_us = 0

    def see(self, wall_us: int, text: str, stream: str) -> None:
        """A line, when it came."""
        self._now_us = wall_us
        self._ledger.see(wall_us, text, "stderr" if stream == "e" else "stdout")

    def ended(self, wall_us: int, code: Any) -> None:
        """The program has gone."""
        self._now_us = max(self._now_us, wall_us)
        self._ledger.ended(wall_us, code if isinstance(code, int) else None)

    @property
    def errors(self) -> int:
        """How many there were: as counted, and at least as many as the program says it ignored."""
        return max(self._ledger.error_count, self._ledger.ignored or 0)

    @property
    def ignored(self) -> int | None:
        """Errors it went on over, as it said itself; None where it did not say so."""
        return self._ledger.ignored

    @property
    def last_error(self) -> str:
        errors = self._ledger.errors
        return errors[-1].text if errors else ""

    def told(self, now_us: int) -> str:
        """How far it is, in a sentence."""
        under_way = [one for one in self._ledger.phases(now_us) if one.state == "running"]
        said = [_phase_told(one) for one in under_way]
        running = [_running_told(one, now_us) for one in self._ledger.running_items[:RUNNING_TOLD]]
        more = len(self._ledger.running_items) - len(running)
        if running:
            said.append("at work: " + ", ".join(running) + (f" and {more} more" if more > 0 else ""))
        if self.errors:
            said.append(f"errors: {self.errors}")
        return "; ".join(said)

    def first_errors(self) -> str:
        """The first errors with their objects, for a sentence."""
        told = [_mistake(one.desc, one.schema, one.tag, one.text) for one in self._ledger.errors[:ERRORS_TOLD]]
        more = self.errors - len(told)
        return "; ".join([*told, *([f"and {more} more"] if more > 0 and told else [])])

    def values(self) -> dict[str, Any]:
        """Results by name, as expressions and commands of later blocks see them; seconds."""
        began, over = self._ledger.began_us, self._ledger.ended_us
        done = self._ledger.counts()[1]
        found: dict[str, Any] = {"objects": done}
        found["wall_s"] = None if began is None or over is None else round((over - began) / 1e6, 3)
        for one in self._ledger.phases(self._now_us):
            found[f"{one.name}_s"] = 0.0 if not one.items and one.wall_s is None else _rounded(one.wall_s)
            found[f"{one.name}_busy_s"] = round(one.busy_s, 3)
        return found

    def table(self) -> Table | None:
        """What each phase took, the longest objects, the errors; None where nothing is known of any of them."""
        rows = [_phase_row(one) for one in self._ledger.phases(self._now_us) if one.items or one.wall_s]
        rows += [_item_row(one) for one in self._ledger.longest[:MOST_LONGEST]]
        for one in self._ledger.errors[:MOST_ERRORS]:
            rows.append(("error", _mistake(one.desc, one.schema, one.tag, one.text), "", "", "", "", ""))
        if not rows:
            return None
        return Table(columns=COLUMNS, rows=tuple(rows), total=len(rows), title="what it took, by phase and object")


def _phase_told(one: PhaseSum) -> str:
    ended = one.done + one.failed
    share = ""
    if one.name == "data" and one.weight:
        share = f", {min(99.0, one.weight_done / one.weight * 100):.0f} % of its size (estimated)"
    return f"{one.name}: {ended} of {one.items} objects{share}"


def _running_told(item: Item, now_us: int) -> str:
    since = "" if item.started_us is None else f" ({human_duration(max(0, now_us - item.started_us) / 1e6)})"
    return f"{name_of(item.entry)}{since}"


def name_of(entry: Entry) -> str:
    """
    >>> name_of(Entry(dump_id=1, desc="INDEX", phase="indexes", schema="public", tag="items_n_idx"))
    'INDEX public.items_n_idx'
    """
    return f"{entry.desc} {entry.schema}.{entry.tag}" if entry.schema else f"{entry.desc} {entry.tag}".rstrip()


def _mistake(desc: str | None, schema: str | None, tag: str | None, text: str) -> str:
    named = " ".join(filter(None, (desc, f"{schema}.{tag}" if schema and tag else tag)))
    return f"{named}: {text}" if named else text


def _phase_row(one: PhaseSum) -> tuple[str, ...]:
    size = one.weight if one.name == "data" else None
    rate = size / one.wall_s if size and one.wall_s else None
    failed = f", {one.failed} failed" if one.failed else ""
    return (
        "phase", one.name, _seconds(one.wall_s), _seconds(one.busy_s), f"{one.done} of {one.items}{failed}",
        "" if size is None else human_bytes(int(size)), "" if rate is None else f"{human_bytes(int(rate))}/s",
    )  # fmt: skip


def _item_row(item: Item) -> tuple[str, ...]:
    size = item.entry.weight if item.entry.phase == "data" else None
    rate = size / item.seconds if size and item.seconds else None
    return (
        "longest", name_of(item.entry), _seconds(item.seconds), "", "" if item.exact else "estimated",
        "" if size is None else human_bytes(int(size)), "" if rate is None else f"{human_bytes(int(rate))}/s",
    )  # fmt: skip


def _seconds(value: float | None) -> str:
    return "?" if value is None else human_duration(value)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
