//! The command line. Each doc comment is the help text of its command or flag.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use postern_process::command_line::WithFile;
use postern_process::logs::subscriber::LogArgs;
use postern_transport::net::listener::ip_address_and_port;
use postern_transport::tls::TlsArgs;

/// Puts the sidecar into Kubernetes manifests and pods, and finds what only looks protected
#[derive(Debug, Parser)]
#[command(name = "postern-k8s", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl WithFile for Cli {}

const EXAMPLES: &str = "\
Examples:
  postern-k8s inject -f deployment.yaml --image $IMAGE \\
    --set POSTERN_AUTH_SERVER=dns://auth.identity.svc:9000/auth | kubectl apply -f -
  postern-k8s lint -f deployment.yaml";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put the sidecar into Kubernetes manifests
    ///
    /// Into every workload labelled postern/sidecar: "true", and in front of it in the Services
    /// that select its pods
    Inject(InjectArgs),
    /// Name what `inject` would change or reject in Kubernetes manifests; exit code 78 for any
    Lint(LintArgs),
    /// Serve the admission webhook of a Kubernetes cluster, which puts the sidecar into labelled
    /// pods as `inject` does
    Webhook(Box<WebhookArgs>),
}

/// The sidecars that are put into pods.
#[derive(Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct SidecarsArgs {
    /// Image of the sidecars; by default localhost/postern/sidecar with the version of this program
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,

    /// A setting of all sidecars as its variable; repeatable
    ///
    /// As in POSTERN_AUTH_SERVER=dns://auth.identity.svc:9000/auth; an empty value takes the
    /// default away
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,

    /// A resource of the sidecars, as in memory-limit=512Mi; repeatable
    ///
    /// cpu-request, cpu-limit, memory-request, memory-limit; none after the = takes the default
    /// away. What they take on at a time follows from the memory. Annotations of pods count more
    #[arg(long, value_name = "NAME=QUANTITY")]
    pub(crate) resources: Vec<String>,

    /// User id of the sidecars, 65532 by default; an empty one leaves it to the cluster, as
    /// OpenShift demands. Annotations of pods count more
    #[arg(long, value_name = "ID")]
    pub(crate) run_as_user: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InjectArgs {
    /// File of manifests; - for standard input. Repeatable: a Service may be in another file than its
    /// pods
    #[arg(short = 'f', long = "file", default_value = "-", value_name = "FILE")]
    pub(crate) files: Vec<String>,

    /// Print the objects of one kind alone
    ///
    /// In front of running pods, first the workloads with all that is no Service, and after their
    /// rollout the Services
    #[arg(long, value_name = "KIND")]
    pub(crate) only: Option<Only>,

    /// Take away what was put in, and put back what was replaced
    #[arg(long)]
    pub(crate) remove: bool,

    #[command(flatten)]
    pub(crate) sidecars: SidecarsArgs,
}

/// The objects that are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Only {
    /// All that is no Service
    Workloads,
    /// Services
    Services,
}

#[derive(Debug, Args)]
pub(crate) struct LintArgs {
    /// File of manifests; - for standard input. Repeatable
    #[arg(short = 'f', long = "file", default_value = "-", value_name = "FILE")]
    pub(crate) files: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WebhookArgs {
    /// Address to serve on; port 0 picks a free one
    #[arg(
        long,
        default_value = "[::]:8443",
        value_parser = ip_address_and_port,
        value_name = "ADDRESS"
    )]
    pub(crate) listen: SocketAddr,

    /// Address for probes and metrics; port 0 picks a free one
    #[arg(
        long,
        default_value = "[::]:8081",
        value_parser = ip_address_and_port,
        value_name = "ADDRESS"
    )]
    pub(crate) admin_listen: SocketAddr,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,

    /// PEM file of authorities: the API server must present a certificate of one of them; followed
    /// when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) sidecars: SidecarsArgs,

    #[command(flatten)]
    pub(crate) logs: LogArgs,
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_documents_say_what_the_command_line_takes() {
        let command = postern_process::command_line::command::<super::Cli>();
        ::tests::tables::reference::hold_tables(&command);
    }
}
