"""Reads a PostgreSQL server over one persistent connection.

A tick's queries go out in one round trip and fail independently of each other. A refused query is not repeated each
tick, an expensive one is sent less often. The fast queries open no relation and wait for no lock.
`tick_reader.PostgresProbe` is the entry point; psycopg is imported in this package only.
"""
