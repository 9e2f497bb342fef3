-- Roles that matter when slots run out: with a limit of their own, or with access to the reserved slots.
SELECT rolname AS name, rolconnlimit AS connection_limit, rolsuper AS superuser
  FROM pg_catalog.pg_roles
 WHERE rolcanlogin AND (rolconnlimit >= 0 OR rolsuper)
 ORDER BY rolname
 LIMIT 500
