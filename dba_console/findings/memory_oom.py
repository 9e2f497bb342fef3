"""Processes the kernel killed for lack of memory."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.findings.time_phrases import past_time_text
from dba_console.samples import host


def oom_kill(s: RuleContext) -> Iterator[Signal]:
    """The kernel killed a process for lack of memory, its own or that of a control group; told for a quarter of an
    hour.

    Counted by oom_kill of /proc/vmstat (4.13 and later), for the whole host: whether it was one of PostgreSQL is told
    by `server-restarted`, for the postmaster begins anew when one of its backends is killed (documentation, 18.4.4).
    """
    memo = s.memo("oom-kill")
    vmstat = s.picture.now("host.vmstat", host.VmStat) if "host.vmstat" in s.read else None
    if vmstat is not None and vmstat.oom_kill is not None:
        before = memo.get("count", vmstat.oom_kill) if memo.get("boot") == s.picture.boot else vmstat.oom_kill
        memo["count"], memo["boot"] = vmstat.oom_kill, s.picture.boot
        if vmstat.oom_kill > before:
            still_shown = "mono_us" in memo and s.mono_us - memo["mono_us"] < s.limits.memory.oom_told_s * 1e6
            memo["killed"] = vmstat.oom_kill - before + (memo["killed"] if still_shown else 0)
            memo["first_us"] = memo["first_us"] if still_shown else s.now_us
            memo["mono_us"], memo["at_us"] = s.mono_us, s.now_us
    if "mono_us" not in memo or s.mono_us - memo["mono_us"] >= s.limits.memory.oom_told_s * 1e6:
        return
    count = memo["killed"]
    what = "a process" if count == 1 else f"{count} processes"
    text = f"The kernel killed {what} for lack of memory, {'' if count == 1 else 'the last '}"
    yield Signal(
        severity="critical",
        text=text + past_time_text(memo["at_us"], s.now_us),
        cause=f"the kernel killed {what} for lack of memory",
        evidence={"oom_kills": count},
        series=("memory.available_bytes", "memory.free_bytes", "memory.swap_used_bytes"),
        since_us=memo["first_us"],
        advice='dmesg ("Out of memory", "oom-kill") names it, its size and the control group. Then work_mem times '
        "sessions, shared_buffers, and vm.overcommit_memory = 2 (documentation, Linux Memory Overcommit).",
    )
