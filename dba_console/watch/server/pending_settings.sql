-- Settings whose value in the files differs from the one in effect, until a restart.
SELECT name, setting AS value, unit
  FROM pg_catalog.pg_settings
 WHERE pending_restart
 ORDER BY name
 LIMIT 100
