"""Rules about I/O: stalled, a device saturated, or a device slower than is typical for it.

A busy disk alone is not a finding: sessions must wait for it, or a device of the server must behave untypically.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dba_console.core.sanitize import clean
from dba_console.watch.device_history import (
    DeviceHistory,
    awaited_storage,
    count_waiting_sessions,
    device_text,
    first_holding,
)
from dba_console.watch.findings.rule import CausalLink, Family, Rule, RuleContext, Signal, Value
from dba_console.watch.findings.thresholds import Judgement, Ordered, RuleThresholds
from dba_console.watch.io_stall import IoStall, StallLimits, StallMonitor
from dba_console.watch.samples.findings import Severity


class DeviceLimits(RuleThresholds, frozen=True):
    """`[findings.io]`: saturated and slow devices."""

    family = "io"

    saturated_pct: Judgement[float] = 95.0
    """A device is saturated from this percentage of time with a request in flight, %util of `iostat -x`."""
    saturated_clear_pct: Judgement[float] = 80.0
    """The finding about a saturated device clears below this percentage."""
    saturated_s: Judgement[float] = 20.0
    """How long every reading must show the device saturated."""
    saturated_times: Judgement[float] = 2.0
    """Minimum of queue or latency as a multiple of this device's typical one: utilisation alone means nothing on
    parallel devices."""
    slow_times: Judgement[float] = 4.0
    """A device is slow from this multiple of its typical latency; half of it keeps the finding open."""
    slow_ms: Judgement[float] = 20.0
    """Latency below which a rotating disk is never slow, in milliseconds: a seek and a turn take 5 to 13."""
    slow_flash_ms: Judgement[float] = 10.0
    """Latency below which a device that typically answers within 2 ms is never slow."""
    slow_requests_per_s: Judgement[float] = 20.0
    """With fewer requests the average latency is not conclusive."""
    slow_s: Judgement[float] = 30.0
    """How long a device must be slow; a shorter time is a burst: a checkpoint, the start of a dump, a removed file."""
    usual_minutes: Judgement[int] = 3
    """Whole minutes of observation, without the last one, that a typical value needs."""

    @classmethod
    def in_order(cls) -> Ordered:
        return ((cls.saturated_clear_pct, cls.saturated_pct),)


# Devices of the server compared with their typical values: saturated, or slower.

_LATENCY_SERIES = ("io.read_bytes_per_s", "io.write_bytes_per_s")
_FLASH_USUAL_MS = 2.0
"""A rotating disk needs 4 to 8 ms for half a turn and a seek; a device that is typically faster does not rotate."""


def device_saturated(s: RuleContext) -> Iterator[Signal]:
    """A device is busy all the time, and requests queue or take longer than is typical.

    Raised if queue or latency is at least twice the typical value of this device for 20 s. The typical value is the
    median of its minutes, without the last one.
    Utilisation alone means nothing on devices that serve many requests in parallel.
    """
    watch, limits = s.shared(StallMonitor), s.limits.of(DeviceLimits)
    watch.update(s)
    for one in watch.devices.histories.values():
        busy_s = _saturated_s(one, s, limits)
        if busy_s < limits.saturated_s or (worse := _excess_text(one, limits)) is None:
            continue
        util = sum(step.util_pct for step in one.intervals) / len(one.intervals)
        text = f"{device_text(one)} is saturated: {util:.0f} % busy for {busy_s:.0f} s, {worse}"
        yield Signal(
            severity="warning", subject=one.name, text=text, cause=text,
            evidence={"device": one.name, "util_pct": util, "busy_s": busy_s, "queue": _mean_queue(one),
                      "read_await_ms": one.await_ms("read"), "write_await_ms": one.await_ms("write")},
            series=(f"device:{one.name}.util_pct", *_LATENCY_SERIES),
            advice="Check which sessions read and write: the sessions panel by I/O, dumps and vacuum under progress.",
        )  # fmt: skip


def _saturated_s(one: DeviceHistory, s: RuleContext, limits: DeviceLimits) -> float:
    """Return how long it has been busy in every reading; the lower threshold counts once the finding is open."""
    if not one.intervals:
        return 0.0
    clear = s.is_open("device-saturated", one.name)
    if one.intervals[-1].util_pct < (limits.saturated_clear_pct if clear else limits.saturated_pct):
        one.busy_since_us = None
        return 0.0
    if one.busy_since_us is None:
        one.busy_since_us = s.mono_us
    return (s.mono_us - one.busy_since_us) / 1e6


def _mean_queue(one: DeviceHistory) -> float:
    return sum(step.queue for step in one.intervals) / len(one.intervals)


def _excess_text(one: DeviceHistory, limits: DeviceLimits) -> str | None:
    """Return what is above typical, as text; None if nothing is, or typical values are not known."""
    typical, queue = one.queue.value(limits.usual_minutes), _mean_queue(one)
    if typical is not None and queue >= 2 and queue >= limits.saturated_times * max(typical, 1.0):
        return f"{queue:.0f} requests queue, typically {typical:.1f}"
    for kind, typical_await in (("read", one.read_ms), ("write", one.write_ms)):
        took, known = one.await_ms(kind), typical_await.value(limits.usual_minutes)
        if took is not None and known is not None and took >= limits.saturated_times * max(known, 1.0):
            return f"a {kind} takes {took:.0f} ms, typically {known:.1f} ms"
    return None


def io_slow(s: RuleContext) -> Iterator[Signal]:
    """Requests take several times as long as is typical for this device, and sessions wait for them.

    For half a minute, with a session waiting for I/O in every second reading: slow write-back after a checkpoint harms
    nobody.
    """
    watch, limits = s.shared(StallMonitor), s.limits.of(DeviceLimits)
    watch.update(s)
    if s.is_open("io-stalled"):
        return  # which says more
    memo = s.memo("io-slow")
    for one in watch.devices.histories.values():
        for kind, typical_await in (("read", one.read_ms), ("write", one.write_ms)):
            if f"{one.name} {kind}" not in memo and one.last_await_ms(kind) < limits.slow_flash_ms:
                continue
            signal = _slow_signal(s, one, kind, typical_await.value(limits.usual_minutes), memo)
            if signal is not None:
                yield signal
                break


def _slow_signal(
    s: RuleContext, one: DeviceHistory, kind: str, typical: float | None, memo: dict[str, Any]
) -> Signal | None:
    limits, key = s.limits.of(DeviceLimits), f"{one.name} {kind}"
    took = one.await_ms(kind)
    if typical is None or took is None:
        return None
    floor = limits.slow_flash_ms if typical <= _FLASH_USUAL_MS else limits.slow_ms
    per_s = one.per_s(f"{kind}s")
    times = limits.slow_times / 2 if s.is_open("io-slow", one.name) else limits.slow_times
    if took < max(floor, times * typical) or per_s < limits.slow_requests_per_s:
        memo.pop(key, None)
        return None
    waited: list[bool] = memo.setdefault(key, [])
    waited.append(_sessions_wait(s))
    del waited[: -int(limits.slow_s)]
    if len(waited) < limits.slow_s or sum(waited) * 2 < len(waited):
        return None
    factor = took / max(typical, 0.1)
    text = (
        f"{device_text(one)} is slow: a {kind} takes {took:.0f} ms, {factor:.0f} times the typical "
        f"({typical:.1f} ms), at {per_s:.0f} {kind}s/s"
    )
    return Signal(
        severity="warning", subject=one.name, text=text, effect=f"{device_text(one)} is slow",
        evidence={"device": one.name, f"{kind}_await_ms": took, f"usual_{kind}_await_ms": typical,
                  f"{kind}s_per_s": per_s},
        series=(f"device:{one.name}.util_pct", *_LATENCY_SERIES),
        advice="Compare with the same hour of another day; check the storage: RAID rebuild, battery, other hosts.",
    )  # fmt: skip


def _sessions_wait(s: RuleContext) -> bool:
    sessions = s.facts.sessions
    return sessions is not None and count_waiting_sessions(sessions.rows, sessions.now_us, 0.0) > 0


_SERIES = ("io.psi_full_pct", "io.iowait_pct", "io.procs_blocked", "io.read_bytes_per_s", "io.write_bytes_per_s")
_PARTS = ("host.pressure", "host.cpu", "host.disks", "host.processes")


def io_stalled(s: RuleContext) -> Iterator[Signal]:
    """I/O is stalled, and sessions or processes of the server wait for it.

    A warning if a third of the last ten seconds was lost and two ordinary statements have waited for a second, if
    server processes hang in the kernel for three seconds without progress, or if a device of the server has requests
    in flight and completes none. Critical if I/O has stopped (processes hang and no write was completed, or a device
    does not answer while sessions wait) or 60 % was lost with five or more sessions waiting. Dumps, loads, index
    builds and vacuum always wait for I/O and do not count; nor does a disk that holds nothing of the server.
    """
    watch = s.shared(StallMonitor)
    stall = watch.update(s)
    memo, is_open = s.memo("io-stalled"), s.is_open("io-stalled")
    severity = stall_severity(stall, s.limits.of(StallLimits), is_open, is_open and memo.get("critical", False))
    if severity is None:
        return
    memo["critical"] = severity == "critical"
    where = _device_text(s, watch, stall)
    signs = list(_sign_texts(stall, s.limits.of(StallLimits)))
    signs_text = "; ".join(signs) if signs else "no I/O completes"
    waiting = f", {stall.waiting} sessions wait for it" if stall.waiting else ""
    text = f"I/O is stalled: {signs_text}{waiting}" + (f"; on {where}" if where and where not in signs_text else "")
    evidence: dict[str, Value] = {
        "stalled_pct": stall.share_pct,
        "waiting_sessions": stall.waiting,
        "stuck_processes": len(stall.hung),
        "stuck_s": stall.hung_s if stall.hung else None,
        "unanswered_device": None if stall.unresponsive is None else clean(stall.unresponsive.name),
        "unanswered_s": stall.unresponsive_s if stall.unresponsive is not None else None,
        "in_flight": None if stall.unresponsive is None or stall.unresponsive.disk is None
        else stall.unresponsive.disk.in_flight,
        "procs_blocked": stall.blocked,
        "on": where,
    }  # fmt: skip
    yield Signal(
        severity=severity,
        text=text,
        effect=text,
        cause=f"queries wait for I/O: {signs[0] if signs else signs_text}",
        evidence={name: value for name, value in evidence.items() if value is not None},
        series=_SERIES,
        advice="Check the memory panel, then the storage: dmesg, multipath, the array's own log.",
    )


def stall_severity(
    stall: IoStall, limits: StallLimits, is_open: bool = False, was_critical: bool = False
) -> Severity | None:
    """Return the severity; None if I/O completes, or nothing is known to wait for it.

    Critical is a stop: processes hang on a device that writes nothing, a device does not answer while sessions wait,
    or most of the last ten seconds were lost while several sessions waited for more than a second each. It stays
    critical until the share falls below the warning threshold.
    """
    share = stall.share_pct or 0.0
    stopped = stall.frozen or (stall.unresponsive is not None and stall.affected > 0)
    if stopped or (share >= limits.critical_pct and stall.affected_long >= limits.critical_sessions):
        return "critical"
    if was_critical and share >= limits.stalled_pct and stall.affected >= limits.waiting_sessions:
        return "critical"
    lasting = share >= (limits.stalled_clear_pct if is_open else limits.stalled_pct)
    if stall.affected >= limits.waiting_sessions and (lasting or stall.blocked is not None):
        return "warning"
    if stall.unresponsive is not None or len(stall.hung) >= limits.stuck_processes:
        return "warning"
    return None


def _sign_texts(stall: IoStall, limits: StallLimits) -> Iterator[str]:
    share = stall.share_pct or 0.0
    if share >= limits.stalled_clear_pct:
        yield f"{share:.0f} % of the last {limits.window_s:.0f} s fully stalled"
    if stall.unresponsive is not None and stall.unresponsive.disk is not None:
        yield (
            f"{device_text(stall.unresponsive)} has {stall.unresponsive.disk.in_flight} requests in flight and "
            f"completed "
            f"none for {stall.unresponsive_s:.0f} s"
        )
    if stall.hung:
        processes = "server process hangs" if len(stall.hung) == 1 else "server processes hang"
        yield f"{len(stall.hung)} {processes} in the kernel, for {stall.hung_s:.0f} s"
    if stall.blocked is not None:
        yield f"{stall.blocked} tasks blocked for {stall.blocked_s:.0f} s"


def _device_text(s: RuleContext, watch: StallMonitor, stall: IoStall) -> str | None:
    """Return the affected device: the unresponsive one, the one that processes hang on, or the busiest."""
    devices = watch.devices
    found = stall.unresponsive
    if found is None and stall.hung:
        direct = devices.with_file_system
        found = first_holding(direct, awaited_storage(s, stall.hung)) or (direct[0] if len(direct) == 1 else None)
    if found is None and not stall.hung:
        found = devices.busiest()
    return None if found is None else device_text(found)


_RULES = (
    Rule(
        name="io-stalled",
        title="I/O is stalled and sessions of the server wait for it",
        parts=_PARTS,
        check=io_stalled,
        warm_up_s=10.0,
        clear_after_s=10,
        settings=(
            StallLimits.stalled_pct,
            StallLimits.critical_pct,
            StallLimits.window_s,
            StallLimits.waiting_sessions,
            StallLimits.critical_sessions,
            StallLimits.stuck_processes,
            StallLimits.stuck_s,
            StallLimits.unanswered_s,
            StallLimits.blocked_processes,
            StallLimits.blocked_s,
        ),
        source="Documentation/accounting/psi.rst (full: all non-idle tasks stalled), Documentation/admin-guide/"
        "iostats.rst (field 9, in flight), proc_pid_stat(5) (state D); an incident: 28 s without one block",
    ),
    Rule(
        name="device-saturated",
        title="A device of the server is saturated",
        parts=("host.disks",),
        check=device_saturated,
        warm_up_s=180.0,
        settings=(
            DeviceLimits.saturated_pct,
            DeviceLimits.saturated_s,
            DeviceLimits.saturated_times,
            DeviceLimits.usual_minutes,
        ),
        source="iostat(1): %util does not reflect the limits of devices that serve requests in parallel, "
        "so queue or latency must also be above typical",
    ),
    Rule(
        name="io-slow",
        title="A device of the server is slower than typical",
        parts=("host.disks",),
        check=io_slow,
        warm_up_s=210.0,
        settings=(
            DeviceLimits.slow_times,
            DeviceLimits.slow_ms,
            DeviceLimits.slow_flash_ms,
            DeviceLimits.slow_requests_per_s,
            DeviceLimits.slow_s,
        ),
        source="this host's own medians; a seek and half a turn of a disk of 7,200 to 15,000 rpm are 5 to 13 ms",
    ),
)

FAMILY = Family(
    "I/O",
    "io",
    _RULES,
    thresholds=(StallLimits, DeviceLimits),
    links=(
        CausalLink("io-stalled", "reclaim-stall", ", while "),
        CausalLink("io-stalled", "device-saturated"),
        CausalLink("io-slow", "io-stalled"),
        CausalLink("io-slow", "device-saturated"),
    ),
)
