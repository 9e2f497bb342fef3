"""For shared copies: SQL keywords and ordinary words, which are replaced only where a name stands."""

from __future__ import annotations

_KEYWORDS_TEXT = """
    abort absolute access action add admin after aggregate all also alter always analyse analyze and any array as
    asc asensitive assertion assignment asymmetric at atomic attach attribute authorization backward before begin
    between bigint binary bit boolean both breadth by cache call called cascade cascaded case cast catalog chain
    char character characteristics check checkpoint class close cluster coalesce collate collation column columns
    comment comments commit committed compression concurrently configuration conflict connection constraint
    constraints content continue conversion copy cost create cross csv cube current current_catalog current_date
    current_role current_schema current_time current_timestamp current_user cursor cycle data database day
    deallocate dec decimal declare default defaults deferrable deferred definer delete delimiter delimiters depends
    depth desc detach dictionary disable discard distinct do document domain double drop each else enable encoding
    encrypted end enum escape event except exclude excluding exclusive execute exists explain expression extension
    external extract false family fetch filter finalize first float following for force foreign forward freeze from
    full function functions generated global grant granted greatest group grouping groups handler having header hold
    hour identity if ilike immediate immutable implicit import in include including increment index indexes inherit
    inherits initially inline inner inout input insensitive insert instead int integer intersect interval into
    invoker is isnull isolation join key label language large last lateral leading leakproof least left level like
    limit listen load local localtime localtimestamp location lock locked logged mapping match matched materialized
    maxvalue merge method minute minvalue mode month move name names national natural nchar new next nfc nfd nfkc
    nfkd no none normalize normalized not nothing notify notnull nowait null nullif nulls numeric object of off
    offset oids old on only operator option options or order ordinality others out outer over overlaps overlay
    overriding owned owner parallel parameter parser partial partition passing password placing plans policy
    position preceding precision prepare prepared preserve primary prior privileges procedural procedure procedures
    program publication quote range read real reassign recheck recursive ref references referencing refresh reindex
    relative release rename repeatable replace replica reset restart restrict return returning returns revoke right
    role rollback rollup routine routines row rows rule savepoint schema schemas scroll search second security
    select sequence sequences serializable server session session_user set setof sets share show similar simple skip
    smallint snapshot some sql stable standalone start statement statistics stdin stdout storage stored strict strip
    subscription substring support symmetric sysid system table tables tablesample tablespace temp template
    temporary text then ties time timestamp to trailing transaction transform treat trigger trim true truncate
    trusted type types uescape unbounded uncommitted unencrypted union unique unknown unlisten unlogged until update
    user using vacuum valid validate validator value values varchar variadic varying verbose version view views
    volatile when where whitespace window with within without work wrapper write xml xmlattributes xmlconcat
    xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable year yes zone
"""
KEYWORDS = frozenset(_KEYWORDS_TEXT.split())
"""pg_get_keywords() of PostgreSQL 15."""

