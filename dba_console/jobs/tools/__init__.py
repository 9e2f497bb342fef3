"""`dba-console dumps`: the programs a runbook has its keeper run around pg_dump and pg_restore, and people by hand.

Each is a process of its own: it prints what it finds as lines, and as JSON where a program asks, and ends with an exit
code. It reads the connection from libpq's environment (PGHOST, PGDATABASE, …), never from an argument.
"""
