"""Reads a PostgreSQL server over one pinned connection.

The rule of this room: it never asks more than the server can spare. Every query of a tick goes out in one round trip,
each answers for itself, what was refused is remembered and what was dear is asked more rarely. The fast queries open
no relation and wait for no lock. `probe.PostgresProbe` is the door; psycopg is imported behind it and nowhere else.
"""
