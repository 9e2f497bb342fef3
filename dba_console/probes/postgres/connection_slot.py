"""Which of the three pools of slots our connection came from.

PostgreSQL keeps superuser_reserved_connections free for superusers and, from 16 on, reserved_connections for members of
pg_use_reserved_connections; libpq connects without a word when one of those is used. What decides is how many slots
were free when ours was taken (InitPostgres in postinit.c).
"""

from __future__ import annotations

POOLED = "pooled"
"""Through a pooler: no slot is held, each query borrows one."""


def slot_pool(*, used: int, max_connections: int, superuser_reserved: int, reserved: int) -> str:
    """`regular`, `reserved_role` or `superuser`; `used` counts client backends with ours among them.

    >>> [slot_pool(used=n, max_connections=10, superuser_reserved=3, reserved=2) for n in (5, 6, 7, 8)]
    ['regular', 'reserved_role', 'reserved_role', 'superuser']
    """
    free = max_connections - used
    if free >= superuser_reserved + reserved:
        return "regular"
    return "reserved_role" if free >= superuser_reserved else "superuser"
