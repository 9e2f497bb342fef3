-- Lines of the configuration files that are not in effect because of an error, a missing restart among them.
SELECT f.name, CASE WHEN s.pending_restart THEN f.setting END AS value, f.sourcefile AS file, f.sourceline AS line, f.error
  FROM pg_catalog.pg_file_settings f
  LEFT JOIN pg_catalog.pg_settings s ON s.name = f.name
 WHERE f.error IS NOT NULL
 ORDER BY f.seqno
 LIMIT 100
