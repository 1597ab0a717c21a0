//! Clients that take more than their share.

mod abusive_clients;
mod connection_slots;
mod greedy_clients;
mod shares;
mod special_files;
mod unread_log;
