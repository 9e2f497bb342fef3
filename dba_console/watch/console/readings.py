"""What the agent reads about itself, and about the temporary settings of its runs.

The structs are in `samples`, because the frame and other subjects use them. The panel shows events, which are not read.
"""

from __future__ import annotations

from dba_console.watch.part import PartKind
from dba_console.watch.samples import console

PARTS = (
    PartKind("self", console.AgentHealth, 1, "the console's own cost"),
    PartKind("reverts", console.PendingRevertsNow, 30, "temporary settings of runs, until they are reverted"),
)
