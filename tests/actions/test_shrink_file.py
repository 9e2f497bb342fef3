"""A file is removed step by step: stopped, killed, continued, reverted."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from dba_console.actions.action import ActionContext
from dba_console.actions.shrink.candidate import SUFFIX
from dba_console.actions.shrink.stepwise_truncate import (
    MAX_PAUSE_S,
    MIB,
    Pace,
    StepwiseTruncation,
    next_length,
    next_pace,
)
from dba_console.core.errors import Refused, UsageError
from tests.actions.shrink_files import (
    ACTION,
    SMALL_STEPS,
    ScriptedControl,
    SteadyDisk,
    big_file,
    context_without_processes,
    perform_shrink,
    settings,
    shorter_than,
)
from tests.background import wait_until


@pytest.fixture
def context(tmp_path: Path) -> ActionContext:
    return context_without_processes(tmp_path)


def renamed_path(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def test_the_file_is_gone_and_no_other_file_is_left(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    action_preview, done = perform_shrink(path, context)
    assert done.state == "ok", done.text
    assert done.values["freed_bytes"] == action_preview.values["allocated_bytes"]
    assert sorted(place.name for place in tmp_path.iterdir()) == ["proc"]


def test_the_preview_names_path_and_size(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    action_preview = ACTION.preview(settings(path), context)
    assert action_preview.exact == (
        f"rename {path} to {path}{SUFFIX}; truncate {path}{SUFFIX} from its end to 0, step by step, and unlink it"
    )
    assert action_preview.values["size_bytes"] == 40 * MIB
    assert action_preview.text.startswith(f"{path}: 40.0 MB, last changed")
    assert path.exists()


def test_a_preview_changes_nothing(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 2)
    before = path.stat()
    ACTION.preview(settings(path), context)
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino


def test_the_file_is_cut_in_steps_no_larger_than_requested(context: ActionContext, tmp_path: Path) -> None:
    _, done = perform_shrink(big_file(tmp_path), context, **SMALL_STEPS)
    assert done.values["largest_step_bytes"] <= 2 * MIB
    assert done.values["cuts"] >= 20


def test_a_stop_keeps_the_rest_and_the_next_call_continues(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    _, done = perform_shrink(path, context, ScriptedControl(stop=shorter_than(path, 40)), **SMALL_STEPS)
    assert done.state == "stopped"
    assert done.undo is None
    assert 0 < renamed_path(path).stat().st_size < 40 * MIB
    assert "start the action again to continue" in done.text
    action_preview, done = perform_shrink(path, context)
    assert "continues an earlier deletion" in action_preview.text
    assert done.state == "ok"
    assert not renamed_path(path).exists()


def test_it_also_continues_by_the_name_of_the_rest(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    perform_shrink(path, context, ScriptedControl(stop=shorter_than(path, 40)), **SMALL_STEPS)
    _, done = perform_shrink(renamed_path(path), context)
    assert done.state == "ok"
    assert not renamed_path(path).exists()


def test_before_the_first_cut_the_rename_can_be_reverted(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    content = path.read_bytes()
    _, done = perform_shrink(path, context, ScriptedControl(stop=lambda: True))
    assert done.state == "stopped"
    assert done.undo is not None
    assert renamed_path(path).exists()
    assert ACTION.undo(settings(path), done.undo, context, ScriptedControl()).state == "ok"
    assert path.read_bytes() == content
    assert not renamed_path(path).exists()


def test_the_rename_is_a_step_of_its_own_that_can_be_reverted(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    _, done = perform_shrink(path, context, stage="aside")
    assert done.state == "ok"
    assert renamed_path(path).stat().st_size == 40 * MIB
    assert ACTION.preview(settings(path, stage="aside"), context).done
    assert done.undo is not None
    assert ACTION.undo(settings(path), done.undo, context, ScriptedControl()).state == "ok"
    assert path.exists()


def test_after_the_first_cut_nothing_is_reverted(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    _, aside = perform_shrink(path, context, stage="aside")
    perform_shrink(path, context, ScriptedControl(stop=shorter_than(path, 40)), **SMALL_STEPS)
    assert aside.undo is not None
    done = ACTION.undo(settings(path), aside.undo, context, ScriptedControl())
    assert done.state == "failed"
    assert "has been truncated" in done.text
    assert not path.exists()


def test_the_undo_does_not_overwrite_a_new_file_of_that_name(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 2)
    _, aside = perform_shrink(path, context, stage="aside")
    path.write_text("the next backup")
    assert aside.undo is not None
    assert ACTION.undo(settings(path), aside.undo, context, ScriptedControl()).state == "failed"
    assert path.read_text() == "the next backup"


def test_a_pause_is_reported_and_awaited(context: ActionContext, tmp_path: Path) -> None:
    control = ScriptedControl(pauses=3)
    _, done = perform_shrink(big_file(tmp_path), context, control)
    assert done.state == "ok"
    assert sum("paused by the operator" in message for message in control.progress) == 3


def test_a_stop_file_stops_the_action(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    stop = tmp_path / f"{renamed_path(path).name}.stop"
    stop.touch()
    _, done = perform_shrink(path, context)
    assert done.state == "stopped"
    assert f"stopped by the file {stop}" in done.text
    assert renamed_path(path).stat().st_size == 40 * MIB


def test_a_pause_file_holds_the_action_until_it_is_removed(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    pause = tmp_path / f"{renamed_path(path).name}.pause"
    pause.touch()

    class Removing(ScriptedControl):
        def wait(self, seconds: float) -> bool:
            if any("paused until the file" in message for message in self.progress):
                pause.unlink(missing_ok=True)
            return False

    control = Removing()
    _, done = perform_shrink(path, context, control)
    assert done.state == "ok"
    assert f"paused until the file {pause} is gone" in " ".join(control.progress)


def test_another_file_under_its_name_is_not_touched(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 2)
    action_preview = ACTION.preview(settings(path), context)
    path.unlink()
    path.write_text("the next backup")
    with pytest.raises(Refused, match="has changed since the preview"):
        ACTION.act(settings(path), action_preview, context, ScriptedControl())
    assert path.read_text() == "the next backup"


def test_a_growing_file_is_not_touched(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 2)
    action_preview = ACTION.preview(settings(path), context)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(Refused, match="has changed"):
        ACTION.act(settings(path), action_preview, context, ScriptedControl())
    assert path.exists()


def test_an_unknown_outcome_is_resolved_by_the_files(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    wanted, action_preview = settings(path), ACTION.preview(settings(path), context)
    assert ACTION.settle(wanted, action_preview, context).state == "failed"
    perform_shrink(path, context, stage="aside")
    whole = ACTION.settle(wanted, action_preview, context)
    assert (whole.state, whole.undo is None) == ("stopped", False)
    assert ACTION.settle(settings(path, stage="aside"), action_preview, context).state == "ok"
    perform_shrink(path, context, ScriptedControl(stop=shorter_than(path, 40)), **SMALL_STEPS)
    half = ACTION.settle(wanted, action_preview, context)
    assert (half.state, half.undo) == ("stopped", None)
    perform_shrink(path, context)
    assert ACTION.settle(wanted, action_preview, context).state == "ok"


def test_killed_midway_it_leaves_a_file_that_can_be_resumed(context: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 200)
    script = f"""
