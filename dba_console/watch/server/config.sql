-- When the configuration files were last loaded.
SELECT pg_catalog.pg_conf_load_time() AS loaded_at
