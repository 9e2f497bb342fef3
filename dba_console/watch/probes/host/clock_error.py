"""How far the host's clock may be off, as the kernel's clock discipline knows it: adjtimex(2)."""

from __future__ import annotations

import ctypes

_UNSYNCHRONIZED = 0x0040
"""STA_UNSYNC of linux/timex.h."""


class _Timex(ctypes.Structure):
    """The beginning of struct timex; the rest is only padding here."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 512),
    )


_adjtimex = getattr(ctypes.CDLL(None, use_errno=True), "adjtimex", None)


def read_clock_error_us() -> int | None:
    """Return the maximum error of the clock against UTC in microseconds; None if it is not synchronized, or unknown."""
    timex = _Timex()
    if _adjtimex is None or _adjtimex(ctypes.byref(timex)) < 0 or timex.status & _UNSYNCHRONIZED:
        return None
    return int(timex.maxerror)
