"""The action sysctl: change a kernel setting of memory management until the next boot, and keep its old value.

Only settings of memory management, NUMA and files: not every change that root could make.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from msgspec import Struct

from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.core.errors import Refused
from dba_console.watch.probes.host.kernel_files import printable, read_file

_NAME = re.compile(r"[a-z][a-z0-9_-]*(\.[A-Za-z0-9_-]+)+")
_VALUE = re.compile(r"[A-Za-z0-9_+.-]+( [A-Za-z0-9_+.-]+)*")
_ALLOWED = re.compile(r"vm\..+|kernel\.numa.+|fs\..+|transparent_hugepage\.(enabled|defrag)")
_DENIED = {
    "vm.drop_caches": "use the action drop-caches",
    "vm.compact_memory": "it compacts all memory at once, and allocations stall meanwhile",
    "vm.panic_on_oom": "it can make the host panic",
    "vm.mmap_min_addr": "it protects the kernel",
    "vm.unprivileged_userfaultfd": "it protects the kernel",
    "vm.memfd_noexec": "it protects the kernel",
    "vm.mmap_rnd_bits": "it protects processes",
    "vm.mmap_rnd_compat_bits": "it protects processes",
    "fs.suid_dumpable": "it protects processes",
}
_DENIED_PREFIXES = ("fs.binfmt_misc.", "fs.protected_", "fs.verity.", "fs.xfs.")
_ALIASES = {
    "vm.dirty_bytes": "vm.dirty_ratio",
    "vm.dirty_ratio": "vm.dirty_bytes",
    "vm.dirty_background_bytes": "vm.dirty_background_ratio",
    "vm.dirty_background_ratio": "vm.dirty_background_bytes",
    "vm.overcommit_kbytes": "vm.overcommit_ratio",
    "vm.overcommit_ratio": "vm.overcommit_kbytes",
}
"""Two names of one setting: writing one sets the other to 0, and writing the 0 back does not undo that."""
_THP_PREFIX = "transparent_hugepage."


class SysctlSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of `sysctl`."""

    key: str
    """Name with dots, as `vm.zone_reclaim_mode`; or transparent_hugepage.enabled, transparent_hugepage.defrag."""
    value: str | int
    """New value."""


@dataclass(frozen=True, slots=True)
class KernelSetting:
    """A setting that may be changed."""

    name: str
    path: str

    @property
    def is_thp(self) -> bool:
        return self.name.startswith(_THP_PREFIX)


