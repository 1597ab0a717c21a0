//! The routes of the auth server: login, grants, applications, users.

mod application_records;
mod auth_server_paths;
mod auth_server_tls;
mod envelope;
mod grants;
mod login;
mod oauth_clients;
mod oauth_metadata;
mod refresh_tokens;
mod users;
