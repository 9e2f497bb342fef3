"""Rewritten text has nothing that was learnt, whatever the names are, and what is no name stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.reports.share_names import NameMap
from dba_console.reports.share_search import OriginalSearch
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


def rewriter(*known: tuple[str, str], texts: list[str]) -> TextRewriter:
    """One that has learnt these names, and what these texts tell."""
    made = TextRewriter(NameMap(), "names")
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
    search = OriginalSearch(name for name, _ in made.names.originals(searched=True))
    assert [search.find(made.rewrite(kind, text)) for kind, text in inputs] == [None] * len(inputs)


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("rsync -a /srv/acme/pg/ kim@vault7:/b", "rsync -a /srv/directory_1/pg/ user_1@host_2:/directory_2"),
        ("Key (email)=(bob@x.com) already exists.", "Key (email)=(…) already exists."),
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
