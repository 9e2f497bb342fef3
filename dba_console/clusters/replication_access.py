"""Readiness checks of access to the new primary: replication connections (pg_hba.conf), and TLS for clients. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, Literal

import msgspec
from msgspec import Struct

from dba_console.clusters.cluster_check import ClusterCheck, failed, ok, unknown, warning
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.pooler_state import quote_name
from dba_console.clusters.survey import Survey, find_upstream
from dba_console.core.units import human_duration

# The decision of pg_hba.conf about a replication connection, as far as it follows from the rules alone. Pure.
#
# The first rule with matching type, database, role and address decides (PostgreSQL documentation, "The pg_hba.conf
# File"). Not decided here: members of a group (`+role`), patterns, host names, `samehost` and `samenet`; the password
# itself; and whether the server has reloaded the file since it was changed.

Verdict = Literal["accepts", "rejects", "no rule", "unknown"]


class HbaDecision(Struct, frozen=True):
    """The verdict, and the rule that decides or leaves it open."""

    verdict: Verdict
    rule: str = ""
    method: str = ""


def decide(rules: Sequence[Mapping[str, Any]], user: str, address: str | None, *, tls: bool) -> HbaDecision:
    """Return the decision about a replication connection of `user` from `address`; None: over a Unix socket.

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
    """Return False if one is False, else None if one is unknown, else True."""
    return False if False in fits else None if None in fits else True


def _type_fits(kind: str, address: str | None, tls: bool) -> bool | None:
    if address is None or kind == "local":
        return address is None and kind == "local"
    # A client with sslmode=prefer tries TLS first, and without TLS if that is refused.
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


