"""Kernel settings, changed and reverted, on directories that look like /proc/sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from dba_console.actions.action import ActionContext, ActionResult, PlainControl
from dba_console.actions.sysctl import Sysctl, SysctlSettings, find_setting, persistent_line
from dba_console.core.errors import Refused

ACTION = Sysctl()
SETTINGS = {
    "proc/sys/vm/zone_reclaim_mode": "1\n",
    "proc/sys/vm/dirty_bytes": "0\n",
    "proc/sys/vm/dirty_ratio": "20\n",
    "proc/sys/vm/lowmem_reserve_ratio": "256\t256\t32\n",
    "proc/sys/vm/drop_caches": "0\n",
    "proc/sys/kernel/numa_balancing": "1\n",
    "proc/sys/kernel/core_pattern": "core\n",
    "proc/sys/fs/suid_dumpable": "0\n",
    "proc/sys/fs/aio-max-nr": "65536\n",
    "sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never\n",
}


@pytest.fixture
def context(tmp_path: Path) -> ActionContext:
    for name, text in SETTINGS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return ActionContext(proc=str(tmp_path / "proc"), sys=str(tmp_path / "sys"))


def wanted(key: str, value: str | int) -> SysctlSettings:
    return SysctlSettings(key=key, value=value)


def done(context: ActionContext, settings: SysctlSettings) -> ActionResult:
    action_preview = ACTION.preview(settings, context)
    assert action_preview.refusal is None, action_preview.refusal
    return ACTION.act(settings, action_preview, context, PlainControl())


def refusal(context: ActionContext, key: str, value: str | int = 0) -> str:
    return ACTION.preview(wanted(key, value), context).refusal or ""


def text_of(context: ActionContext, name: str) -> str:
    return Path(context.proc, "sys", name).read_text()


def test_a_setting_is_changed_and_the_old_value_saved(context: ActionContext) -> None:
    ended = done(context, wanted("vm.zone_reclaim_mode", 0))
    assert ended.state == "ok"
    assert ended.text == (
        "vm.zone_reclaim_mode is 0, it was 1; to make it permanent: `vm.zone_reclaim_mode = 0` in "
        "/etc/sysctl.d/90-database.conf"
    )
    assert text_of(context, "vm/zone_reclaim_mode") == "0\n"
    assert ended.undo is not None
    assert ACTION.undo(wanted("vm.zone_reclaim_mode", 0), ended.undo, context, PlainControl()).state == "ok"
    assert text_of(context, "vm/zone_reclaim_mode") == "1\n"


def test_the_preview_shows_the_current_and_the_new_value(context: ActionContext) -> None:
    action_preview = ACTION.preview(wanted("vm/zone_reclaim_mode", "0"), context)
    assert action_preview.exact == f"echo 0 > {context.proc}/sys/vm/zone_reclaim_mode"
    assert action_preview.text.startswith("vm.zone_reclaim_mode is 1 and would be 0 until the next boot")
    assert not action_preview.done
    assert text_of(context, "vm/zone_reclaim_mode") == "1\n"


def test_a_value_already_set_is_reported_as_such(context: ActionContext) -> None:
    assert ACTION.preview(wanted("vm.zone_reclaim_mode", 1), context).done


def test_an_undo_leaves_a_value_that_another_user_changed_since(context: ActionContext) -> None:
    ended = done(context, wanted("vm.zone_reclaim_mode", 0))
    Path(context.proc, "sys/vm/zone_reclaim_mode").write_text("4\n")
    assert ended.undo is not None
    undone = ACTION.undo(wanted("vm.zone_reclaim_mode", 0), ended.undo, context, PlainControl())
    assert undone.state == "failed"
    assert "changed by others since" in undone.text
    assert text_of(context, "vm/zone_reclaim_mode") == "4\n"


def test_a_value_that_changed_after_the_preview_is_not_overwritten(context: ActionContext) -> None:
    settings = wanted("vm.zone_reclaim_mode", 0)
    action_preview = ACTION.preview(settings, context)
    Path(context.proc, "sys/vm/zone_reclaim_mode").write_text("4\n")
    with pytest.raises(Refused, match=r"zone_reclaim_mode is 4 now"):
        ACTION.act(settings, action_preview, context, PlainControl())


def test_the_alias_of_a_setting_is_restored_where_a_zero_cannot_be_written(context: ActionContext) -> None:
    settings = wanted("vm.dirty_bytes", 1 << 28)
    ended = done(context, settings)
    Path(context.proc, "sys/vm/dirty_ratio").write_text("0\n")  # as the kernel does
    assert ended.undo is not None
    ACTION.undo(settings, ended.undo, context, PlainControl())
    assert text_of(context, "vm/dirty_ratio") == "20\n"


def test_spaces_between_numbers_do_not_matter(context: ActionContext) -> None:
    assert ACTION.preview(wanted("vm.lowmem_reserve_ratio", "256 256  32"), context).done


def test_the_selected_word_of_huge_pages_is_its_value(context: ActionContext) -> None:
    action_preview = ACTION.preview(wanted("transparent_hugepage.defrag", "never"), context)
    assert action_preview.values["value"] == "madvise"
    assert action_preview.exact == f"echo never > {context.sys}/kernel/mm/transparent_hugepage/defrag"


def test_a_value_adjusted_by_the_kernel_is_read_back(context: ActionContext) -> None:
    Path(context.sys, "kernel/mm/transparent_hugepage/defrag").chmod(0o600)
    ended = done(context, wanted("transparent_hugepage.defrag", "never"))
    assert ended.state == "ok"  # a plain file holds the word without brackets
    assert ended.values["persistent"] == (
        "`w /sys/kernel/mm/transparent_hugepage/defrag - - - - never` in /etc/tmpfiles.d/90-database.conf"
    )


@pytest.mark.parametrize(
    "key",
    [
        "kernel.core_pattern",
        "fs.suid_dumpable",
        "fs.protected_hardlinks",
        "fs.binfmt_misc.register",
        "net.ipv4.ip_forward",
    ],
)
def test_a_setting_not_on_the_list_is_refused(context: ActionContext, key: str) -> None:
    assert "is not changed here" in refusal(context, key)


@pytest.mark.parametrize("key", ["vm.../../kernel/core_pattern", "vm..x", "../vm.x", "vm", "vm.\nx", "vm. x", ""])
def test_a_name_that_is_a_path_is_refused(context: ActionContext, key: str) -> None:
    assert "is not the name of a kernel setting" in refusal(context, key)


@pytest.mark.parametrize("value", ["", "1; reboot", "$(id)", "1\n2;"])
def test_an_invalid_value_is_refused(context: ActionContext, value: str) -> None:
    assert "is not a value of a kernel setting" in refusal(context, "vm.zone_reclaim_mode", value)


def test_dropping_caches_is_left_to_its_own_action(context: ActionContext) -> None:
    assert refusal(context, "vm.drop_caches", 1) == "vm.drop_caches is not changed here: use the action drop-caches"


def test_a_name_unknown_to_this_kernel_is_refused(context: ActionContext) -> None:
    assert refusal(context, "vm.no_such_thing") == "this kernel has no vm.no_such_thing"


def test_numa_and_files_are_allowed(context: ActionContext) -> None:
    assert find_setting("kernel.numa_balancing", context).path == f"{context.proc}/sys/kernel/numa_balancing"
    assert find_setting("fs.aio-max-nr", context).path == f"{context.proc}/sys/fs/aio-max-nr"


def test_an_unknown_outcome_is_resolved_by_the_value(context: ActionContext) -> None:
    settings = wanted("vm.zone_reclaim_mode", 0)
    action_preview = ACTION.preview(settings, context)
    assert ACTION.settle(settings, action_preview, context).state == "failed"
    done(context, settings)
    settled = ACTION.settle(settings, action_preview, context)
    assert settled.state == "ok"
    assert settled.undo is not None
    assert settled.undo["old"] == "1"
    Path(context.proc, "sys/vm/zone_reclaim_mode").write_text("4\n")
    assert ACTION.settle(settings, action_preview, context).state == "unknown"


def test_settings_of_this_kernel_are_read_as_they_are() -> None:
    action_preview = ACTION.preview(wanted("vm.swappiness", 10), ActionContext())
    assert action_preview.values["value"] == Path("/proc/sys/vm/swappiness").read_text().strip()


def test_the_line_for_the_next_boot_names_its_file() -> None:
    assert persistent_line("vm.swappiness", "1") == "`vm.swappiness = 1` in /etc/sysctl.d/90-database.conf"
