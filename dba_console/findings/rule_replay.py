"""Judging a recording again: what today's rules say of what was read then.

The pictures are those of the recording, one per sample, in order; so a rule that has been improved can be tried on
every incident and on every quiet hour that was ever recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dba_console.findings.finding_events import FindingChange
from dba_console.findings.registry import RULES
from dba_console.findings.rule import Rule
from dba_console.findings.rule_engine import RuleEngine
from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.chart_points import point_of
from dba_console.frames.picture import Picture
from dba_console.limits import Limits


def reevaluate(
    pictures: Iterable[Picture], limits: Limits | None = None, rules: Sequence[Rule] = RULES
) -> Iterator[tuple[Picture, list[FindingChange]]]:
    """Each picture with what changed among the findings in it."""
    judge, history = RuleEngine(limits or Limits(), rules), ChartHistory()
    for picture in pictures:
        point = point_of(picture)
        history.add(picture.wall_us, point)
        yield picture, judge.evaluate(picture, history, point)