def check_replication_access(found: Survey, primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    """Check that the role may replicate, and that the old primary and every third node can connect to the target."""
    user = (target.upstream or {}).get("user")  # a cutover gives the old primary the primary_conninfo of the target
    if user is None:
        yield unknown("role", "the role that standbys connect as is unknown",
                      breaks=f"{primary.name} may be rejected as a standby",
                      fix=f"grant pg_read_all_settings on {target.name} to the role")  # fmt: skip
        return
    roles = primary.details.replicates
    if roles is None:
        yield unknown("role", f"the roles of {primary.name} are unknown")
    elif user in roles:
        yield ok("role", f"role {user} may replicate")
    else:
        yield failed("role", f"{user} is not a role with LOGIN and REPLICATION",
                     breaks=f"{primary.name} could not return as a standby",
                     fix=f"alter role {quote_name(user)} login replication")  # fmt: skip
    for node in (primary, *other_nodes(found, primary, target)):
        if find_upstream(found, node) is not target:
            host = found.hosts.get(node.name)
            reaches = None if host is None else host.reaches
            if host is not None and reaches is not None:
                yield _replication_test_result(node, target, user, reaches, host.reaches_text)
            else:
                check = _check_hba_rules(node, target, user)
                more = host.reaches_text if host is not None else ""
                yield msgspec.structs.replace(check, text=f"{check.text}; {more}") if more else check


def other_nodes(found: Survey, primary: NodeState, target: NodeState) -> list[NodeState]:
    """Return the other standbys that answer."""
    return [node for node in found.nodes if node.reached and node is not primary and node is not target]


def _replication_test_result(node: NodeState, target: NodeState, user: str, reaches: bool, why: str) -> ClusterCheck:
    where = f"a replication connection as {user} from {node.name} to {target.name}"
    if reaches:
        return ok(f"access.{node.name}", f"{where} succeeds")
    return failed(f"access.{node.name}", f"{where} fails: {why}",
                  breaks=f"{node.name} could not become a standby of {target.name}",
                  fix=f"check pg_hba.conf of {target.name}, and the passfile of the server's user on "
                      f"{node.name}")  # fmt: skip


def _check_hba_rules(node: NodeState, target: NodeState, user: str) -> ClusterCheck:
    name = f"access.{node.name}"
    breaks = f"{node.name} could not become a standby of {target.name}"
    rules = target.details.hba
    host = target.replication.get("host", "")
    local = host.startswith("/")
    if rules is None:
        return unknown(name, f"whether {node.name} may connect to {target.name} for replication is unknown",
                       breaks=breaks,
                       fix=f"grant select on pg_hba_file_rules and execute on function pg_hba_file_rules() on "
                           f"{target.name} to the role")  # fmt: skip
    if not local and node.address is None:
        return unknown(name, f"the address from which {node.name} connects to {target.name} is unknown",
                       breaks=breaks, fix=f"use its address in the dsn of {node.name}")  # fmt: skip
    tls = bool((target.details.tls or {}).get("server"))
    decision = decide(rules, user, None if local else node.address, tls=tls)
    source = "over its Unix socket" if local else f"from {node.address}"
    if decision.verdict == "accepts" and decision.method != "trust":
        return warning(name, f"pg_hba.conf of {target.name} allows {user} to replicate {source} ({decision.rule}), "
                             "but this was not tried", breaks=breaks,
                       fix=f"set ssh of {node.name}, so that it can be tried from there")  # fmt: skip
    if decision.verdict == "accepts":
        return ok(name, f"pg_hba.conf of {target.name} allows {user} to replicate {source} ({decision.rule})")
    if decision.verdict == "unknown":
        return unknown(name, f"whether pg_hba.conf of {target.name} allows {user} to replicate {source} is unknown: "
                             f"{decision.rule}", breaks=breaks)  # fmt: skip
    named = quote_name(user)
    rule = f"local replication {named} peer" if local else f"host replication {named} {node.address}/32 scram-sha-256"
    why = f"rejects it in {decision.rule}" if decision.rule else "has no rule for it"
    return failed(name, f"{user} may not replicate from {target.name} {source}: its pg_hba.conf {why}", breaks=breaks,
                  fix=f"add to pg_hba.conf of {target.name} and reload: {rule}")  # fmt: skip


def check_tls(found: Survey, primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    """Check that clients with TLS can use it afterwards, and that the certificate of the target is valid."""
    ours, theirs = primary.details.tls, target.details.tls
    if ours is None or theirs is None:
        yield unknown("tls", "whether the servers offer TLS is unknown")
        return
    if not ours["server"] and not theirs["server"]:
        yield ok("tls", "neither server offers TLS")
        return
    if not theirs["server"]:
        clients = ours["clients"] or 0
        judge = failed if clients else warning
        yield judge("tls", f"{target.name} has ssl = off; {clients} clients of {primary.name} use TLS",
                    breaks="clients with sslmode=require or stricter cannot connect",
                    fix=f"set ssl, ssl_cert_file and ssl_key_file of {target.name}, and reload")  # fmt: skip
        return
    certificate = target.certificate
    if certificate is None or certificate.error:
        why = "could not be read" if certificate is None else f"could not be read: {certificate.error}"
        yield unknown("tls", f"the certificate of {target.name} {why}",
                      breaks="clients that verify it could not connect")  # fmt: skip
        return
    left_s = (certificate.until_us - target.asked_us) / 1e6
    when = f"is valid for {human_duration(left_s)}" if left_s > 0 else f"expired {human_duration(-left_s)} ago"
    text = f"{target.name} offers TLS, its certificate {when}"
    if left_s <= 0 or certificate.from_us > target.asked_us:
        yield failed("tls", text if left_s <= 0 else f"the certificate of {target.name} is not valid yet",
                     breaks="clients that verify it cannot connect",
                     fix=f"renew ssl_cert_file of {target.name}, and reload")  # fmt: skip
    elif left_s < CERTIFICATE_S:
        yield warning("tls", text, breaks="clients that verify it cannot connect after it has expired",
                      fix=f"renew ssl_cert_file of {target.name}, and reload")  # fmt: skip
    else:
        yield ok("tls", f"{text}; whether its name matches what clients verify is unknown")


CERTIFICATE_S = 14 * 86400.0
"""Remaining validity below which a certificate is about to expire: left when ACME renewals have failed for two weeks
(Let's Encrypt: 90 days, renewed 30 days before)."""
