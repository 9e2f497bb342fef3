"""What is read about connections: process titles, when no connection is free. All else follows from the sessions."""

from __future__ import annotations

from dba_console.watch.part import PartKind
from dba_console.watch.samples import host

PARTS = (PartKind("host.titles", host.ProcessTitles, 1, "connections by process title, in blind mode"),)
