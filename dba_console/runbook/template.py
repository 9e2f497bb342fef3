"""The document a new runbook begins with. It passes the lint as it stands."""

from __future__ import annotations

_DOCUMENT = """\
# {title}

```toml {{runbook}}
id = "{name}"
answers = [{answers}]
needs = ["server"]

[inputs.min_age]
type = "duration"
default = "15m"
help = "sessions idle in a transaction for longer than this"
```

Say here why one does this and when not, what it costs, how long it takes, and whom to tell before.

## Is this the right place?

What has to be so, or nothing of this makes sense. A check that cannot be answered fails.

```expr {{check}}
target.role == "primary"
```

## What is there

The rows below are what the next step acts on, and on no others.

```sql {{preview as=idle at_most=50}}
select pid, backend_start, state_change, usename, application_name, now() - xact_start as age,
       left(query, 8000) as query
from pg_stat_activity
where state = 'idle in transaction' and now() - xact_start > make_interval(secs => %(min_age)s)
order by xact_start
```

## End them

Their transactions are rolled back. Nothing takes that back.

```toml {{action signal-backend confirm=type:count undo=none}}
verb = "terminate"
rows = "%(idle)s"
```

## Did it help?

```toml {{wait usual=10s}}
until = "connections.idle_in_transaction < 5"
every = "2s"
timeout = "2m"
```

```toml {{manual}}
text = "Tell the owners of the application what was ended, and why."
evidence = "whom you told"
```
"""


def template_document(name: str, finding: str | None = None) -> str:
    """The text of a new runbook called `name`."""
    title = name.replace("-", " ").capitalize()
    return _DOCUMENT.format(name=name, title=title, answers=f'"{finding}"' if finding else "")
