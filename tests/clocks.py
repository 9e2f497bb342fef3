"""Time held in hand, so that no test waits for it."""

from __future__ import annotations

from tests.build import NOW_US


class HeldClock:
    """A clock that stands still until it is moved."""

    def __init__(self, wall_us: int = NOW_US, mono_us: int = 1_000_000_000) -> None:
        self.wall, self.mono = wall_us, mono_us

    def wall_us(self) -> int:
        return self.wall

    def mono_us(self) -> int:
        return self.mono

    def advance(self, seconds: float) -> None:
        self.wall += int(seconds * 1e6)
        self.mono += int(seconds * 1e6)
