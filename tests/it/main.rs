//! Tests against real servers: one binary, one PostgreSQL and one RabbitMQ, each test with a database, queues and
//! exchanges of its own. Tests that break a server start their own.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

mod harness;
mod world;

mod afterwards;
mod append;
mod background;
mod bulk;
mod check;
mod commands;
mod database;
mod due;
mod examples;
mod faults;
mod guilty;
mod inbox;
mod inflow;
mod init;
mod lifecycle;
mod logs;
mod matrix;
mod opening;
mod operate;
mod order;
mod original;
mod outcomes;
mod package;
mod payload;
mod refused;
mod routing;
mod servers;
mod stage1;
mod systemd;
mod tls;
mod visibility;
mod wakeup;
mod watching;