import threading
from pathlib import Path
from dba_console.actions.action import ActionContext
from tests.actions.shrink_files import ScriptedControl, perform_shrink, shorter_than

class Held(ScriptedControl):
    def wait(self, seconds):
        return threading.Event().wait(seconds)

path = Path({str(path)!r})
perform_shrink(path, ActionContext(proc={context.proc!r}), Held(pause=shorter_than(path, 200)), step="2MB")
"""
    child = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2])
    try:
        left = renamed_path(path)
        wait_until(lambda: left.exists() and left.stat().st_size < 200 * MIB, timeout=300, what="the first cut")
    finally:
        child.kill()
        child.wait()
    assert left.stat().st_size > 0
    _, done = perform_shrink(path, context)
    assert done.state == "ok"
    assert sorted(place.name for place in tmp_path.iterdir()) == ["proc"]


def test_a_sparse_file_is_cut_where_it_has_data_and_holes_are_skipped(context: ActionContext, tmp_path: Path) -> None:
    path = tmp_path / "sparse.dump"
    with path.open("wb") as file:
        file.write(os.urandom(4 * MIB))
        file.truncate(50 * 1024 * MIB)
        file.seek(20 * 1024 * MIB)
        file.write(os.urandom(4 * MIB))
    action_preview, done = perform_shrink(path, context, **SMALL_STEPS)
    assert "sparse file" in action_preview.text
    assert done.state == "ok"
    assert done.values["freed_bytes"] == action_preview.values["allocated_bytes"]
    assert done.values["cuts"] < 200
    assert not renamed_path(path).exists()


def test_an_empty_file_is_deleted_too(context: ActionContext, tmp_path: Path) -> None:
    path = tmp_path / "empty.dump"
    path.touch()
    _, done = perform_shrink(path, context)
    assert done.state == "ok"
    assert not path.exists()


def test_a_cut_ends_on_a_whole_megabyte() -> None:
    assert next_length(10 * MIB + 17, 3 * MIB, lambda at: True) == 7 * MIB
    assert next_length(MIB, 3 * MIB, lambda at: True) == 0


def test_a_hole_is_cut_at_once_but_not_the_data_before_it() -> None:
    assert next_length(1000 * MIB, MIB, lambda at: at < 10 * MIB) >= 10 * MIB
    assert next_length(1000 * MIB, MIB, lambda at: False) == 0


def test_problems_of_other_sessions_are_awaited_and_reported(tmp_path: Path) -> None:
    control = ScriptedControl()
    with big_file(tmp_path, 8).open("r+b") as file:
        progress = StepwiseTruncation(file.fileno(), SteadyDisk(), control).run(Pace(0.9))
    assert progress.stopped == ""
    assert any("without any cut: waiting until they are faster" in message for message in control.progress)


def test_pauses_double_while_commits_are_slow_and_halve_afterwards() -> None:
    first = pace = Pace(0.001)
    for _ in range(20):
        pace = next_pace(pace, 0.3, "a commit", 0.1)
    assert pace.pause_s == MAX_PAUSE_S
    assert pace.reason == "a commit took 300 ms during a cut, 1.0 ms without one"
    for _ in range(20):
        pace = next_pace(pace, 0.002, "a commit", 0.1)
    assert pace == first


def test_commits_that_others_slow_down_do_not_lengthen_the_pause() -> None:
    assert next_pace(Pace(0.06, 0.02, "a commit took long"), 0.15, "a commit", 0.1).pause_s < 0.02


def test_slow_commits_of_the_database_slow_the_deletion_down(tmp_path: Path) -> None:
    class Database(SteadyDisk):
        def database_commit(self) -> float | None:
            self.asked += 1
            return 0.001 if self.asked == 1 else 0.15

    control, times = ScriptedControl(), count(step=10)
    with big_file(tmp_path, 8).open("r+b") as file:
        cutting = StepwiseTruncation(file.fileno(), Database(), control, step=MIB, seconds=lambda: float(next(times)))
        cutting.run(cutting.measure_baseline())
    assert any("slowed down: the database's commit took 150 ms during a cut" in message for message in control.progress)


def test_settings_that_are_not_a_size_are_refused_first(context: ActionContext, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a size"):
        ACTION.preview(settings(tmp_path / "x", step="much"), context)
