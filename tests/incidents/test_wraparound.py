"""A cluster a few million transaction ids before the stop is named at first sight, and autovacuum mends nothing."""

from __future__ import annotations

from pathlib import Path

from dba_console.demo.incidents.wraparound import LEFT, SLOT, STOP_BEFORE_WRAP, WRAP_AGE, Wraparound
from dba_console.demo.load import LoadPlan
from dba_console.demo.practice import PracticeGround
from tests.incidents.rehearsing import assert_seen, rehearse

AGE = WRAP_AGE - STOP_BEFORE_WRAP - LEFT - 100_000
"""Up to the slot's own horizon VACUUM does freeze: a few hundred ids less than where the cluster was put."""
SMALL = LoadPlan(clients=1, rate_per_s=5, idle=2, forgotten=False, scale=1)


def test_the_last_million_transaction_ids_are_named_by_the_first_samples(tmp_path: Path) -> None:
    with rehearse("wraparound", tmp_path) as aged:
        verdict = aged.until_raised()
        frame = aged.until_frame(lambda frame: frame.safety.xid_age, what="the age")
        assert AGE < (frame.safety.xid_age or 0) < WRAP_AGE - STOP_BEFORE_WRAP
        assert {row.database for row in frame.safety.databases} >= {"template0", "shop"}
        assert frame.safety.horizon[0].who == SLOT
        assert_seen(verdict)


def test_once_the_slot_is_dropped_vacuum_mends_it() -> None:
    incident = Wraparound()
    with PracticeGround(SMALL, incident=incident) as ground:
        age = "select age(datfrozenxid) from pg_database where datname = 'shop'"
        ground.cluster.psql("vacuum", dbname="shop")
        assert int(ground.cluster.psql(age)) > AGE
        incident.end(ground)
        ground.cluster.psql("vacuum", dbname="shop")
        assert int(ground.cluster.psql(age)) < WRAP_AGE // 2
