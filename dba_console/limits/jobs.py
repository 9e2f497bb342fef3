"""Figures of the findings about dumps and restores."""

from __future__ import annotations

from msgspec import Struct


class JobLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.jobs]`."""

    late_factor: float = 1.5
    """A job is late when it takes so many times as long as usual, and"""
    late_over_s: float = 600.0
    """takes so much longer than usual."""
    missing_factor: float = 1.5
    """A dump is missing when none has finished for so many of its usual intervals, and for"""
    missing_longest_factor: float = 1.1
    """so many times the longest distance between two that is usual."""
    missing_runs: int = 4
    """With fewer runs known there is no usual interval."""
    missing_interval_s: float = 3600.0
    """Dumps that follow each other faster are taken by hand or by a test."""
    missing_run_s: float = 5.0
    """Dumps shorter than this may begin and end between two looks, so none of them can be said to be missing."""
    missing_given_up: float = 10.0
    """After so many of its intervals it was given up, and is no longer missing."""
