-- 16 added the role pg_use_reserved_connections; pg_has_role() is true for every superuser, without membership.
SELECT r.rolname AS name, r.rolconnlimit AS connection_limit, r.rolsuper AS superuser,
       NOT r.rolsuper AND pg_catalog.pg_has_role(r.oid, 'pg_use_reserved_connections', 'USAGE') AS reserved
  FROM pg_catalog.pg_roles r
 WHERE r.rolcanlogin
   AND (r.rolconnlimit >= 0 OR r.rolsuper OR pg_catalog.pg_has_role(r.oid, 'pg_use_reserved_connections', 'USAGE'))
 ORDER BY r.rolname
 LIMIT 500
