"""Which rule of pg_hba.conf decides about a replication connection, as far as the rules alone decide it. Pure.

The first rule whose type, database, role and address fit decides (PostgreSQL documentation, "The pg_hba.conf File").
Not decided here: members of a group (`+role`), patterns, host names, `samehost` and `samenet`; the password itself;
and whether the server has read the file since it was changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, Literal

from msgspec import Struct

Verdict = Literal["accepts", "rejects", "no rule", "unknown"]


class HbaDecision(Struct, frozen=True):
    """What the rules say, and the rule that decides or leaves it open."""

    verdict: Verdict
    rule: str = ""
    method: str = ""


def decide(rules: Sequence[Mapping[str, Any]], user: str, address: str | None, *, tls: bool) -> HbaDecision:
    """Return the decision about a replication connection of `user` from `address`; None: by a unix socket.

    >>> rule = {"line": 9, "type": "host", "database": ["replication"], "users": ["repl"], "address": "10.0.0.0",
    ...         "netmask": "255.0.0.0", "method": "scram-sha-256", "error": None}
    >>> decide([rule], "repl", "10.1.2.3", tls=False).verdict, decide([rule], "repl", "192.168.0.1", tls=False).verdict
    ('accepts', 'no rule')
    """
    for rule in rules:
        if rule["error"] is not None:
            return HbaDecision("unknown", f"line {rule['line']} has an error: {rule['error']}")
        fits = _all_fit(
            _type_fits(rule["type"], address, tls),
            "replication" in (rule["database"] or ()),
            _user_fits(rule["users"] or (), user),
            _address_fits(rule["address"], rule["netmask"], address),
        )
        if fits is False:
            continue
        if fits is None:
            return HbaDecision("unknown", _rule_text(rule))
        return HbaDecision("rejects" if rule["method"] == "reject" else "accepts", _rule_text(rule), rule["method"])
    return HbaDecision("no rule")


def _all_fit(*fits: bool | None) -> bool | None:
    """False where one is False, else None where one is unknown."""
    return False if False in fits else None if None in fits else True


def _type_fits(kind: str, address: str | None, tls: bool) -> bool | None:
    if address is None or kind == "local":
        return address is None and kind == "local"
    # A client that may choose tries TLS first, and without it where that is refused.
    return {"host": True, "hostssl": tls, "hostnossl": None if tls else True}.get(kind, False)


def _user_fits(names: Sequence[str], user: str) -> bool | None:
    if "all" in names or user in names:
        return True
    return None if any(name.startswith(("+", "/")) for name in names) else False


def _address_fits(rule_address: str | None, mask: str | None, address: str | None) -> bool | None:
    if address is None or rule_address == "all":
        return True
    if rule_address is None:
        return False
    try:
        network = ip_network(f"{rule_address}/{_bits(mask)}" if mask else rule_address, strict=False)
    except ValueError:
        return None  # a host name, samehost or samenet
    one = ip_address(address)
    return one.version == network.version and one in network


def _bits(mask: str) -> int:
    return int(ip_address(mask)).bit_count()


def _rule_text(rule: Mapping[str, Any]) -> str:
    address = rule["address"] or ""
    if rule["netmask"] and address not in ("", "all"):
        address += f"/{_bits(rule['netmask'])}"
    words = [rule["type"], ",".join(rule["database"] or ()), ",".join(rule["users"] or ()), address, rule["method"]]
    return f"line {rule['line']}: {' '.join(word for word in words if word)}"
