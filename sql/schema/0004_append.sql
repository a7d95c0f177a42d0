-- What applications call to write an event, in the transaction that makes the change it tells of. It returns the
-- event's id. It refuses (SQLSTATE 22023) what the relay could never send, which would end as a dead event otherwise.
-- Runs with the rights of its caller, who needs `insert` on the table. Applied again, it replaces itself.

create or replace function {append}(
    event_type   text,
    payload      text,
    ordering_key text     default null,
    headers      jsonb    default null,
    expires_in   interval default null,
    available_in interval default null,
    exchange     text     default null,
    routing_key  text     default null,
    event_id     text     default null
) returns text
language plpgsql volatile security invoker
as $body$
#variable_conflict use_variable
declare
    written_at constant timestamptz := clock_timestamp();
    -- Whatever type the column has, an enum too.
    kind {table}.event_type%type;
    -- Crockford's digits, each 5 bits of a ULID.
    digits constant text := '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
    random text;
    bits bit varying;
    fault text := case
        when coalesce(event_type, '') = '' then 'event_type is empty'
        when octet_length(event_type) > 255 then 'event_type has more than 255 bytes'
        when payload is null then 'payload is null'
        when octet_length(ordering_key) > 1024 then 'ordering_key has more than 1024 bytes'
        when jsonb_typeof(headers) <> 'object' then 'headers is not an object'
        when octet_length(exchange) > 200 then 'exchange has more than 200 bytes'
        when octet_length(routing_key) > 255 then 'routing_key has more than 255 bytes'
        when event_id = '' then 'event_id is empty'
        when octet_length(event_id) > 255 then 'event_id has more than 255 bytes'
        when expires_in <= interval '0' then 'expires_in is not positive'
        when available_in >= expires_in then 'it would expire before it is available'
    end;
begin
    -- Apart, because an expression with a query in it costs every call that of a query. Short headers can only be wrong in
    -- those two that the broker reads itself.
    if fault is null and (octet_length(headers::text) > 255 or headers ?| array['CC', 'BCC']) then
        -- Every value at every depth, and the bytes that it takes in a message: its type, its length, itself.
        with node as materialized (
            select
                value,
                case jsonb_typeof(value)
                    when 'null' then 1
                    when 'boolean' then 2
                    when 'number' then 9
                    when 'string' then 5 + octet_length(value #>> '{}')
                    when 'array' then 5
                    else 5 + (select coalesce(sum(1 + octet_length(name)), 0) from jsonb_object_keys(value) as name)
                end as bytes
            from jsonb_path_query(headers, 'strict $.**') as value
        )
        select case
            when octet_length(headers::text) > 1048576 then 'headers has more than 1048576 bytes'
            when jsonb_path_exists(headers, 'strict $.**{127 to last} ? (@.type() == "object" || @.type() == "array")')
                then 'headers is nested too deeply'
            when exists (
                select
                from node
                cross join lateral jsonb_object_keys(
                    case jsonb_typeof(node.value) when 'object' then node.value else '{}' end
                ) as name
                where octet_length(name) > 255
            ) then 'headers has a name of more than 255 bytes'
            when (select count(*) - 1 from node) > 2000 then 'headers has more than 2000 values'
            when (select sum(bytes) - 1 from node) > 129872 then 'headers takes more than a message can carry'
            when jsonb_path_exists(headers, 'strict $.** ? (@.type() == "number" && @.abs() > 1.7976931348623157e308)')
                then 'headers has a number that is too large'
            when exists (
                select
                from jsonb_path_query(headers, 'strict $.keyvalue() ? (@.key == "CC" || @.key == "BCC").value') as keys
                where jsonb_typeof(keys) <> 'array'
                    or jsonb_path_exists(keys, 'strict $[*] ? (@.type() != "string")')
                    or exists (
                        select
                        from jsonb_array_elements_text(case jsonb_typeof(keys) when 'array' then keys else '[]' end) as key
                        where octet_length(key) > 255
                    )
            ) then 'header CC or BCC is not an array of routing keys'
        end
        into fault;
    end if;
    if fault is not null then
        raise exception using errcode = '22023', message = 'the event could never be sent: ' || fault;
    end if;
    if event_id is null then
        -- 2 bits of nothing, 48 of milliseconds since 1970, 80 random ones: those of a UUID that are not fixed.
        random := replace(gen_random_uuid()::text, '-', '');
        bits := B'00'
            || ('x' || lpad(to_hex(floor(extract(epoch from written_at) * 1000)::bigint), 12, '0'))::bit(48)
            || ('x' || left(random, 12))::bit(48)
            || ('x' || right(random, 8))::bit(32);
        event_id := '';
        for digit in 0..25 loop
            event_id := event_id
                || substr(digits, substring(bits from 5 * digit + 1 for 5)::bit(5)::integer + 1, 1);
        end loop;
    end if;
    kind := event_type;
    insert into {table} (
        event_id, event_type, payload, status, created_at, fail_count,
        ordering_key, headers, exchange, routing_key, expired_at, available_at
    )
    values (
        event_id, kind, {payload_value}, 'WAITING', written_at, 0,
        ordering_key, headers, exchange, routing_key, written_at + expires_in, written_at + available_in
    );
    return event_id;
end
$body$;