class Sysctl(Action):
    name: ClassVar[str] = "sysctl"
    summary: ClassVar[str] = (
        "Changes a kernel setting of memory management (vm.*, kernel.numa*, fs.*, transparent_hugepage.*) until the "
        "next boot; reads it back, keeps the old value for the undo, and shows the line that makes it permanent."
    )
    Settings: ClassVar[type[Struct]] = SysctlSettings
    needs_server: ClassVar[bool] = False
    needs_root: ClassVar[bool] = True
    undoable: ClassVar[bool] = True

    def preview(self, settings: SysctlSettings, context: ActionContext) -> ActionPreview:
        """Refuses names outside of the list, names this kernel does not have, and unwritable files."""
        try:
            key, wanted = find_setting(settings.key, context), _parse_value(settings.value)
            now = _read(key)
        except Refused as refused:
            return ActionPreview(text=refused.message, exact="", refusal=refused.message, hint=refused.hint)
        twin = _read_alias(key, context)
        values = {"key": key.name, "value": now, "wanted": wanted} | ({"twin": twin} if twin else {})
        text = (
            f"{key.name} is {now} and would be {wanted} until the next boot; permanent: "
            f"{persistent_line(key.name, wanted)}"
        )
        preview = ActionPreview(text=text, exact=f"echo {wanted} > {key.path}", values=values, done=now == wanted)
        return refuse_unwritable(preview, key.path, context)

    def act(
        self, settings: SysctlSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        """Raises Refused if the value has changed since the preview."""
        key, wanted = find_setting(settings.key, context), _parse_value(settings.value)
        old = _read(key)
        if old != preview.values.get("value"):
            raise Refused(
                f"{key.name} is {old} now; it was {preview.values.get('value')} in the preview",
                hint="preview again",
            )
        undo = {"key": key.name, "old": old, "new": wanted, "twin": _read_alias(key, context)}
        if (why := _write(key, wanted)) is not None:
            return ActionResult(state="failed", text=why)
        now = _read(key)
        values = {"key": key.name, "value": now, "persistent": persistent_line(key.name, wanted)}
        if now != wanted:
            text = f"the kernel changed {key.name} = {wanted} to {now}; it was {old}"
            return ActionResult(state="failed", text=text, values=values, undo=undo | {"new": now})
        text = f"{key.name} is {now}, it was {old}; to make it permanent: {values['persistent']}"
        return ActionResult(state="ok", text=text, values=values, undo=undo)

    def settle(self, settings: SysctlSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        """Uses the current value."""
        try:
            key, wanted = find_setting(settings.key, context), _parse_value(settings.value)
            now = _read(key)
        except Refused as refused:
            return ActionResult(state="unknown", text=refused.message)
        old = preview.values.get("value")
        if now == wanted:
            undo = {"key": key.name, "old": old, "new": wanted, "twin": preview.values.get("twin")}
            return ActionResult(state="ok", text=f"{key.name} is {now}", values={"value": now}, undo=undo)
        if now == old:
            return ActionResult(state="failed", text=f"{key.name} is {now} as before", values={"value": now})
        return ActionResult(state="unknown", text=f"{key.name} is {now}: neither the old nor the new value")

    def undo(
        self, settings: SysctlSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        """Restores the old value, unless it was changed by others since."""
        try:
            key = find_setting(str(data["key"]), context)
            now = _read(key)
            if now != data["new"]:
                text = f"{key.name} is {now}, not {data['new']}: changed by others since, so it is not reverted"
                return ActionResult(state="failed", text=text, values={"value": now})
            twin = data.get("twin")
            target, value = key, str(data["old"])
            if twin and value == "0" and twin["value"] != "0":
                target, value = find_setting(str(twin["key"]), context), str(twin["value"])
            if (why := _write(target, value)) is not None:
                return ActionResult(state="failed", text=why)
            now = _read(key)
        except Refused as refused:
            return ActionResult(state="failed", text=refused.message)
        state = "ok" if now == str(data["old"]) else "failed"
        return ActionResult(state=state, text=f"{key.name} is {now} again" if state == "ok" else f"{key.name} is {now}",
                    values={"value": now})  # fmt: skip


def refuse_unwritable(preview: ActionPreview, path: str, context: ActionContext) -> ActionPreview:
    """Return the preview of a write to a kernel file: refused if the server may run elsewhere or it is not writable."""
    if not context.server_is_local:
        refusal, hint = "the server is not proven to run on this host", "run the console on the server's host"
    elif not os.access(path, os.W_OK):
        refusal, hint = f"{path} cannot be written", "run it as root, on the host, not in a container"
    else:
        return preview
    return ActionPreview(text=preview.text, exact=preview.exact, values=preview.values, refusal=refusal, hint=hint)


def write_kernel_file(path: str, value: str) -> None:
    """Write one line. Raises OSError, also if the kernel rejects the value."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode() + b"\n")
    finally:
        os.close(fd)


def find_setting(name: str, context: ActionContext) -> KernelSetting:
    """Return the setting of this name, with dots or slashes. Raises Refused if it may not be changed or is missing."""
    dotted = name.strip().replace("/", ".")
    if _NAME.fullmatch(dotted) is None:
        raise Refused(f"{printable(name)!r} is not the name of a kernel setting", hint="as in vm.zone_reclaim_mode")
    if dotted in _DENIED:
        raise Refused(f"{dotted} is not changed here: {_DENIED[dotted]}")
    if _ALLOWED.fullmatch(dotted) is None or dotted.startswith(_DENIED_PREFIXES):
        raise Refused(
            f"{dotted} is not changed here",
            hint="allowed: vm.*, kernel.numa*, fs.*, transparent_hugepage.*, except those that protect the kernel",
        )
    if dotted.startswith(_THP_PREFIX):
        path = f"{context.sys}/kernel/mm/transparent_hugepage/{dotted.removeprefix(_THP_PREFIX)}"
    else:
        path = f"{context.proc}/sys/{dotted.replace('.', '/')}"
    if not os.path.isfile(path):
        raise Refused(f"this kernel has no {dotted}")
    return KernelSetting(dotted, path)


def persistent_line(name: str, value: str) -> str:
    """Return the line that makes a setting permanent, with its file."""
    if name.startswith(_THP_PREFIX):
        what = name.removeprefix(_THP_PREFIX)
        line = f"w /sys/kernel/mm/transparent_hugepage/{what} - - - - {value}"
        return f"`{line}` in /etc/tmpfiles.d/90-database.conf"
    return f"`{name} = {value}` in /etc/sysctl.d/90-database.conf"


def _parse_value(value: str | int) -> str:
    text = " ".join(str(value).split())
    if _VALUE.fullmatch(text) is None:
        raise Refused(
            f"{printable(str(value))!r} is not a value of a kernel setting", hint="use a number, numbers or a word"
        )
    return text


def _read(key: KernelSetting) -> str:
    """Return the current value, single-spaced; of a choice, the chosen word. Raises Refused if it cannot be read."""
    try:
        text = " ".join(printable(read_file(key.path)).split())
    except OSError as error:
        raise Refused(f"{key.path} cannot be read: {error.strerror}", hint="run it as root") from error
    chosen = re.search(r"\[(\S+)\]", text) if key.is_thp else None
    return chosen[1] if chosen else text


def _write(key: KernelSetting, value: str) -> str | None:
    """Return why the kernel rejected the value; None: written."""
    try:
        write_kernel_file(key.path, value)
    except OSError as error:
        return f"the kernel rejected {key.name} = {value}: {error.strerror}"
    return None


def _read_alias(key: KernelSetting, context: ActionContext) -> dict[str, str] | None:
    name = _ALIASES.get(key.name)
    if name is None:
        return None
    try:
        return {"key": name, "value": _read(find_setting(name, context))}
    except Refused:
        return None