_BUILT_IN_TEXT = """
    abs aclitem age application_name array_agg array_append array_length array_position array_remove array_to_string
    avg backend_start backend_type backend_xid backend_xmin bigserial bit_length bool bool_and bool_or box bpchar
    brin btree btrim bytea cardinality ceil ceiling char_length cid cidr circle citext classid client_addr
    client_hostname client_port clock_timestamp cmax cmin concat concat_ws count ctid cume_dist currval date_bin
    date_part date_trunc datemultirange daterange datfrozenxid datid datname decode dense_rank digest encode every
    excluded exp fastpath first_value float4 float8 floor flush_lag flush_lsn format format_type gen_random_uuid
    generate_series get_byte gin gist granted has_table_privilege hash hashtext heap hstore indexrelid indisvalid
    inet initcap int2 int4 int4range int8 int8range isfinite json json_agg json_array_elements json_build_array
    json_build_object json_extract_path json_object_agg json_populate_record jsonb jsonb_agg jsonb_array_elements
    jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text jsonb_extract_path_text
    jsonb_object_agg jsonb_path_query jsonb_set jsonb_typeof lag last_value lastval lead leader_pid length line ln
    locktype log lower lpad lseg ltrim macaddr macaddr8 make_date make_interval max md5 min mod money name nextval
    now nspname ntile num_nonnulls numrange objid octet_length oid path percent_rank percentile_cont percentile_disc
    pid plpgsql point polygon power query query_id query_start quote_ident quote_literal quote_nullable random rank
    refcursor regclass regconfig regexp_match regexp_matches regexp_replace regexp_split_to_array
    regexp_split_to_table regnamespace regoper regproc regprocedure regrole regtype relfrozenxid relid relkind
    relname relpages reltuples repeat replace replay_lag replay_lsn restart_lsn reverse rolname round row_number
    row_to_json rpad rtrim sent_lsn serial serial4 serial8 set_config setval sha256 sign slot_name slot_type
    smallserial spgist split_part sqrt starts_with state state_change statement_timestamp stddev stddev_pop
    stddev_samp string_agg string_to_array strpos sum sync_state tableoid tid timestamptz timetz to_char to_date
    to_json to_jsonb to_number to_regclass to_timestamp to_tsquery to_tsvector transaction_timestamp transactionid
    translate trunc ts_rank tsquery tsrange tstzrange tsvector txid_current unnest upper usename usesysid uuid
    var_pop var_samp varbit variance virtualtransaction virtualxid wait_event wait_event_type waitstart wal_status
    width_bucket write_lag write_lsn xact_start xid xid8 xmax xmin xmlagg
"""
BUILT_IN = frozenset(_BUILT_IN_TEXT.split())
"""Functions, types and columns that are PostgreSQL's own."""

_MESSAGES_TEXT = """
    abbreviations above acknowledged acquire activities activity addresses age agent alarm alert allow am an append
    application apply archive args assertions async auth authentication autovacuum average backend backslash
    backtrace be behind bgwriter bias bitcode bitmapscan block blocked blocker bodies bonjour buffer buffers bytea
    bytes caches caseins cert changed checking checkpoints checksum checksums ciphers cleanup cleared client
    collapse collector command commands compat completion compute concurrency config conforming connections conninfo
    consistency console count counts cpu crash critical crl ctype current curve damaged datestyle datetimes days db
    deadlock debug debugging decode decoding defer deforming delay destdir destination detected device devices
    digits dir directories directory dirty disconnections done down dump duration dynamic ecdh effective effort
    elapsed encryption ended equals error errors estimated exclusion executor exit expressions extra facility factor
    failed failsafe failure feedback file filename files finding findings finished flush fraction free fsync fuzzy
    gap gather gathermerge gb generations geqo gin go growing growth hang hangs hash hashagg hashjoin hba he
    heartbeat high hints hit host hostname hosts hot hours hrs huge id ident identifier identifiers idle ignore
    inclusive incremental indexonlyscan indexscan info init intervalstyle invalid io ip it jit job jobs kb keep
    keepalives kernel keyfile keys kill killed kind known krb last late leader length level libraries library line
    list locks log logging logical longest lost low lru lsn maintenance material max maxpages mb me measured mem
    memoize memory mergejoin messages min minute minutes miss missing mods monetary monitor more mount mounts ms
    multiplier multixact my namespace naptime nestloop network node nodes nonsystem normal note ns num number
    numbers object objects ok open operation operations operator optimize os output page pages params parse
    participation partitionwise passphrase path pct pending per percent permissions pg picture pid place plan
    planner pool pooler port post postgresql pre pred prefer prefetch prefix preload pressure pretty print problem
    process processes profiling program programs progress promote protocol provider pruning query random rate
    reached reader reading ready receiver reclaim recording recovery recycle refused relation reload remove
    replication reserved restore restored retained retrieve retry reverted rewritten rotation rows run running runs
    sample sampled samples saved scale scan second seconds seed segment selection sender senders sent seq seqscan
    seqscans session sessions setup shared siblings size slot slots slow so socket sort source space speed split ssl
    stack stage stalled standard standby started startup state stats status stopped storage streaming string strings
    subject sum superuser supports swap sync synchronize synchronous syslog tablespaces target tb tcp then thread
    threads threshold throughput tidscan timeline timeout timezone timing title toast total trace track transactions
    tree trend tuple unavailable unix unknown up us usage used users verbosity vs waiter waiting waits wal warning
    we week worker workers worktable writer writes writing written xid xmlbinary xmloption zero
"""
_MESSAGES = frozenset(_MESSAGES_TEXT.split())
"""Words in names of settings (pg_settings of PostgreSQL 15), in messages, and in names of fields."""

