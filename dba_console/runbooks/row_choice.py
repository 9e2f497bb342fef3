"""Choice of a preview's rows: preselected by the author, then by the operator before the confirmation."""

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
"""Maximum rows listed by name in a text."""
_IDS = re.compile(r"(?:.*_)?(?:pid|oid|id|xid|relid|datid|filenode)")
"""Whole numbers in columns with these names identify a row; others are measurements."""
_AMOUNT = re.compile(r"[-+~]?\d[\d.,]*\s?(?:[kMGTP]?B|bytes|ms|s|min|%)?")


def row_key(row: Mapping[str, Any]) -> RowKey:
    """Return what identifies a row in this and later previews: its names, times, texts and ids, not its measurements. A
    session with another query is another row.

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
    """Return the indexes of rows that are not chosen after a new preview: if the operator has chosen before, all other
    rows; else those where the author's column is not true.
    """
    if block_state.kept is not None:
        chosen = frozenset(block_state.kept)
        return [place for place, row in enumerate(rows) if row_key(row) not in chosen]
    column = block.settings.get("chosen")
    return [place for place, row in enumerate(rows) if row[column] is not True] if column else []


def choice_column_error(block: Block, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return why the author's column cannot preselect rows; empty if it can."""
    column = block.settings.get("chosen")
    if not column or all(column in row and (row[column] is None or isinstance(row[column], bool)) for row in rows):
        return ""
    return f"chosen={column}: the rows have no boolean column {column}"


def chosen_keys(rows: Sequence[Mapping[str, Any]], left_out: Iterable[int]) -> tuple[RowKey, ...]:
    """Return the keys of the chosen rows, without keys that a row not chosen also has."""
    out = frozenset(left_out)
    spared = {row_key(row) for place, row in enumerate(rows) if place in out}
    chosen = dict.fromkeys(row_key(row) for place, row in enumerate(rows) if place not in out)
    return tuple(key for key in chosen if key not in spared)


def acts_on_preview(plan: Plan, block: Block) -> Block | None:
    """Return the preview whose chosen rows the block acts on. None if its rows are only shown: a change that uses no
    row does the same whatever is chosen.
    """
    preview = bound_preview(plan, block) if block.kind in ACTING_KINDS else None
    if preview is None or block.kind != "change" or runs_per_row(block):
        return preview
    return preview if {"rows", preview.name}.intersection(sql_references(block.body)) else None


def has_act(plan: Plan, preview: Block) -> bool:
    """Return whether a block acts on its rows; otherwise they are only shown and cannot be chosen."""
    return any(acts_on_preview(plan, block) == preview for _, block in plan.blocks())


def confirmed_preview(plan: Plan, state: RunState, block: Block) -> Block | None:
    """Return the preview whose rows can be chosen at the block's confirmation: that of the block, or of a block that
    the `confirm` covers. None if there are no rows, or if some of them are already done.
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
    """Return how many of its rows are chosen; empty if all are.

    >>> chosen_count_text(BlockState(rows=({"pid": 1}, {"pid": 2}), left_out=(1,)))
    '1 of 2 rows'
    """
    if block_state.rows is None or not block_state.left_out:
        return ""
    return f"{len(block_state.rows) - len(block_state.left_out)} of {len(block_state.rows)} rows"


def row_names(rows: Sequence[Mapping[str, Any]], indexes: Iterable[int]) -> str:
    """Return rows by their first two values: `pid 7, usename app; pid 9, usename app; and 3 more`."""
    all_of = list(indexes)
    names = [
        ", ".join(f"{name} {_cell_text(value, name)}" for name, value in list(rows[index].items())[:2])
        for index in all_of[:MOST_NAMED]
    ]
    return "; ".join([*names, *([f"and {len(all_of) - MOST_NAMED} more"] if len(all_of) > MOST_NAMED else [])])


def _cell_text(value: Any, name: str) -> str:
    return NULL if value is None else cell(value, name, most=60)
