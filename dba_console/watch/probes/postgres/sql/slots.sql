-- pg_replication_slots.
SELECT slot_name::text, slot_type, database::text, active_pid, temporary, xmin, catalog_xmin, restart_lsn,
       confirmed_flush_lsn, wal_status, safe_wal_size, NULL::timestamptz, NULL::text, NULL::bool
  FROM pg_catalog.pg_replication_slots
 ORDER BY slot_name
