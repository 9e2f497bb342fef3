"""All rules about the safety of data, and which of them explains which."""

from __future__ import annotations

from dba_console.watch.findings.rule import CausalLink, Family, Signal, same_evidence
from dba_console.watch.safety.autovacuum_rules import (
    AUTOVACUUM_RULES,
    VACUUM_RULES,
    AutovacuumLimits,
    WraparoundVacuumLimits,
)
from dba_console.watch.safety.catalog_rules import CATALOG_RULES, CatalogLimits
from dba_console.watch.safety.checksum_rules import CHECKSUM_RULES, ChecksumLimits
from dba_console.watch.safety.horizon_rules import HORIZON_RULES, HorizonLimits
from dba_console.watch.safety.wraparound_rules import WRAPAROUND_RULES, WraparoundLimits


def _explains_most_of_age(effect: Signal, cause: Signal) -> bool:
    """Whether the held-back part is most of the age: freezing everything else would not help."""
    age, held = effect.evidence.get("xid_age"), cause.evidence.get("holder_xid_age")
    return isinstance(age, int) and isinstance(held, int) and 2 * held >= age


def _vacuums_without_effect(effect: Signal, cause: Signal) -> bool:
    """Whether the table is vacuumed and the rows remain: an old snapshot still needs them."""
    vacuums = effect.evidence.get("vacuums")
    return isinstance(vacuums, int) and vacuums > 0


def _no_vacuum_came(effect: Signal, cause: Signal) -> bool:
    """Whether no vacuum ran although the table allows it."""
    return effect.evidence.get("vacuums") == 0 and effect.evidence.get("autovacuum_enabled") is True


FAMILY = Family(
    "Checksums, transaction ids, autovacuum, catalogs",
    "safety",
    (
        *CHECKSUM_RULES,
        *WRAPAROUND_RULES,
        *HORIZON_RULES,
        *VACUUM_RULES,
        *AUTOVACUUM_RULES,
        *CATALOG_RULES,
    ),
    thresholds=(
        ChecksumLimits,
        WraparoundLimits,
        HorizonLimits,
        WraparoundVacuumLimits,
        CatalogLimits,
        AutovacuumLimits,
    ),
    links=(
        CausalLink("xid-wraparound", "horizon-held", applies=_explains_most_of_age, keeps_name=True),
        CausalLink("horizon-held", "idle-in-transaction", applies=same_evidence("pid", "pid")),
        CausalLink("autovacuum-behind", "horizon-held", applies=_vacuums_without_effect),
        CausalLink("autovacuum-behind", "autovacuum-off", applies=_no_vacuum_came),
        CausalLink("autovacuum-behind", "autovacuum-busy", applies=_no_vacuum_came),
    ),
)
