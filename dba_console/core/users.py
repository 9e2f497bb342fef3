"""Look up login names by user id, and the default user of libpq."""

from __future__ import annotations

import os
import pwd
from functools import cache


@cache
def user_name(uid: int) -> str:
    """Return the login name of a user id, `uid N` if it has none. Cached: names may come from a directory server, and
    views are made even while it is down.

    >>> user_name(0), user_name(2_147_483_600)
    ('root', 'uid 2147483600')
    """
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def default_user() -> str:
    """Return libpq's default user: the user of this process, as a number if it has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
