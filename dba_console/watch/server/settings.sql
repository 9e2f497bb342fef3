-- Settings the console uses; rows that the role may not see are missing. primary_conninfo and restore_command are left
-- out: they may contain a password.
SELECT name, coalesce(setting, '') AS value, unit, source
  FROM pg_catalog.pg_settings
 WHERE name = ANY ('{
        archive_command, archive_library, archive_mode, archive_timeout, autovacuum,
        autovacuum_freeze_max_age, autovacuum_max_workers, autovacuum_multixact_freeze_max_age,
        block_size, checkpoint_timeout, cluster_name, config_file, data_checksums, data_directory,
        hba_file, hot_standby_feedback, huge_page_size, huge_pages, huge_pages_status,
        idle_in_transaction_session_timeout, io_method, listen_addresses, log_destination, log_directory,
        logging_collector, max_connections, max_prepared_transactions, max_replication_slots,
        max_slot_wal_keep_size, max_wal_senders, max_wal_size, port, recovery_min_apply_delay,
        recovery_target, recovery_target_lsn, recovery_target_name, recovery_target_time,
        recovery_target_xid, reserved_connections, server_encoding, shared_buffers,
        superuser_reserved_connections, synchronous_standby_names, temp_tablespaces,
        track_activity_query_size, track_counts, track_io_timing, track_wal_io_timing,
        unix_socket_directories, update_process_title, vacuum_failsafe_age, vacuum_multixact_failsafe_age,
        wal_keep_size, wal_level, wal_segment_size
       }'::text[])
 ORDER BY name
