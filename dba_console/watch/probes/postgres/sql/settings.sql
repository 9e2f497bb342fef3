-- Settings the console uses; rows that the role may not see are missing.
SELECT name, setting, unit, source
  FROM pg_catalog.pg_settings
 WHERE name = ANY ($1::text[])
 ORDER BY name
