"""The statements of signal-backend: who the sessions are, the signal itself, and who is left.

SEEN and SIGNAL share the same judgement, word for word: what the operator was shown is what the server decides by in
the statement that signals.
"""

from __future__ import annotations


def _to_us_sql(time: str) -> str:
    """A time as microseconds since 1970, as it is written down."""
    return f"(EXTRACT(epoch FROM {time}) * 1000000)::int8"


_SELECTED = """
  SELECT w.*, timestamptz 'epoch' + w.start_us * interval '1 microsecond' AS backend_start
    FROM ROWS FROM (pg_catalog.unnest(%(pids)s::int4[]), pg_catalog.unnest(%(starts)s::int8[]),
                    pg_catalog.unnest(%(queries)s::int8[]), pg_catalog.unnest(%(transactions)s::int8[]),
                    pg_catalog.unnest(%(states)s::int8[])) AS w (pid, start_us, query_us, xact_us, state_us)
"""
# The start of a session this role may not see is NULL: it is called hidden, not gone.
_JUDGED = f"""
  SELECT a.pid, w.start_us, a.usename, a.datname, a.application_name, a.state, a.query_start, a.xact_start, a.query,
         CASE
           WHEN a.pid = pg_catalog.pg_backend_pid()
             OR (a.usename = current_user AND a.application_name ~ '^dba-console($|:)') THEN 'own'
           WHEN a.backend_start IS NULL OR a.backend_type IS NULL OR a.query = '<insufficient privilege>' THEN 'hidden'
           WHEN a.backend_type = 'walsender' THEN 'walsender'
           WHEN a.backend_type = 'autovacuum worker' AND a.query LIKE '%%(to prevent wraparound)%%' THEN 'wraparound'
           WHEN a.backend_type NOT IN ('client backend', 'autovacuum worker') THEN 'background'
           WHEN coalesce(r.rolsuper, true) AND a.backend_type = 'client backend'
                AND a.usename <> current_user AND NOT %(superusers)s::bool THEN 'superuser'
           WHEN NOT me.rolsuper AND coalesce(r.rolsuper, true) THEN 'role'
           WHEN NOT me.rolsuper AND NOT pg_catalog.pg_has_role(a.usesysid, 'USAGE')
                AND NOT pg_catalog.pg_has_role('pg_signal_backend', 'USAGE') THEN 'role'
           WHEN w.query_us <> {_to_us_sql("a.query_start")} OR w.xact_us <> coalesce({_to_us_sql("a.xact_start")}, 0)
             OR w.state_us <> {_to_us_sql("a.state_change")} THEN 'moved'
           WHEN %(cancel)s::bool AND a.state <> 'active' THEN 'idle'
           ELSE 'may'
         END AS verdict
    FROM ({_SELECTED}) w
    JOIN pg_catalog.pg_stat_activity a
      ON a.pid = w.pid AND (a.backend_start = w.backend_start OR a.backend_start IS NULL)
    LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.usesysid
    JOIN pg_catalog.pg_roles me ON me.rolname = current_user
"""
_QUERY_TEXT = (
    "pg_catalog.left(j.query, CASE WHEN pg_catalog.cardinality(%(pids)s::int4[]) <= 20 THEN 8000 ELSE 200 END)"
)
SESSIONS = f"""
SELECT j.pid, j.verdict, j.usename::text AS "user", j.datname::text AS database, j.application_name AS application,
       j.state, {_to_us_sql("j.query_start")} AS query_us, j.start_us,
       {_QUERY_TEXT} AS query, pg_catalog.octet_length(j.query) > pg_catalog.octet_length({_QUERY_TEXT}) AS cut,
       EXTRACT(epoch FROM pg_catalog.clock_timestamp() - j.xact_start)::float8 AS xact_age_s
  FROM ({_JUDGED}) j
"""
REMAINING = f"""
SELECT a.pid, a.state, {_to_us_sql("a.query_start")} AS query_us
  FROM ({_SELECTED}) w
  JOIN pg_catalog.pg_stat_activity a ON a.pid = w.pid AND a.backend_start = w.backend_start
"""


def _signal_statement(function: str) -> str:
    # Materialized: judged for all of them first, and the signal goes to none that the judgement did not name.
    return f"""
WITH judged AS MATERIALIZED ({_JUDGED})
SELECT j.pid, pg_catalog.{function}(j.pid) AS sent FROM judged j WHERE j.verdict = 'may'
"""


SIGNAL = {"cancel": _signal_statement("pg_cancel_backend"), "terminate": _signal_statement("pg_terminate_backend")}
