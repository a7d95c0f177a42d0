//! lib
pub mod config;
pub mod confirm;
pub mod error;
pub mod event;
pub mod message;
pub mod outbox;
pub mod policy;
pub mod publisher;
pub mod relay;
pub mod route;
