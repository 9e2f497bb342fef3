"""`dba-console dumps`: tools around pg_dump and pg_restore, run by runbooks or by the operator.

Each is a separate process: it prints its result as text, or as JSON with --json, and ends with an exit code. It reads
the connection from libpq's environment (PGHOST, PGDATABASE, …), never from an argument.
"""
