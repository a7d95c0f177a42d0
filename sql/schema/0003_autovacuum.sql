-- A queue's rows are updated once or twice each and then left alone: dead rows pile up faster than the defaults of
-- autovacuum expect, and each claim walks over what they leave in the indexes. `outboxd init` leaves a table alone for
-- which someone has chosen such parameters already.
alter table {table} set (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1
);
