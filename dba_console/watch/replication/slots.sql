-- pg_replication_slots.
SELECT slot_name::text AS name, slot_type AS kind, database::text AS database, active_pid, temporary, xmin,
       catalog_xmin, restart_lsn, confirmed_flush_lsn, wal_status, safe_wal_size
  FROM pg_catalog.pg_replication_slots
 ORDER BY slot_name
