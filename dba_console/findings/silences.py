"""What operators said of findings: this one is known, that one is to be quiet for a time."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct, structs

from dba_console.samples.findings import FindingNow


class FindingMark(Struct, frozen=True, kw_only=True):
    """An acknowledgement (`until_us` None: as long as the finding lasts) or a silence until then."""

    who: str
    note: str
    set_us: int
    until_us: int | None = None


RESTORED_GRACE_US = 120_000_000
"""An acknowledged finding is given so long to be seen again by the next agent: several of the slowest readings that
rules go by, and what must last before it is raised."""


class FindingMarks:
    """Acknowledgements and silences by finding id, silences also by rule name. A silence goes before."""

    def __init__(self) -> None:
        self._acknowledged: dict[str, FindingMark] = {}
        self._silenced: dict[str, FindingMark] = {}
        self._restored: set[str] = set()
        self._restored_until_us = 0

    def acknowledge(self, finding_id: str, who: str, note: str, wall_us: int) -> None:
        self._acknowledged[finding_id] = FindingMark(who=who, note=note, set_us=wall_us)

    def silence(self, name: str, until_us: int, who: str, note: str, wall_us: int) -> None:
        self._silenced[name] = FindingMark(who=who, note=note, set_us=wall_us, until_us=until_us)

    def remove(self, name: str) -> bool:
        """Take back what was said of it. False where nothing was."""
        forgotten = [self._acknowledged.pop(name, None), self._silenced.pop(name, None)]
        return any(word is not None for word in forgotten)

    def prune(self, open_ids: Collection[str], wall_us: int) -> None:
        """An acknowledgement ends with its finding, a silence with its time."""
        if self._restored:
            self._restored = self._restored - set(open_ids) if wall_us < self._restored_until_us else set()
        known = {*open_ids, *self._restored}
        self._acknowledged = {name: word for name, word in self._acknowledged.items() if name in known}
        self._silenced = {name: word for name, word in self._silenced.items() if (word.until_us or 0) > wall_us}

    def apply(self, row: FindingNow, wall_us: int) -> FindingNow:
        """The finding with what was said of it."""
        silenced = self._silenced.get(row.id) or self._silenced.get(row.rule)
        if silenced is not None and (silenced.until_us or 0) > wall_us:
            return _with_mark(row, "silenced", silenced)
        known = self._acknowledged.get(row.id)
        if known is not None:
            return _with_mark(row, "acknowledged", known)
        if row.state == "open":
            return row
        return structs.replace(row, state="open", who=None, note=None, until_us=None)

    def to_save(self) -> dict[str, dict[str, FindingMark]]:
        """Everything said, to be kept over a restart."""
        return {"acknowledged": dict(self._acknowledged), "silenced": dict(self._silenced)}

    def restore(self, words: dict[str, dict[str, FindingMark]], wall_us: int) -> None:
        """Begin with what was said to another agent, whose findings are still to be seen by this one."""
        self._acknowledged = dict(words.get("acknowledged", {}))
        self._restored, self._restored_until_us = set(self._acknowledged), wall_us + RESTORED_GRACE_US
        self._silenced = dict(words.get("silenced", {}))


def _with_mark(row: FindingNow, state: str, word: FindingMark) -> FindingNow:
    mark = (state, word.who, word.note, word.until_us)
    if (row.state, row.who, row.note, row.until_us) == mark:
        return row
    return structs.replace(row, state=state, who=word.who, note=word.note or None, until_us=word.until_us)
