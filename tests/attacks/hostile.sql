-- Everything of pg_catalog once more, in a schema that comes before it. Whoever calls any of it by its bare name calls
-- the owner's function, with his own rights, and the server's log has a line.
create schema evil;
create function evil.called(what pg_catalog.text) returns pg_catalog.bool language plpgsql as $$
begin raise log 'EVIL %', what; return true; end $$;

-- functions, by every list of arguments that a function of ours can have
do $$
declare one record; made pg_catalog.int4 := 0;
begin
  for one in
    select p.oid, p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid) as arguments, p.proretset,
           pg_catalog.format_type(p.prorettype, null) as result
      from pg_catalog.pg_proc p join pg_catalog.pg_type r on r.oid = p.prorettype
     where p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace and p.prokind = 'f' and not p.proretset
       and p.provariadic = 0 and r.typtype in ('b', 'd')
       and not exists (select from pg_catalog.unnest(p.proargtypes) t join pg_catalog.pg_type y on y.oid = t
                        where y.typtype = 'p')
       and p.proallargtypes is null
  loop
    begin
      execute pg_catalog.format(
        'create function evil.%I(%s) returns %s language plpgsql as $f$ begin perform evil.called(%L); return null; end $f$',
        one.proname, one.arguments, one.result, 'function ' || one.proname);
      made := made + 1;
    exception when others then null;
    end;
  end loop;
  if made < 1000 then raise exception 'only % functions', made; end if;
end $$;

-- operators
do $$
declare one record; made pg_catalog.int4 := 0;
begin
  for one in
    select o.oprname, pg_catalog.format_type(o.oprleft, null) as l, pg_catalog.format_type(o.oprright, null) as r,
           pg_catalog.format_type(o.oprresult, null) as result
      from pg_catalog.pg_operator o join pg_catalog.pg_type y on y.oid = o.oprresult
     where o.oprkind = 'b' and y.typtype = 'b'
  loop
    begin
      execute pg_catalog.format(
        'create function evil.op_%s(a %s, b %s) returns %s language plpgsql as $f$ begin perform evil.called(%L);'
        ' return a operator(pg_catalog.%s) b; end $f$', made, one.l, one.r, one.result,
        'operator ' || one.l || ' ' || one.oprname || ' ' || one.r, one.oprname);
      execute pg_catalog.format('create operator evil.%s (leftarg = %s, rightarg = %s, function = evil.op_%s)',
        one.oprname, one.l, one.r, made);
      made := made + 1;
    exception when others then null;
    end;
  end loop;
  if made < 300 then raise exception 'only % operators', made; end if;
end $$;

-- tables and views
do $$
declare one record;
begin
  for one in
    select c.relname from pg_catalog.pg_class c
     where c.relnamespace = 'pg_catalog'::pg_catalog.regnamespace and c.relkind in ('r', 'v')
  loop
    begin
      execute pg_catalog.format('create view evil.%I as select * from pg_catalog.%I where evil.called(%L)',
        one.relname, one.relname, 'view ' || one.relname);
    exception when insufficient_privilege or invalid_table_definition then null;
    end;
  end loop;
end $$;

-- types, and with them casts
do $$
declare one record;
begin
  for one in
    select t.typname from pg_catalog.pg_type t
     where t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace and t.typtype = 'b' and t.typcategory <> 'A'
       and t.typname !~ '^_'
  loop
    begin
      execute pg_catalog.format('create domain evil.%I as pg_catalog.%I check (evil.called(%L))',
        one.typname, one.typname, 'type ' || one.typname);
    exception when others then null;
    end;
  end loop;
end $$;
