"""Which rows of a preview are acted on: at first those its author chose, then those a person did before confirming."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dba_console.recording.plan import ACTING_KINDS, Block, Plan
from dba_console.runbooks.code_references import sql_references
from dba_console.runbooks.preview_rows import bound_preview, runs_per_row
from dba_console.runbooks.result_tables import NULL, cell
from dba_console.runbooks.run_state import BlockState, RunState

RowKey = tuple[tuple[str, str], ...]
MOST_NAMED = 5
"""Rows that a sentence names one by one."""
_IDS = re.compile(r"(?:.*_)?(?:pid|oid|id|xid|relid|datid|filenode)")
"""Whole numbers in columns of these names tell which row it is; others measure it."""
_AMOUNT = re.compile(r"[-+~]?\d[\d.,]*\s?(?:[kMGTP]?B|bytes|ms|s|min|%)?")


def row_key(row: Mapping[str, Any]) -> RowKey:
    """What tells a row from the others, and again when it is looked at anew: its names, times, texts and ids, and not
    what is measured of it. A session that has gone on to another query is another row.

    >>> row_key({"pid": 7, "query": "select 1", "waits_s": 3, "kept": "12 MB", "stale": True})
    (('pid', '7'), ('query', 'select 1'))
    """
    own = tuple((name, str(value)) for name, value in row.items() if _identifies_row(name, value))
    return own or tuple((name, str(value)) for name, value in row.items())


def _identifies_row(name: str, value: Any) -> bool:
    if value is None or isinstance(value, bool | float):
        return False
    if isinstance(value, int):
        return _IDS.fullmatch(name) is not None
    return not (isinstance(value, str) and _AMOUNT.fullmatch(value))


def left_out_at_first(block: Block, block_state: BlockState, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Places of the rows that a new look at the preview does not choose: where a person chose before, all but the rows
    they chose; else those the author's column does not name.
    """
    if block_state.kept is not None:
        chosen = frozenset(block_state.kept)
        return [place for place, row in enumerate(rows) if row_key(row) not in chosen]
    column = block.settings.get("chosen")
    return [place for place, row in enumerate(rows) if row[column] is not True] if column else []


def choice_column_error(block: Block, rows: Sequence[Mapping[str, Any]]) -> str:
    """Why the author's column cannot choose among these rows; empty where it can."""
    column = block.settings.get("chosen")
    if not column or all(column in row and (row[column] is None or isinstance(row[column], bool)) for row in rows):
        return ""
    return f"chosen={column}: the rows have no column {column} that is true or false"


def chosen_keys(rows: Sequence[Mapping[str, Any]], left_out: Iterable[int]) -> tuple[RowKey, ...]:
    """What the chosen rows are known by; not what a row that was left out has as well."""
    out = frozenset(left_out)
    spared = {row_key(row) for place, row in enumerate(rows) if place in out}
    chosen = dict.fromkeys(row_key(row) for place, row in enumerate(rows) if place not in out)
    return tuple(key for key in chosen if key not in spared)


def acts_on_preview(plan: Plan, block: Block) -> Block | None:
    """The preview whose chosen rows the act works on. None where its rows only show what the act is about: a change
    that names no row does the same whichever of them are chosen.
    """
    preview = bound_preview(plan, block) if block.kind in ACTING_KINDS else None
    if preview is None or block.kind != "change" or runs_per_row(block):
        return preview
    return preview if {"rows", preview.name}.intersection(sql_references(block.body)) else None


def has_act(plan: Plan, preview: Block) -> bool:
    """Whether an act works on its rows: else they are only read, and none of them is chosen or left out."""
    return any(acts_on_preview(plan, block) == preview for _, block in plan.blocks())


def confirmed_preview(plan: Plan, state: RunState, block: Block) -> Block | None:
    """The preview of whose rows some can be left out when the block's confirmation is asked for: that of the act, or of
    an act the `confirm` covers. None where there are no rows, and once some of them are done.
    """
    step, _ = plan.block(block.id)
    preview = None
    if block.kind == "confirm" and block in step.blocks:
        at = step.blocks.index(block)
        shown = [one for one in step.blocks[:at] if one.kind == "preview"]
        previews = [acts_on_preview(plan, one) for one in step.blocks[at:] if one.confirm is None]
        preview = next((one for one in reversed(shown) if one in previews), None)
    elif block.confirm is not None:
        preview = acts_on_preview(plan, block)
    if preview is None or not state.blocks[preview.id].rows or state.blocks[block.id].row:
        return None
    return preview


def chosen_count_text(block_state: BlockState) -> str:
    """How many of its rows are chosen, where not all are.

    >>> chosen_count_text(BlockState(rows=({"pid": 1}, {"pid": 2}), left_out=(1,)))
    '1 of 2 rows'
    """
    if block_state.rows is None or not block_state.left_out:
        return ""
    return f"{len(block_state.rows) - len(block_state.left_out)} of {len(block_state.rows)} rows"


def row_names(rows: Sequence[Mapping[str, Any]], indexes: Iterable[int]) -> str:
    """Rows by their first two values, `pid 7, usename app; pid 9, usename app; and 3 more`."""
    all_of = list(indexes)
    names = [
        ", ".join(f"{name} {_cell_text(value, name)}" for name, value in list(rows[index].items())[:2])
        for index in all_of[:MOST_NAMED]
    ]
    return "; ".join([*names, *([f"and {len(all_of) - MOST_NAMED} more"] if len(all_of) > MOST_NAMED else [])])


def _cell_text(value: Any, name: str) -> str:
    return NULL if value is None else cell(value, name, most=60)