_FORMAT_TEXT = """
    aborted about ack actions active actual addr address again against ahead alloc allocated altered anon answer
    answered answers app approve archived argv ask asked attributes attrs author auto autofailover available avg10
    avg60 await axis back backends background backlog backup backups bar bare basebackup began begins begun beside
    blind blocks body boot brain branch busy cached cancel cause cgroup checks child choice choices chosen clear
    clients clock closed clusterdb code collations cols commits compact complete configured confirm confirmed
    conflicts connect connected consoles const context control counted counter crashed crit cron custom cut cuts
    cutting damage databases date datname dbname dead decision defrag delayed delta demo denied deny description
    details deviation direct disabled disk disks doctor driver droppable dropped dumpall dumps earliest empty
    enabled ending environment events evictions evidence exact exec execution extends extensions failing failover
    failures fallback far fast fell fenced few fields filling findings fix flash flight follow forget found freed
    fstype fsyncs gaps gauge given gone goto grace greater head height held help hidden hint history hits holder
    holders holds horizon hostaddr incident inode inodes inputs intent interrupted invalidation item items joined
    journal journald jsonl judged jump keeper kills kind kswapd lagging lags lane largest latest less life lines
    link literal live logfile login long loop lsns made major majority managers many mapped mark maxwait may
    measures message met meta metrics minus mono most multixacts mxid near need needed newest news notice nspname
    numa occurred oldest oom opened origin other outage outgrown overdue own pagecache panel panels parts paths
    patroni patronictl pattern paused persistent pgappname pgcopydb pgdatabase pghost pghostaddr pgpgin pgpgout
    pguser phase phases pids pipefail places plain planned plus poolers postmaster preview proactive problems
    processed procs promoted prompt properties prose pruned ptr publishes put queries question queue quiet raised
    ratio reads reason received reclaimable reclaims record recorded recorder records refault refusal regular
    reindexdb relname reltuples remote repack replay replayed replicates repmgr report request requests required
    reread resource rest restarted result resumed retention returned rewind rhost roles rolname roomy root rose rss
    runbook runbooks safe safety saturated says scope screen script secret seen selected self series service
    setting settings settled several severity shell shipped shmem shown shutdown signal signalled silenced silent
    since skipped slab sleep smart soon spans spared spcname spill spread sqlstate sslmode sslpassword stale stall
    stalls stamp standbys standstill starting starts states step steps stop storm stream streamed streams stuck
    summary superusers synced synchronized sys sysctl tag tar term terminate than thp tick ticks timed timelines
    times titles tli tls tmpfs together told too took torn trees trends trust tuples unanswered unconfirmed
    undecided undo undone unit unreachable unreached unread unreadable unsilenced unsupported untrusted upstream
    uptime usable use usename username usual utc util vacuumdb vacuums verb verdict verify wait wall walsender
    wanted warn warnings was watch watched what while who whole width word worst wraparound writable xact xids
"""
_FORMAT = frozenset(_FORMAT_TEXT.split())
"""Words in names of members of events, evidence and records, of tables of a recording, of findings and runbooks."""

ORDINARY = KEYWORDS | BUILT_IN | _MESSAGES | _FORMAT
"""A name that is one of these is replaced only where it stands as a name."""
