-- How many bytes a row brings into memory, with its payload as the text that is published. Part of several statements.
-- Parameters: $5 payload_max and $6 the most text that can be headers, in bytes: what is larger is not fetched, and
-- counts 0.
(
    coalesce(case when octet_length({payload_text}) <= $5 then octet_length({payload_text}) end, 0)::bigint
    + coalesce(case when octet_length(headers::text) <= $6 then octet_length(headers::text) end, 0)::bigint
)
