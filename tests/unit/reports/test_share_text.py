"""Rewritten text has nothing that was learnt, whatever the names are, and what is no name stays."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.reports.share_leak_check import OriginalSearch
from dba_console.reports.share_names import NameMap
from dba_console.reports.share_text import TextRewriter

KINDS = ("host", "database", "user", "application", "slot", "node", "tablespace", "schema", "relation", "path")
TEMPLATES = (
    "{0} {1}", "user={0},db={1}", "select * from {0} where x='{1}'", "{0}.{1}", 'see "{0}": {1}', "{0}/{1}",
    "pg_dump -h {0} -U {1}", "{0}@{1}", ": {0}, ({1})",
)  # fmt: skip
NAME = st.text(
    min_size=1,
    max_size=30,
    alphabet=st.one_of(
        st.sampled_from("abcXYZ019_-. '\"/@:%$(),;=\\İßéüñ中"), st.characters(exclude_categories=("Cs", "Cc"))
    ),
)


def rewriter(*known: tuple[str, str], texts: list[str], hidden: tuple[str, ...] = ()) -> TextRewriter:
    """One that has learnt these names, and what these texts tell."""
    made = TextRewriter(NameMap(hidden=hidden), "names")
    for text in texts:
        made.rewrite("text", text)
    for kind, name in known:
        made.rewrite(kind, name)
    made.end_learning()
    return made


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), NAME), min_size=1, max_size=8),
    st.sampled_from(TEMPLATES),
    st.data(),
)
def test_nothing_learnt_is_left(known: list[tuple[str, str]], template: str, data: st.DataObject) -> None:
    one = st.sampled_from([name for _, name in known])
    texts = [template.format(data.draw(one), data.draw(one)) for _ in range(4)]
    texts += [text.upper() for text in texts] + [text.lower() for text in texts]
    made = rewriter(*known, texts=texts)
    inputs = [*known, *(("text", text) for text in texts), *(("query", text) for text in texts)]
    for kind, text in inputs:
        made.rewrite(kind, text)
    if made.names.late:  # as the sharer does
        made.index_names()
    search = OriginalSearch((name for name, _ in made.names.originals(searched=True)), made.names.inside())
    assert [search.find(made.rewrite(kind, text)) for kind, text in inputs] == [None] * len(inputs)


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("rsync -a /srv/acme/pg/ kim@vault7:/b", "rsync -a /srv/directory_1/pg/ user_1@host_2:/directory_2"),
        ("Key (email)=(bob@x.com) already exists.", "Key (column_1)=(…) already exists."),
        ("slot db2_prod_acme_com; ip-10-1-2-3", "slot host_1_domain_1; ip-198-18-0-1"),
        ("[2001:DB9:0::9]:5432 and 127.0.0.1", "[2001:db8::1]:5432 and 127.0.0.1"),
        ('database "data" is full: the data directory', 'database "database_1" is full: the data directory'),
        ("select pg_cancel_backend(123) cancels it", "select pg_cancel_backend(123) cancels it"),
        ("pid 4711 at 14:53:07, 0/1A2B3C, 50%/s", "pid 4711 at 14:53:07, 0/1A2B3C, 50%/s"),
        ("LOG:  statement: select 'x' from t1 -- kim", "LOG:  statement: select $1 from relation_1  "),
        ("psql -c \"update t1 set a='x'\" -U kim", "psql -c \"update relation_1 set column_1=$1\" -U user_1"),
        ("keys in /etc/ssl/server.key and ~/.pgpass", "keys in <path of a secret> and <path of a secret>"),
    ],
)  # fmt: skip
def test_names_and_data_are_replaced_where_they_stand(text: str, shared: str) -> None:
    known = (("host", "db2.prod.acme.com"), ("host", "10.1.2.3"), ("database", "data"), ("path", "/srv/acme/pg"))
    assert rewriter(*known, texts=[text]).rewrite("text", text) == shared


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("acmeshop myacme ACME_TOP", "database_1_shop my_database_1 database_1_TOP"),
        ("QACMEPROD testacme", "Q_database_1_user_2 database_2_database_1"),
        ("x-acme-01 AcmeService", "x-database_1-01 database_1_Service"),
        ("acme7 7acme 2acme2", "database_1_7 7_database_1 2_database_1_2"),
        ("\\x61636d65 and X'41434D45'", "\\x64617461626173655f31 and X'64617461626173655F31'"),
        (f"0x{b'shop of acme today'.hex()}.", f"0x{b'shop of database_1 today'.hex()}."),
        ("b64 YWNtZQ== and YWNtZXg= not words6", "b64 ZGF0YWJhc2VfMQ== and ZGF0YWJhc2VfMV94 not words6"),
        ("%61cme and acm%65shop", "database_1 and database_1_shop"),
        ("the latest and greatest, attested", "the latest and greatest, attested"),
        ("db12 db123 xdb12 4711 94711 47112", "node_1 db123 xdb12 4711 94711 47112"),
        ("deadbeef0123 cafe1deadbeef", "deadbeef0123 cafe1deadbeef"),
        ("5 min, 16MB, 300 s, 12kB", "5 min, 16MB, 300 s, 12kB"),
    ],
)  # fmt: skip
def test_names_in_longer_words_are_replaced_and_ordinary_words_are_kept(text: str, shared: str) -> None:
    known = [("database", "acme"), ("database", "test"), ("user", "prod"), ("node", "db12"), ("slot", "4711")]
    known += [("user", "deadbeef"), ("application", "16MB"), ("application", "5 min")]
    assert rewriter(*known, texts=[text]).rewrite("text", text) == shared


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("statshop, STATUS of mystat: statistics", "word_1_shop, STATUS of my_word_1: statistics"),
        ("ibm, IBM-7 and submibmer", "word_2, word_2-7 and subm_word_2_er"),
        ("Big  Shop, big shop and bigger shops", "Big  Shop, word_3 and bigger shops"),
    ],
)
def test_a_hidden_word_is_replaced_everywhere_but_in_ordinary_words(text: str, shared: str) -> None:
    made = rewriter(texts=[text], hidden=("stat", "ibm", "Big Shop"))
    names = {"stat": "1", "ibm": "2", "Big Shop": "3"}
    spelled = {made.names.known(name): f"word_{number}" for name, number in names.items()}
    shown = made.rewrite("text", text)
    for own, expected in spelled.items():
        shown = shown.replace(str(own), expected.upper())
    assert shown == re.sub(r"word_\d", lambda match: match[0].upper(), shared)
    search = OriginalSearch(("stat", "ibm", "Big Shop"), made.names.inside())
    assert search.find(made.rewrite("text", text)) is None


@pytest.mark.parametrize(
    "text",
    [
        "Database system identifier:           7431204485839012345",
        "system identifier 7431204485839012345, primary, timeline 1",
        "The primary's identifier is 7431204485839012345, the standby's identifier is 7431204485839012346.",
        '{"system_identifier": "7431204485839012345"}',
        "boot_id=6f0c3f9e-1b7a-4d56-8a55-0f5d3c2b1a90",
        "_BOOT_ID=6f0c3f9e1b7a4d568a550f5d3c2b1a90 boot_id: 6f0c3f9e-1b7a-4d56-8a55-0f5d3c2b1a90",
    ],
)
def test_identifiers_become_others_of_the_same_form(text: str) -> None:
    made = rewriter(texts=[text])
    shown = made.rewrite("text", text)
    assert not re.search(r"743120448583901234|6f0c3f9e|0f5d3c2b1a90", shown)
    assert re.sub(r"[0-9a-f]", "0", shown) == re.sub(r"[0-9a-f]", "0", text)
    again = rewriter(texts=[text])
    assert again.rewrite("text", text) != shown  # another map


@pytest.mark.parametrize(
    "text",
    [
        'ERROR:  invalid input syntax for type integer: "qz"',
        'ERROR:  value "qz9" is out of range for type integer',
        'ERROR:  date/time field value out of range: "qz"',
        'ERROR:  malformed array literal: "qz"',
        "DETAIL:  Failing row contains (1, qz, null).",
        "DETAIL:  Partition key of the failing row contains (region) = (qz).",
        'DETAIL:  Token "qz" is invalid.',
        'CONTEXT:  JSON data, line 1: {"name": qz...',
        'CONTEXT:  COPY t1, line 3: "qz,street 9,4111"',
        'CONTEXT:  COPY t1, line 3, column email: "qz"',
        'CONTEXT:  COPY My Table, line 3, column a b: "qz"',
        "DETAIL:  Key (email)=(qz) conflicts; Existing local row (1, qz); remote row (2, qz); replica identity (qz).",
        "CONTEXT:  SQL statement \"insert into t1 values ('qz')\"",
        "LOG:  duration: 12.3 ms  execute p1: select * from t1 where name = 'qz'",
        "DETAIL:  parameters: $1 = 'qz', $2 = '4711333'",
        "CONTEXT:  unnamed portal with parameters: $1 = 'qz'",
        "LINE 2:   and street = 'qz' or y",
        '22P02,"invalid input syntax: ""qz""",,,"insert into t1 values (\'qz\', ""a b"")",,,"x"',
        '{"message":"invalid input syntax for type integer: \\"qz\\"","remote_host":"qz"}',
        "mount qz:/export/qz2 on /srv; pg1-host=qz and repo2-host=qz",
        "Key (qz, name)=(1, 2) already exists.",
        'CONTEXT:  COPY Qz table, line 3, column qz: "x"',
        '{"statement":"select * from \\"T\\" where name=\'qz\'\\nand x=1","detail":"Key (a)=(qz)"}',
        "        Filter: (name = 'qz'::text)",
        "        Index Cond: ((email)::text = 'qz'::text)",
        "kim ran delete from t1 where email = 'qz' at noon",
    ],
)
def test_data_in_messages_is_replaced(text: str) -> None:
    shown = rewriter(texts=[text]).rewrite("text", text)
    assert "qz" not in shown.lower() and "4711333" not in shown
    assert shown[:4] == text[:4]


@pytest.mark.parametrize(
    "piece",
    ["select ", 'COPY x, line 1 "', "invalid ", "'", '""', "insert into ", "filter: ", "ab", '\\"', "acme", "6161"],
)
def test_long_text_is_rewritten_in_linear_time(piece: str) -> None:
    made = rewriter(("database", "acme"), texts=[])
    text = piece * (40_000 // len(piece))
    took = []
    for size in (len(text) // 4, len(text)):
        began = time.process_time()
        made.rewrite("text", text[:size])
        took.append(time.process_time() - began)
    assert took[1] < max(10 * took[0], 0.5)
