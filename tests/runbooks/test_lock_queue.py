"""The runbook `lock-queue`, walked on a queue behind a migration behind a dump."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runbooks.walking import SMALL, Scene, incident

BOOK = "lock-queue"
TOLD = "so-that-it-stays-away=told the owner, ticket 4711"
PARTS = (
    "select string_agg(application_name, ',') from pg_stat_activity where application_name in ('pg_dump', 'migration')"
)


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with incident(BOOK, SMALL) as made:
        made.calm()
        yield made


def test_the_statement_in_the_middle_gives_way_and_the_queue_flows_again(scene: Scene) -> None:
    scene.cause()
    scene.raised(BOOK)
    walk = scene.headless(BOOK, "what-to-stop=ddl", "cancel-the-statement-in-the-middle=1", TOLD)
    assert walk.code == 0, walk.text
    scene.cleared(BOOK)
