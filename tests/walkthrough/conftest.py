"""Times of day in golden text are those of one zone, wherever the tests run."""

from __future__ import annotations

from tests.panels.conftest import *  # noqa: F403
