"""Options of PostgreSQL's programs, versions 13 to 18: which take a value, and which long name stands for which letter.

From the sources of each program (its getopt_long call). Letters as getopt has them, a colon behind one that takes a
value. Long names: `name=X` is the letter X, `name:` takes a value and has no letter, `name` stands alone.
"""

from __future__ import annotations

_CONNECTION = "host=h port=p username=U no-password=w password=W"

SHORT_OPTIONS = {
    "pg_dump": "abBcCd:e:E:f:F:h:j:n:N:oOp:RsS:t:T:U:vwWxXZ:",
    "pg_dumpall": "acd:E:f:F:gh:l:oOp:rsS:tU:vwWx",
    "pg_restore": "acCd:ef:F:h:I:j:lL:n:N:Op:P:RsS:t:T:U:vwWxX:1",
    "psql": "aAbc:d:eEf:F:h:HlL:no:p:P:qR:sStT:U:v:VwWxXz01",
    "pg_basebackup": "c:Cd:D:F:h:i:l:nNp:PRr:s:S:t:T:U:vwWX:zZ:",
    "vacuumdb": "ad:efFh:j:n:N:p:P:qt:U:vwWzZ",
    "reindexdb": "ad:eh:i:j:p:qsS:t:U:vwW",
    "clusterdb": "ad:eh:p:qt:U:vwW",
    "pgcopydb": "",
}

_DUMP = (
    f"{_CONNECTION} data-only=a schema-only=s superuser=S no-owner=O no-privileges=x no-acl=x verbose=v file=f"
    " format=F jobs=j binary-upgrade disable-dollar-quoting disable-triggers enable-row-security if-exists"
    " no-tablespaces no-table-access-method no-comments no-publications no-security-labels no-subscriptions no-sync"
    " role: section: strict-names use-set-session-authorization filter: no-data no-schema no-statistics no-policies"
    " statistics statistics-only restrict-key: quote-all-identifiers lock-wait-timeout: attribute-inserts"
    " column-inserts inserts rows-per-insert: on-conflict-do-nothing extra-float-digits: load-via-partition-root"
    " no-toast-compression no-unlogged-table-data sequence-data exclude-database:"
)

LONG_OPTIONS = {
    "pg_dump": f"{_DUMP} blobs=b large-objects=b no-blobs=B no-large-objects=B clean=c create=C dbname=d extension=e"
    " schema=n exclude-schema=N no-reconnect=R table=t exclude-table=T compress=Z encoding=E exclude-table-data:"
    " exclude-extension: table-and-children: exclude-table-and-children: exclude-table-data-and-children:"
    " include-foreign-data: serializable-deferrable snapshot: no-synchronized-snapshots sync-method:",
    "pg_dumpall": f"{_DUMP} encoding=E clean=c dbname=d globals-only=g database=l roles-only=r tablespaces-only=t"
    " no-role-passwords",
    "pg_restore": f"{_DUMP} clean=c create=C dbname=d exit-on-error=e index=I list=l use-list=L schema=n"
    " exclude-schema=N function=P no-reconnect=R table=t trigger=T single-transaction=1 transaction-size:"
    " no-data-for-failed-tables",
    "psql": f"{_CONNECTION} echo-all=a no-align=A command=c dbname=d echo-queries=e echo-errors=b echo-hidden=E file=f"
    " field-separator=F field-separator-zero=z html=H list=l log-file=L no-readline=n single-transaction=1 output=o"
    " pset=P quiet=q record-separator=R record-separator-zero=0 single-step=s single-line=S tuples-only=t table-attr=T"
    " set=v variable=v version=V expanded=x no-psqlrc=X csv",
    "pg_basebackup": f"{_CONNECTION} checkpoint=c create-slot=C dbname=d pgdata=D format=F incremental=i label=l"
    " no-clean=n no-sync=N progress=P write-recovery-conf=R max-rate=r status-interval=s slot=S target=t"
    " tablespace-mapping=T verbose=v wal-method=X gzip=z compress=Z waldir: no-slot no-verify-checksums"
    " no-estimate-size no-manifest manifest-force-encode manifest-checksums: sync-method:",
    "vacuumdb": f"{_CONNECTION} all=a dbname=d echo=e full=f freeze=F jobs=j schema=n exclude-schema=N parallel=P"
    " quiet=q table=t verbose=v analyze=z analyze-only=Z analyze-in-stages disable-page-skipping skip-locked"
    " min-xid-age: min-mxid-age: no-index-cleanup force-index-cleanup no-truncate no-process-main no-process-toast"
    " buffer-usage-limit: missing-stats-only maintenance-db:",
    "reindexdb": f"{_CONNECTION} all=a dbname=d echo=e index=i jobs=j quiet=q system=s schema=S table=t verbose=v"
    " concurrently maintenance-db: tablespace:",
    "clusterdb": f"{_CONNECTION} all=a dbname=d echo=e quiet=q table=t verbose=v maintenance-db:",
    "pgcopydb": "source: target: dir: snapshot: jobs: table-jobs: index-jobs: restore-jobs: large-objects-jobs:"
    " split-tables-larger-than: split-max-parts: filters: filter: requirements: plugin: slot-name: origin: endpos:"
    " drop-if-exists roles no-owner no-acl no-comments no-tablespaces skip-large-objects skip-extensions skip-vacuum"
    " skip-analyze skip-collations skip-db-properties skip-split-by-ctid estimate-table-sizes restart resume"
    " not-consistent follow verbose debug trace quiet json",
}
