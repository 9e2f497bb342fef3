"""/proc/pressure: pressure stall information (Documentation/accounting/psi.rst, kernels from 4.20)."""

from __future__ import annotations

from dba_console.samples.host import PressureStall


def parse_stalls(data: bytes) -> tuple[PressureStall | None, PressureStall | None]:
    """The `some` and `full` lines of one file; None for a line the kernel does not write (cpu has no full before 5.13).

    >>> parse_stalls(b"some avg10=1.50 avg60=0.20 avg300=0.00 total=42\\n")
    (PressureStall(avg10=1.5, avg60=0.2, avg300=0.0, total_us=42), None)
    """
    found: dict[bytes, PressureStall] = {}
    for line in data.splitlines():
        words = line.split()
        if len(words) == 5:
            avg10, avg60, avg300, total = (word.partition(b"=")[2] for word in words[1:])
            found[words[0]] = PressureStall(float(avg10), float(avg60), float(avg300), int(total))
    return found.get(b"some"), found.get(b"full")
