"""Agents that get into trouble are kept apart as healthy ones are."""

from __future__ import annotations

from tests.agent.conftest import own_directories

__all__ = ["own_directories"]
