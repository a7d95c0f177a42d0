-- Creates the schema that the table is to live in.
create schema if not exists {schema};

