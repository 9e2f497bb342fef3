"""For shared copies: pseudonyms of names and addresses, one per original, the same everywhere, kept in a private map.

Names are learnt first and numbered in the order of their originals, so that rows sorted by name keep their order.
Addresses of one subnet (/24, /64) stay in one subnet.
"""

from __future__ import annotations

import functools
import hashlib
import html
import ipaddress
import json
import os
import re
import secrets
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from dba_console.core.atomic_files import write_atomically
from dba_console.core.decoding import from_json
from dba_console.core.errors import SessionError
from dba_console.core.paths import private_dir, state_dir
from dba_console.core.sanitize import clean
from dba_console.jobs.following.job_detection import PROGRAMS
from dba_console.reports.share_words import BUILT_IN, KEYWORDS, ORDINARY
from dba_console.runbooks.library import SHIPPED, SUFFIX
from dba_console.watch.findings.phrases import display_name

Kind = Literal[
    "host", "domain", "node", "database", "schema", "relation", "tablespace", "slot", "subscription", "user",
    "application", "directory", "identifier", "word", "column",
]  # fmt: skip
KINDS: tuple[Kind, ...] = Kind.__args__  # type: ignore[attr-defined]
"""A name that stands for several things gets the first of these kinds. An `identifier` is that of a cluster or of a
boot of the host; a `word` was named by the operator, or names an organisation in a domain."""
ADDRESS = "address"
_DIRECTORIES = """
    archive archives backup backups base bin boot cgroup conf.d conf config core current data database db dbs dev
    dump dumps etc global home lib lib64 local log logs main media mnt mount node opt out pg pgdata pgsql pg_wal
    pg_xlog postgres postgresql proc root run runs sbin scratch session sessions share shm shared socket srv state
    sys system systemd tablespace tablespaces tmp usr var var_lib volume volumes wal wal_archive walarchive work
    dba-console steps initdb docker containers docker.sock standby primary replica server etc.d recovery tmpfs
    overlay none udev devtmpfs sysfs mapper rootfs disk by-uuid by-id
"""
_KEPT: dict[str, frozenset[str]] = {
    "host": frozenset({"localhost", "local", "[local]", "www.postgresql.org", "postgresql.org", "0", "*"}),
    "database": frozenset({"postgres", "template0", "template1", "all", "replication"}),
    "user": frozenset({"postgres", "root", "public", "nobody"}),
    "schema": frozenset({"public", "information_schema"}),
    "column": BUILT_IN | KEYWORDS,
    "application": PROGRAMS
    | {
        "psql", "pg_dump", "pg_dumpall", "pg_restore", "pg_basebackup", "pg_receivewal", "pg_recvlogical", "pg_rewind",
        "walreceiver", "pgbench", "vacuumdb", "reindexdb", "clusterdb", "pgbackrest", "barman", "patroni", "PgBouncer",
        "pg_probackup", "wal-g", "pgcopydb", "dba-console", "postgres", "pg_verifybackup", "oid2name",
    },
    "directory": frozenset(_DIRECTORIES.split()),
}  # fmt: skip
IDENTIFIER = r"(?:[1-9]\d{14,19}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
"""A system identifier (xlog.c): the time of initdb is in it; a boot id of the kernel."""
_KEPT_PATTERNS: dict[str, re.Pattern[str]] = {
    "application": re.compile(r"(?:dba-console|pgcopydb\[|parallel worker|logical replication|autovacuum).*", re.S),
    "directory": re.compile(
        r"[\d.:_+-]*|\d{8}T\d{6}Z?|pg_\w*|postgresql[-_.\d]*\w*|postmaster\.\w+|\.s\.PGSQL\.\d+|[0-9A-F]{24}|[0-9A-F]{8}"
        r"|(?:sd|vd|xvd|hd)[a-z]+\d*|nvme\d+n\d+(?:p\d+)?|(?:dm-|md|loop|sr|ram|zram)\d+|v?\d[\d.]*"
    ),
    "identifier": re.compile(rf"(?!{IDENTIFIER}$).*", re.S),
}
_CATALOG = re.compile(r"pg_\w*")
_SHORTEST: dict[str, int] = {"host": 2, "node": 2, "database": 2, "user": 2, "application": 2}
"""A shorter name is part of too much other text: it is replaced where it stands as a name, and not searched for."""
_SHORTEST_OTHER = 3
"""Aliases in statements have one or two characters."""
_V4 = [ipaddress.ip_network("198.18.0.0/15"), ipaddress.ip_network("100.64.0.0/10")]
"""Networks for benchmarks (RFC 2544) and of carriers (RFC 6598): the pseudonyms of subnets."""
_V6 = ipaddress.ip_network("2001:db8::/32")
"""For documentation (RFC 3849)."""

