"""A file is removed step by step: stopped, killed, gone on with, put back."""

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
from tests.actions.shrink_files import ACTION, SMALL, Even, Told, alone, big_file, performed, settings, shorter
from tests.background import wait_until


@pytest.fixture
def world(tmp_path: Path) -> ActionContext:
    return alone(tmp_path)


def trash(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def test_the_file_is_gone_and_no_other_file_is_left(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    action_preview, done = performed(path, world)
    assert done.state == "ok", done.text
    assert done.values["freed_bytes"] == action_preview.values["allocated_bytes"]
    assert sorted(place.name for place in tmp_path.iterdir()) == ["proc"]


def test_the_preview_names_path_and_size(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    action_preview = ACTION.preview(settings(path), world)
    assert action_preview.exact == (
        f"rename {path} to {path}{SUFFIX}; truncate {path}{SUFFIX} from its end to 0, step by step, and unlink it"
    )
    assert action_preview.values["size_bytes"] == 40 * MIB
    assert action_preview.text.startswith(f"{path}: 40.0 MB, last changed")
    assert path.exists()


def test_a_preview_changes_nothing(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 2)
    before = path.stat()
    ACTION.preview(settings(path), world)
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino


def test_the_file_is_cut_in_steps_no_larger_than_requested(world: ActionContext, tmp_path: Path) -> None:
    _, done = performed(big_file(tmp_path), world, **SMALL)
    assert done.values["largest_step_bytes"] <= 2 * MIB
    assert done.values["cuts"] >= 20


def test_a_stop_keeps_the_rest_and_the_next_call_continues(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    _, done = performed(path, world, Told(stop=shorter(path, 40)), **SMALL)
    assert done.state == "stopped"
    assert done.undo is None
    assert 0 < trash(path).stat().st_size < 40 * MIB
    assert "start the action again to continue" in done.text
    action_preview, done = performed(path, world)
    assert "continues an earlier deletion" in action_preview.text
    assert done.state == "ok"
    assert not trash(path).exists()


def test_it_also_continues_by_the_name_of_the_rest(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    performed(path, world, Told(stop=shorter(path, 40)), **SMALL)
    _, done = performed(trash(path), world)
    assert done.state == "ok"
    assert not trash(path).exists()


def test_before_the_first_cut_the_rename_can_be_reverted(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    content = path.read_bytes()
    _, done = performed(path, world, Told(stop=lambda: True))
    assert done.state == "stopped"
    assert done.undo is not None
    assert trash(path).exists()
    assert ACTION.undo(settings(path), done.undo, world, Told()).state == "ok"
    assert path.read_bytes() == content
    assert not trash(path).exists()


def test_the_rename_is_a_step_of_its_own_that_can_be_reverted(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    _, done = performed(path, world, stage="aside")
    assert done.state == "ok"
    assert trash(path).stat().st_size == 40 * MIB
    assert ACTION.preview(settings(path, stage="aside"), world).done
    assert done.undo is not None
    assert ACTION.undo(settings(path), done.undo, world, Told()).state == "ok"
    assert path.exists()


def test_after_the_first_cut_nothing_is_reverted(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    _, aside = performed(path, world, stage="aside")
    performed(path, world, Told(stop=shorter(path, 40)), **SMALL)
    assert aside.undo is not None
    done = ACTION.undo(settings(path), aside.undo, world, Told())
    assert done.state == "failed"
    assert "has been truncated" in done.text
    assert not path.exists()


def test_the_undo_does_not_overwrite_a_new_file_of_that_name(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 2)
    _, aside = performed(path, world, stage="aside")
    path.write_text("the next backup")
    assert aside.undo is not None
    assert ACTION.undo(settings(path), aside.undo, world, Told()).state == "failed"
    assert path.read_text() == "the next backup"


def test_a_pause_is_reported_and_awaited(world: ActionContext, tmp_path: Path) -> None:
    control = Told(pauses=3)
    _, done = performed(big_file(tmp_path), world, control)
    assert done.state == "ok"
    assert sum("paused by the operator" in said for said in control.said) == 3


def test_a_stop_file_stops_the_action(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    stop = tmp_path / f"{trash(path).name}.stop"
    stop.touch()
    _, done = performed(path, world)
    assert done.state == "stopped"
    assert f"stopped by the file {stop}" in done.text
    assert trash(path).stat().st_size == 40 * MIB


def test_a_pause_file_holds_the_action_until_it_is_removed(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    pause = tmp_path / f"{trash(path).name}.pause"
    pause.touch()

    class Removing(Told):
        def wait(self, seconds: float) -> bool:
            if any("paused until the file" in said for said in self.said):
                pause.unlink(missing_ok=True)
            return False

    control = Removing()
    _, done = performed(path, world, control)
    assert done.state == "ok"
    assert f"paused until the file {pause} is gone" in " ".join(control.said)


def test_another_file_under_its_name_is_not_touched(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 2)
    action_preview = ACTION.preview(settings(path), world)
    path.unlink()
    path.write_text("the next backup")
    with pytest.raises(Refused, match="has changed since the preview"):
        ACTION.act(settings(path), action_preview, world, Told())
    assert path.read_text() == "the next backup"


def test_a_growing_file_is_not_touched(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 2)
    action_preview = ACTION.preview(settings(path), world)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(Refused, match="has changed"):
        ACTION.act(settings(path), action_preview, world, Told())
    assert path.exists()


def test_an_unknown_outcome_is_resolved_by_the_files(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path)
    wanted, action_preview = settings(path), ACTION.preview(settings(path), world)
    assert ACTION.settle(wanted, action_preview, world).state == "failed"
    performed(path, world, stage="aside")
    whole = ACTION.settle(wanted, action_preview, world)
    assert (whole.state, whole.undo is None) == ("stopped", False)
    assert ACTION.settle(settings(path, stage="aside"), action_preview, world).state == "ok"
    performed(path, world, Told(stop=shorter(path, 40)), **SMALL)
    half = ACTION.settle(wanted, action_preview, world)
    assert (half.state, half.undo) == ("stopped", None)
    performed(path, world)
    assert ACTION.settle(wanted, action_preview, world).state == "ok"


def test_killed_midway_it_leaves_a_file_that_can_be_resumed(world: ActionContext, tmp_path: Path) -> None:
    path = big_file(tmp_path, 200)
    script = f"""
import threading
from pathlib import Path
from dba_console.actions.action import ActionContext
from tests.actions.shrink_files import Told, performed, shorter

class Held(Told):
    def wait(self, seconds):
        return threading.Event().wait(seconds)

path = Path({str(path)!r})
performed(path, ActionContext(proc={world.proc!r}), Held(pause=shorter(path, 200)), step="2MB")
"""
    child = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2])
    try:
        left = trash(path)
        wait_until(lambda: left.exists() and left.stat().st_size < 200 * MIB, timeout=300, what="the first cut")
    finally:
        child.kill()
        child.wait()
    assert left.stat().st_size > 0
    _, done = performed(path, world)
    assert done.state == "ok"
    assert sorted(place.name for place in tmp_path.iterdir()) == ["proc"]


def test_a_sparse_file_is_cut_where_it_has_data_and_holes_are_skipped(world: ActionContext, tmp_path: Path) -> None:
    path = tmp_path / "sparse.dump"
    with path.open("wb") as file:
        file.write(os.urandom(4 * MIB))
        file.truncate(50 * 1024 * MIB)
        file.seek(20 * 1024 * MIB)
        file.write(os.urandom(4 * MIB))
    action_preview, done = performed(path, world, **SMALL)
    assert "sparse file" in action_preview.text
    assert done.state == "ok"
    assert done.values["freed_bytes"] == action_preview.values["allocated_bytes"]
    assert done.values["cuts"] < 200
    assert not trash(path).exists()


def test_an_empty_file_is_deleted_too(world: ActionContext, tmp_path: Path) -> None:
    path = tmp_path / "empty.dump"
    path.touch()
    _, done = performed(path, world)
    assert done.state == "ok"
    assert not path.exists()


def test_a_cut_ends_on_a_whole_megabyte() -> None:
    assert next_length(10 * MIB + 17, 3 * MIB, lambda at: True) == 7 * MIB
    assert next_length(MIB, 3 * MIB, lambda at: True) == 0


def test_a_hole_is_cut_at_once_but_not_the_data_before_it() -> None:
    assert next_length(1000 * MIB, MIB, lambda at: at < 10 * MIB) >= 10 * MIB
    assert next_length(1000 * MIB, MIB, lambda at: False) == 0


def test_problems_of_other_sessions_are_awaited_and_reported(tmp_path: Path) -> None:
    control = Told()
    with big_file(tmp_path, 8).open("r+b") as file:
        progress = StepwiseTruncation(file.fileno(), Even(), control).run(Pace(0.9))
    assert progress.stopped == ""
    assert any("without any cut: waiting until they are faster" in said for said in control.said)


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
    class Database(Even):
        def database_commit(self) -> float | None:
            self.asked += 1
            return 0.001 if self.asked == 1 else 0.15

    control, times = Told(), count(step=10)
    with big_file(tmp_path, 8).open("r+b") as file:
        cutting = StepwiseTruncation(file.fileno(), Database(), control, step=MIB, seconds=lambda: float(next(times)))
        cutting.run(cutting.measure_baseline())
    assert any("slowed down: the database's commit took 150 ms during a cut" in said for said in control.said)


def test_settings_that_are_not_a_size_are_refused_first(world: ActionContext, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a size"):
        ACTION.preview(settings(tmp_path / "x", step="much"), world)
