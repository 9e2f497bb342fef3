-- One progress view, whatever its columns are in this version: each row as JSON, which costs nothing while there is
-- none.
SELECT '{view}'::text, pg_catalog.row_to_json(p)::text FROM pg_catalog.{view} p
