//! The end-to-end tests: real binaries, real sockets, actors around them.
//!
//! One module for each area; names are sentences and begin with the row of the contract they prove
//! (`contract_4_1_rule_1_…`). The README lists row → test.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod e2e {
    mod abusive_clients;
    mod access_lines;
    mod address_families;
    mod ambiguous_requests;
    mod application_records;
    mod attack_tokens;
    mod audience;
    mod audit_lines;
    mod auth_server_paths;
    mod auth_server_tls;
    mod bodies;
    mod check;
    mod check_online;
    mod check_store;
    mod claim_headers;
    mod client_tls;
    mod command_line;
    mod completions;
    mod conformance;
    mod connection_slots;
    mod cors;
    mod current_user;
    mod cut_off_responses;
    mod dev;
    mod documents;
    mod encryption_at_rest;
    mod envelope;
    mod explain;
    mod explained;
    mod failures;
    mod file_store;
    mod forwarding;
    mod grants;
    mod greedy_clients;
    mod grpc_rejections;
    mod http2;
    mod inject;
    mod interim_responses;
    mod interop;
    mod invalid_keys;
    mod issuers;
    mod joined_fields;
    mod json_log;
    mod key_cache;
    mod key_refresh;
    mod languages;
    mod login;
    mod mcp;
    mod oauth_clients;
    mod oauth_metadata;
    mod operation;
    mod pass_list;
    mod paths;
    mod pipelining;
    mod protected_resource;
    mod queries;
    mod quiet_log;
    mod raw_requests;
    mod real_issuers;
    mod redis_store;
    mod redis_topologies;
    mod refresh_tokens;
    mod registry;
    mod reload;
    mod replaced_files;
    mod report_only;
    mod request_fields;
    mod revocation;
    mod revocation_gaps;
    mod rooms;
    mod rotation;
    mod rules;
    mod secret_key;
    mod secrets;
    mod service_probes;
    mod service_versions;
    mod settings;
    mod several_issuers;
    mod shares;
    mod signing_types;
    mod special_files;
    mod spoofing;
    mod spring;
    mod store_crashes;
    mod store_failures;
    mod store_soak;
    mod stored_keys;
    mod streams;
    mod surplus;
    mod tls;
    mod token_cache;
    mod token_headers;
    mod token_locations;
    mod traces;
    mod unknown_keys;
    mod unread_bodies;
    mod unread_log;
    mod unread_responses;
    mod upstream_failures;
    mod upstreams;
    mod users;
    mod webhook;
}
