"""What is read about locks: waits for heavyweight locks, only while a session waits.

Its structs are in `samples`: all subjects know who blocks whom. OIDs become names in `decoder.py`.
"""

from __future__ import annotations

from dba_console.watch.part import Query, ServerPart
from dba_console.watch.samples import postgres

PARTS = (ServerPart("pg.locks", postgres.Locks, every_s=1, meaning="lock waits", queries=(Query("locks"),)),)
