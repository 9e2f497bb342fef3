"""Small runbooks for these tests."""

from __future__ import annotations

HEAD = """# {title}

```toml {{runbook}}
id = "{id}"
needs = ["server"]
```

Why and when.

"""


def book(id: str, body: str, *, head: str = "") -> str:
    """A document of this body."""
    text = HEAD.format(title=id.capitalize(), id=id) + body
    return text.replace('needs = ["server"]\n', f'needs = ["server"]\n{head}')


COUNTED = book(
    "counted",
    """## Look

```sql {check}
select to_regclass('counted') is not null as there
```

## Count in a table

```sql {change confirm=type:target}
insert into counted values ('change')
```

```sql {undo confirm=yes}
delete from counted where what = 'change'
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
select count(*) = 1 as one from counted
```
""",
    head='[inputs.file]\ntype = "path"\n',
)
"""Counts how often each of its two acts was done."""
