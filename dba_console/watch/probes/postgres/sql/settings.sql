-- Settings the console explains itself by; rows a role may not see are not there.
SELECT name, setting, unit, source
  FROM pg_catalog.pg_settings
 WHERE name = ANY ($1::text[])
 ORDER BY name
