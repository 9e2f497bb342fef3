"""Devices of the server against their own usual: at their limit, or slower than they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dba_console.findings.io_devices import DeviceHistory, device_text
from dba_console.findings.io_stall import stall_monitor
from dba_console.findings.io_waits import count_waiting_sessions
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.limits.io import IoLimits

_LATENCY_SERIES = ("io.read_bytes_per_s", "io.write_bytes_per_s")
_FLASH_USUAL_MS = 2.0
"""A disk that turns needs 4 to 8 ms for half a turn and a seek; what usually answers faster has no such parts."""


def device_saturated(s: RuleContext) -> Iterator[Signal]:
    """A device is busy all the time, and requests queue or take longer than they usually do.

    For 20 s, at twice the usual of this device at least; what is usual is the median of its minutes, the last one left
    out. Utilisation alone means nothing on devices that serve many requests at once.
    """
    watch, limits = stall_monitor(s), s.limits.io
    watch.update(s)
    for one in watch.devices.histories.values():
        busy_s = _saturated_s(one, s, limits)
        if busy_s < limits.saturated_s or (worse := _excess_text(one, limits)) is None:
            continue
        util = sum(step.util_pct for step in one.intervals) / len(one.intervals)
        text = f"{device_text(one)} is at its limit: {util:.0f} % busy for {busy_s:.0f} s, {worse}"
        yield Signal(
            severity="warning", subject=one.name, text=text, cause=text,
            evidence={"device": one.name, "util_pct": util, "busy_s": busy_s, "queue": _mean_queue(one),
                      "read_await_ms": one.await_ms("read"), "write_await_ms": one.await_ms("write")},
            series=(f"device:{one.name}.util_pct", *_LATENCY_SERIES),
            advice="See who reads and writes: the sessions panel by I/O, dumps and vacuum under progress.",
        )  # fmt: skip


def _saturated_s(one: DeviceHistory, s: RuleContext, limits: IoLimits) -> float:
    """How long it has been busy in every reading; the lower figure counts once the finding is open."""
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


def _excess_text(one: DeviceHistory, limits: IoLimits) -> str | None:
    """What is above the usual, in words; None where nothing is, or what is usual is not known."""
    usual, queue = one.queue.value(limits.usual_minutes), _mean_queue(one)
    if usual is not None and queue >= 2 and queue >= limits.saturated_times * max(usual, 1.0):
        return f"{queue:.0f} requests queue, usually {usual:.1f}"
    for kind, course in (("read", one.read_ms), ("write", one.write_ms)):
        took, known = one.await_ms(kind), course.value(limits.usual_minutes)
        if took is not None and known is not None and took >= limits.saturated_times * max(known, 1.0):
            return f"a {kind} takes {took:.0f} ms, usually {known:.1f} ms"
    return None


def io_slow(s: RuleContext) -> Iterator[Signal]:
    """Requests take several times as long as they usually do on this device, and sessions wait for them.

    For half a minute, with a session that waits for I/O in every second reading: write-back after a checkpoint is slow
    and harms nobody.
    """
    watch, limits = stall_monitor(s), s.limits.io
    watch.update(s)
    if s.is_open("io-stalled"):
        return  # that says more
    memo = s.memo("io-slow")
    for one in watch.devices.histories.values():
        for kind, course in (("read", one.read_ms), ("write", one.write_ms)):
            if f"{one.name} {kind}" not in memo and one.last_await_ms(kind) < limits.slow_flash_ms:
                continue
            signal = _slow_signal(s, one, kind, course.value(limits.usual_minutes), memo)
            if signal is not None:
                yield signal
                break


def _slow_signal(
    s: RuleContext, one: DeviceHistory, kind: str, usual: float | None, memo: dict[str, Any]
) -> Signal | None:
    limits, key = s.limits.io, f"{one.name} {kind}"
    took = one.await_ms(kind)
    if usual is None or took is None:
        return None
    floor = limits.slow_flash_ms if usual <= _FLASH_USUAL_MS else limits.slow_ms
    per_s = one.per_s(f"{kind}s")
    times = limits.slow_times / 2 if s.is_open("io-slow", one.name) else limits.slow_times
    if took < max(floor, times * usual) or per_s < limits.slow_requests_per_s:
        memo.pop(key, None)
        return None
    waited: list[bool] = memo.setdefault(key, [])
    waited.append(_sessions_wait(s))
    del waited[: -int(limits.slow_s)]
    if len(waited) < limits.slow_s or sum(waited) * 2 < len(waited):
        return None
    factor = took / max(usual, 0.1)
    text = (
        f"{device_text(one)} is slow: a {kind} takes {took:.0f} ms, {factor:.0f} times as long as usual "
        f"({usual:.1f} ms), at {per_s:.0f} {kind}s/s"
    )
    return Signal(
        severity="warning", subject=one.name, text=text, effect=f"{device_text(one)} is slow",
        evidence={"device": one.name, f"{kind}_await_ms": took, f"usual_{kind}_await_ms": usual,
                  f"{kind}s_per_s": per_s},
        series=(f"device:{one.name}.util_pct", *_LATENCY_SERIES),
        advice="Compare with the same hour of another day; then ask the storage: rebuild, cache battery, neighbours.",
    )  # fmt: skip


def _sessions_wait(s: RuleContext) -> bool:
    sessions = s.facts.sessions
    return sessions is not None and count_waiting_sessions(sessions.rows, sessions.now_us, 0.0) > 0
