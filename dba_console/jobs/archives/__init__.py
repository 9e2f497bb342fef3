"""Dump archives, messages of pg_dump and pg_restore, and the progress of a dump or restore. Pure: no server, process or
agent is used. Readers take bytes or an open file, everything else takes records.
"""
