"""Every shipped document says on which servers it was walked, and where its claims are from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RUNBOOKS = sorted((Path(__file__).resolve().parents[3] / "runbooks").glob("*.md"))


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_a_document_ends_with_the_servers_it_was_tested_on_and_its_sources(path: Path) -> None:
    _, _, last = path.read_text().rpartition("\n## ")
    title, _, section = last.partition("\n")
    assert title == "Sources", "its last section"
    assert re.search(r"^Walked on PostgreSQL \d+", section, re.MULTILINE), "the versions"
    assert re.search(r"^- \S", section, re.MULTILINE), "a line for each source"
