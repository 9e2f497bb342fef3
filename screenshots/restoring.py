"""Screenshots of a restore: started by a runbook on a real server, taken while its indexes are built.

The page of the job is that of any dump or restore; the run is shown by another console.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dba_console.demo.binaries import find_binaries
from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.temporary_server import Cluster
from screenshots.incident import Say
from screenshots.walking import Move, pictured
from screenshots.watching import Watching

CLIENTS = ("initdb", "pg_ctl", "postgres", "psql", "pg_dump", "pg_restore", "vacuumdb")
SIZE = (120, 50)
_SHOP = """
create table customers as
  select n as id, 'Customer ' || n as name, md5(n::text) || '@example.org' as mail from generate_series(1, 150000) n;
create table orders as
  select n as id, 1 + n % 150000 as customer, timestamp '2026-01-01' + n * interval '7 s' as placed,
         md5(n::text) || md5((n * 7)::text) as note
  from generate_series(1, 900000) n;
create table items as
  select n as id, 1 + n % 900000 as ordered, n % 9 as pieces, md5((n * 3)::text) as article
  from generate_series(1, 2400000) n;
alter table customers add primary key (id);
alter table orders add primary key (id);
alter table items add primary key (id);
alter table orders add constraint orders_customer_fkey foreign key (customer) references customers;
alter table items add constraint items_ordered_fkey foreign key (ordered) references orders;
create index orders_placed_idx on orders (placed);
create index orders_note_idx on orders (note);
create index items_ordered_idx on items (ordered);
create index items_article_idx on items (article);
"""
MOVES = (
    Move("in indexes", ("5",)),
    Move("pg_restore -j2", ("enter",)),
    Move("critical path", picture="job"),
    Move("critical path", ("w",)),
    Move("running: INDEX", picture="restoring"),
)


def restored(base: Path, say: Say) -> dict[str, str]:
    """Return the screenshots by name, as SVG. `base` is for files other than the server's own."""
    cluster = Cluster(find_binaries(CLIENTS), settings={"shared_buffers": "128MB", "cluster_name": "practice"})
    with cluster:
        say("creating a database and its dump")
        cluster.psql("create database shop")
        cluster.psql(_SHOP, dbname="shop", timeout_s=600.0)
        dump = cluster.base / "shop-monday"
        cluster.run("pg_dump", "-Fd", "-j2", "-Z1", "-f", str(dump), "-d", cluster.dsn(dbname="shop"), timeout_s=600.0)
        with Watching(base, cluster.dsn()) as watching:
            say("restoring by runbook")
            inputs = {
                "archive": dump, "database": "shop_copy", "jobs": 2, "speed": "safe", "memory": "64MB",
                "programs": cluster.binaries.directory,
            }  # fmt: skip
            given = [word for name, value in inputs.items() for word in ("--input", f"{name}={value}")]
            command = [sys.executable, "-m", "dba_console", "runbook", "run", "restore", "--dsn", cluster.dsn()]
            with (base / "run.log").open("ab") as log:
                run = start_child(
                    [*command, "--plain", "--yes", "--confirm", "start=yes", *given],
                    output=log, environment=dict(os.environ),
                )  # fmt: skip
            try:
                pictures = pictured(watching.socket, MOVES, SIZE)
                run.wait(timeout=600.0)
            except subprocess.TimeoutExpired:
                say("the restore did not end in time")
            finally:
                end_child(run)
    return pictures