_UNMISTAKABLE = 4
"""Characters; a shorter name is part of too many words."""
_HEXADECIMAL = re.compile(r"[0-9a-f]*")
_NUMBER = re.compile(r"[\d\s.,_:+-]*(?:[kmgtpe]?i?b|[mµnu]?s|min|h|d)?")
"""A number, also with a unit."""
_DOTTED = frozenset(("host", "domain", ADDRESS))
"""Written with another sign in names of slots, files and metrics: `db1_prod`, `ip-10-0-0-1`."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Pseudonym(Struct, frozen=True, array_like=True):
    """What a name is, and what replaces it."""

    kind: str
    text: str


class StoredMap(Struct, kw_only=True):
    """The file of a map. Private: with it a shared session can be read as the original."""

    format: int = 1
    key: str
    names: dict[str, Pseudonym] = {}
    networks: dict[str, str] = {}
    """Subnet -> subnet that replaces it."""


class NameMap:
    """Originals and their pseudonyms."""

    def __init__(self, stored: StoredMap | None = None, kept: Iterable[str] = (), hidden: Iterable[str] = ()) -> None:
        """`kept`: names that are not replaced; `hidden`: words that are replaced wherever they stand."""
        self._kept = frozenset(kept)
        self.stored = stored or StoredMap(key=secrets.token_hex(16))
        self.learning = True
        self.complete = False
        self.late: list[str] = []
        """Names that were found only when text was rewritten."""
        self.guessing = False
        """What is learnt stands in text: fields know better what it is."""
        self._learnt: dict[str, str] = {}
        self._ranks: dict[str, int] = {}
        self._issued = {one.text for one in self.stored.names.values()}
        self._numbers: Counter[str] = Counter()
        for one in self.stored.names.values():
            number = one.text.rpartition("_")[2]
            self._numbers[one.kind] = max(self._numbers[one.kind], int(number) if number.isdecimal() else 0)
        self._hosts_of: Counter[str] = Counter(
            str(_network(ipaddress.ip_address(name))) for name, one in self.stored.names.items() if one.kind == ADDRESS
        )
        self._width: dict[str, int] = {}
        self._hidden = frozenset(hidden)
        for word in self._hidden:
            self.name("word", word)

    def name(self, kind: Kind, original: str) -> str:
        """Return the pseudonym, while learning the original."""
        if not original or original in self._issued or original in self._kept:
            return original
        if is_kept(kind, original) and original not in self._hidden:
            return original
        if self.learning:
            rank = KINDS.index(kind) + (len(KINDS) if self.guessing else 0)
            if rank < self._ranks.get(original, 2 * len(KINDS)):
                self._ranks[original], self._learnt[original] = rank, kind
            return original
        return self._assigned(original, kind)

    def address(self, address: Address) -> str:
        """Return the address that replaces this one, while learning the same one."""
        original = str(address)
        if is_kept_address(address) or original in self._issued:
            return original
        if self.learning:
            self._learnt.setdefault(original, ADDRESS)
            return original
        return self._assigned(original, ADDRESS)

    def known(self, original: str) -> str | None:
        """Return the pseudonym of a name, whatever its kind; None if it was not learnt."""
        if self.learning:
            return None
        found = self.stored.names.get(original) or self.stored.names.get(original.lower())
        if found is None or original in self._kept:
            return None
        return found.text

    def is_issued(self, text: str) -> bool:
        return text in self._issued

    def digest(self, text: str, length: int = 12) -> str:
        """Return a key in hexadecimal that only this map connects with `text`."""
        return hashlib.sha256(f"{self.stored.key}\0{text}".encode(errors="surrogateescape")).hexdigest()[:length]

    def end_learning(self) -> None:
        """Give every learnt name its pseudonym."""
        self.learning = False
        totals = Counter(self._learnt.values())
        self._width = {kind: len(str(total + self._numbers[kind])) for kind, total in totals.items()}
        names = sorted(
            (name for name, kind in self._learnt.items() if kind != ADDRESS), key=lambda one: (one, len(one))
        )
        addresses = sorted(map(ipaddress.ip_address, (name for name, kind in self._learnt.items() if kind == ADDRESS)),
                           key=lambda one: (one.version, int(one)))  # fmt: skip
        for name in names:
            self._assigned(name, self._learnt[name])
        for address in addresses:
            self._assigned(str(address), ADDRESS)
        self.complete = True

    def originals(self, *, searched: bool) -> Iterator[tuple[str, str]]:
        """Yield the names that are replaced in all text and searched for at the end, each with its pseudonym; or the
        others, which are replaced only where they stand as names.
        """
        for name, one in self.stored.names.items():
            found = name in self._hidden or (one.kind != "column" and not is_ordinary(one.kind, name))
            if name not in self._kept and found == searched:
                yield name, one.text

    def inside(self) -> set[str]:
        """Return the names that are replaced and searched for within longer words too."""
        names = (name for name, _ in self.originals(searched=True))
        return {name for name in names if name in self._hidden or is_unmistakable(name)}

    @property
    def counts(self) -> Counter[str]:
        """Return the number of learnt names by kind."""
        return Counter(self.stored.names[name].kind for name in self._learnt if name in self.stored.names)

    def ordinary(self) -> list[str]:
        """Return the names that are ordinary words too; columns are always treated so, and not listed."""
        stored = self.stored.names
        return sorted(name for name, _ in self.originals(searched=False) if stored[name].kind != "column")

    def spellings(self) -> Iterator[tuple[str, str, str]]:
        """Yield each name that is replaced in all text, how sentences write it, and what replaces it."""
        self.late.clear()
        for name, text in self.originals(searched=True):
            escaped = {name.replace('"', '""'), name.replace("'", "''"), json.dumps(name)[1:-1]}
            # Letters with other letters in the other case, or another number of them: ı, ß, İ.
            cases = {
                case for case in (name.lower(), name.upper()) if case.lower() != name.lower() or len(case) != len(name)
            }
            composed = {unicodedata.normalize(form, name) for form in ("NFC", "NFD")}
            others = {clean(name), display_name(name), html.escape(name), name.replace(" ", "+")}
            for spelling in {name, *others, *composed, *escaped, *cases}:
                yield name, spelling, text
            if self.stored.names[name].kind == "identifier":
                yield name, name.replace("-", ""), text.replace("-", "")
            if self.stored.names[name].kind in _DOTTED and "." in name:
                yield from ((name, name.replace(".", sign), text.replace(".", sign)) for sign in "_-")

    def _assigned(self, original: str, kind: str) -> str:
        found = self.stored.names.get(original)
        if found is None:
            text = self._new_text(original, kind)
            found = self.stored.names[original] = Pseudonym(kind, text)
            self._issued.add(text)
            if self.complete:
                self.late.append(original)
        return found.text

    def _new_text(self, original: str, kind: str) -> str:
        if kind == ADDRESS:
            return self._new_address(original)
        if kind == "identifier":
            return self._new_identifier(original)
        short, dot, domain = original.partition(".")
        if kind == "host" and dot and domain:
            return f"{self._assigned(short, 'host')}.{self._assigned(domain, 'domain')}"
        return self._new_name(kind)

    def _new_name(self, kind: str) -> str:
        while True:
            self._numbers[kind] += 1
            text = f"{kind}_{self._numbers[kind]:0{self._width.get(kind, 1)}d}"
            if text not in self._learnt and text not in self.stored.names:
                return text

    def _new_identifier(self, original: str) -> str:
        digest = self.digest(original, 32)
        if original.isdecimal():
            return f"7{int(digest, 16) % 10**18:018d}"
        return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))

    def _new_address(self, original: str) -> str:
        address = ipaddress.ip_address(original)
        network = _network(address)
        other = ipaddress.ip_network(self.stored.networks.get(str(network)) or self._new_network(network))
        size = network.num_addresses
        last = int(address) - int(network.network_address)
        if address.version == 6 or last not in (0, size - 1):  # the addresses of the subnet itself stay what they are
            self._hosts_of[str(network)] += 1
            last = self._hosts_of[str(network)]
        return str(other[last])

    def _new_network(self, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> str:
        used = {
            *self.stored.networks.values(),
            *(str(_network(ipaddress.ip_address(one))) for one in self._addresses()),
        }
        spaces: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network] = _V4 if network.version == 4 else [_V6]
        for space in spaces:
            # One by one: a list of the subnets of a /32 would not fit into memory.
            step = 1 << (space.max_prefixlen - network.prefixlen)
            for at in range(int(space.network_address), int(space.broadcast_address), step):
                text = f"{ipaddress.ip_address(at)}/{network.prefixlen}"
                if text not in used:
                    self.stored.networks[str(network)] = text
                    return text
        raise SessionError("more subnets in this session than can be replaced")

    def _addresses(self) -> Iterator[str]:
        yield from (name for name, kind in self._learnt.items() if kind == ADDRESS)


def is_kept(kind: str, name: str) -> bool:
    """Return whether a name is the same everywhere and tells nothing."""
    if name in _KEPT.get(kind, ()) or not any(sign.isalnum() for sign in name):
        return True
    if kind in ("schema", "relation", "column", "user", "slot", "tablespace") and _CATALOG.fullmatch(name):
        return True
    pattern = _KEPT_PATTERNS.get(kind)
    return pattern is not None and pattern.fullmatch(name) is not None


def is_ordinary(kind: str, name: str) -> bool:
    """Return whether a name is a word that text has anyway, a number, or too short."""
    if kind == "identifier":
        return False
    lowered = name.lower()
    number = _NUMBER.fullmatch(lowered) is not None and _address_of(name) is None
    return len(name) < _SHORTEST.get(kind, _SHORTEST_OTHER) or lowered in ORDINARY or number


def is_unmistakable(name: str) -> bool:
    """Return whether no ordinary word and no digest contains a name, so that it is one in a longer word too.

    >>> [is_unmistakable(name) for name in ("acme", "acme_prod", "test", "deadbeef", "db1", "2024")]
    [True, True, False, False, False, False]
    """
    lowered = name.lower()
    if len(name) < _UNMISTAKABLE or _HEXADECIMAL.fullmatch(lowered):
        return False
    words = _lines_of_words()
    return words.count(lowered) == words.count(f"\n{lowered}\n")


def can_be_hidden(word: str) -> bool:
    """Return whether a word can be replaced within longer words, and the recording still be read.

    >>> [can_be_hidden(word) for word in ("acme", "prod", "IBM", "data", "x1", "--")]
    [True, True, True, False, False, False]
    """
    return len(word) >= _SHORTEST_OTHER and any(map(str.isalnum, word)) and word.lower() not in ORDINARY


def organisation_in(domain: str) -> str | None:
    """Return the word of a domain that names its owner, None if it is too short or an ordinary word.

    >>> organisation_in("prod.acme.co.uk"), organisation_in("compute.internal")
    ('acme', None)
    """
    labels = reversed(domain.split(".")[:-1])
    return next((one for one in labels if is_unmistakable(one) and not is_ordinary("word", one)), None)


@functools.cache
def ordinary_words() -> frozenset[str]:
    """Return the ordinary words, and those of the shipped runbooks."""
    text = " ".join(path.read_text(encoding="utf-8") for path in SHIPPED.glob(f"*{SUFFIX}"))
    return ORDINARY.union(*_KEPT.values(), KINDS, re.findall(r"[^\W\d_]+", text.lower()))


@functools.cache
def _lines_of_words() -> str:
    return "".join(f"\n{word}\n" for word in ordinary_words())


def is_kept_address(address: Address) -> bool:
    """Return whether an address is one that every host has."""
    return address.is_loopback or address.is_unspecified or address.is_multicast or str(address).startswith("255.")


def _address_of(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _network(address: Address) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return the subnet: /24 or /64."""
    return ipaddress.ip_network((address, 24 if address.version == 4 else 64), strict=False)


def map_path(session_id: str) -> Path:
    """Return where the map of a session is kept."""
    return state_dir() / "share-maps" / f"{session_id}.json"


def load_map(path: Path, kept: Iterable[str] = (), hidden: Iterable[str] = ()) -> NameMap:
    """Return the map in a file; an empty one if there is none. Raises SessionError."""
    try:
        return NameMap(from_json(path.read_bytes(), StoredMap), kept, hidden)
    except FileNotFoundError:
        return NameMap(kept=kept, hidden=hidden)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise SessionError(f"cannot read the map {path}: {error}") from error


def save_map(names: NameMap, path: Path) -> None:
    """Write the map, 0600. Raises SessionError, PermissionDenied."""
    if path.parent == map_path("").parent:
        private_dir(path.parent)
    data = msgspec.json.format(msgspec.json.encode(names.stored), indent=1)
    try:
        write_atomically(os.fspath(path.parent), path.name, data + b"\n")
    except OSError as error:
        raise SessionError(f"cannot write the map {path}: {error.strerror or error}") from error
