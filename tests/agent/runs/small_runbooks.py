"""Small runbooks for these tests."""

from __future__ import annotations

HEAD = """# {title}

```toml {{runbook}}
id = "{id}"
needs = ["server"]
```

Why and when.

"""


def runbook_text(id: str, body: str, *, head: str = "") -> str:
    """A document of this body."""
    text = HEAD.format(title=id.capitalize(), id=id) + body
    return text.replace('needs = ["server"]\n', f'needs = ["server"]\n{head}')


COUNTED = runbook_text(
    "counted",
    """## Look

```sql {check}
select to_regclass('public.counted') is not null as there
```

## Count in a table

```sql {change confirm=type:target}
insert into public.counted values ('change')
```

```sql {undo confirm=yes}
delete from public.counted where what = 'change'
```

## Count in a file

```sh {run confirm=yes as=out}
echo once >> "$RB_file"
echo counted
```

```sh {undo confirm=yes}
: > "$RB_file"
```

## See both

```sql {check}
select count(*) = 1 as one from public.counted
```
""",
    head='[inputs.file]\ntype = "path"\n',
)
"""Counts how often each of its two acts was done."""

WAITS_FOR_FIFO = runbook_text(
    "held",
    """## Wait for a word

```sh {run confirm=yes as=word}
echo begun
read -r word < "$RB_fifo"
echo "got $word"
```

## Afterwards

```sql {change confirm=ack}
select 1 as one
```
""",
    head='[inputs.fifo]\ntype = "path"\n',
)
"""Its command runs until a line is written into the fifo."""

TWO_OPERATORS = runbook_text(
    "two-people",
    """## Both agree

```sql {change confirm=type:target people=2}
select 1 as one
```
""",
)

FAILING = runbook_text(
    "failing",
    """## Done and taken back

```sql {change confirm=yes}
create table public.taken_back(i int)
```

```sql {undo confirm=yes}
drop table public.taken_back
```

## Fails

```sql {check}
select false as fine
```
""",
)

ONE_CHANGE = runbook_text(
    "one-change",
    """## Change

```sql {change confirm=yes timeout=20s}
insert into public.changed values (1)
```
""",
)

WAITING = runbook_text(
    "waiting",
    """## Wait

```toml {wait}
until = "sql: select count(*) > 0 from public.awaited"
every = "1s"
timeout = "1h"
```

## Then

```sql {change confirm=yes}
insert into public.awaited values (2)
```
""",
)
