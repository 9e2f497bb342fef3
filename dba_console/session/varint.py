"""Whole numbers in as few bytes as they need: seven bits a byte, lowest first (LEB128), signs folded in (zigzag)."""

from __future__ import annotations


def put(buffer: bytearray, number: int) -> None:
    """Append a number that is not negative."""
    while number > 127:
        buffer.append(number & 127 | 128)
        number >>= 7
    buffer.append(number)


def put_signed(buffer: bytearray, number: int) -> None:
    """Append a number of either sign; small magnitudes take one byte.

    >>> out = bytearray(); put_signed(out, -3); put_signed(out, 200); take_signed(out, 0), take_signed(out, 1)
    ((-3, 1), (200, 3))
    """
    put(buffer, number << 1 if number >= 0 else (-number << 1) - 1)


def take(buffer: bytes | bytearray, at: int) -> tuple[int, int]:
    """The number at `at` and the place after it. Raises IndexError where the buffer ends first."""
    byte = buffer[at]
    at += 1
    if byte < 128:
        return byte, at
    number, shift = byte & 127, 7
    while True:
        byte = buffer[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


def take_signed(buffer: bytes | bytearray, at: int) -> tuple[int, int]:
    """The signed number at `at` and the place after it. Raises IndexError where the buffer ends first."""
    folded, at = take(buffer, at)
    return (folded >> 1 if not folded & 1 else -((folded + 1) >> 1)), at
