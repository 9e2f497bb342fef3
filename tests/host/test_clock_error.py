"""The kernel's own bound of its clock's error, by another call of the C library."""

from __future__ import annotations

import ctypes

from dba_console.watch.probes.host.kernel_counters import read_clock_error_us

TIME_ERROR = 5
MARGIN_US = 100_000
"""The kernel raises the error by 500 µs a second."""


class NtpTimeval(ctypes.Structure):
    _fields_ = (
        ("seconds", ctypes.c_long),
        ("microseconds", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("rest", ctypes.c_byte * 256),
    )


def test_the_error_of_the_clock_is_that_of_ntp_gettime() -> None:
    known = NtpTimeval()
    state = ctypes.CDLL(None).ntp_gettime(ctypes.byref(known))
    found = read_clock_error_us()
    assert (found is None) == (state == TIME_ERROR)
    assert found is None or abs(found - known.maxerror) <= MARGIN_US
