"""Dumps as files and as messages: what an archive holds, what pg_dump and pg_restore say of it, how far a job is. Pure.

Nothing here knows a server, a process or an agent. Readers take bytes or an open file; everything else takes records.
"""
