//! The registry settings of both programs, besides its address.

use std::path::PathBuf;

use clap::Args;
use runtime::command_line::not_empty;
use serde::Serialize;

/// The default of Nacos.
pub(crate) const DEFAULT_GROUP: &str = "DEFAULT_GROUP";
/// Contract §1.
pub(crate) const DEFAULT_SERVICE: &str = "auth";

/// Settings that, serialised, are part of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RegistryArgs {
    /// Namespace in the registry, by its id; empty: public
    #[arg(long, env, value_name = "ID", default_value = "")]
    pub registry_namespace: String,
    /// Group in the registry
    #[arg(long, env, value_name = "NAME", default_value = DEFAULT_GROUP,
          value_parser = not_empty)]
    pub registry_group: String,
    /// The auth server's name in the registry
    #[arg(long, env, value_name = "NAME", default_value = DEFAULT_SERVICE,
          value_parser = not_empty)]
    pub registry_service: String,
    /// File holding the password of the registry's user
    #[arg(long, env, value_name = "FILE")]
    pub registry_password_file: Option<PathBuf>,
}
