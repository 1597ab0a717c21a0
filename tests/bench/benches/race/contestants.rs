//! Contestants: each a process with one worker thread in front of the same service.

pub(crate) mod envoy;
pub(crate) mod haproxy;
pub(crate) mod nginx;

use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

use bench::cpu;
use tempfile::TempDir;
use tests::actors::process::Process;
use tests::wait;
use tests::wire::certificates::Certificate;

/// A running contestant, or the service behind them.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    process: Process,
    /// Directory of its configuration.
    _directory: Option<TempDir>,
}

impl Running {
    /// Waits until it accepts connections.
    pub(crate) fn new(
        name: &str,
        address: SocketAddr,
        mut process: Process,
        directory: Option<TempDir>,
    ) -> Self {
        wait::until(&format!("{name} to listen"), || {
            assert!(process.ended().is_none(), "{name}: {}", process.output());
            TcpStream::connect(address).ok()
        });
        Self {
            address,
            process,
            _directory: directory,
        }
    }

    pub(crate) fn cpu_time(&self) -> Duration {
        cpu::time_of(self.process.id())
    }

    /// Pins the process to these processors.
    pub(crate) fn pin(&self, processors: Range<usize>) -> bool {
        cpu::pin(self.process.id(), processors)
    }

    /// Returns the resident memory in MiB.
    pub(crate) fn resident_mib(&self) -> f64 {
        resident_mib(&self.process)
    }
}

/// How a contestant is set up, apart from its rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) threads: usize,
    /// The certificate to serve TLS with.
    pub(crate) tls: Option<&'a Certificate>,
    /// More flags of the sidecars.
    pub(crate) flags: &'a [&'a str],
}

impl Setup<'_> {
    /// One worker thread, no TLS.
    pub(crate) const PLAIN: Self = Self {
        threads: 1,
        tls: None,
        flags: &[],
    };
}

pub(crate) fn resident_mib(process: &Process) -> f64 {
    let kib = process.resident_kib().expect("VmRSS in /proc");
    #[expect(clippy::cast_precision_loss, reason = "far less than 2^52 KiB")]
    let mib = kib as f64 / 1024.0;
    mib
}
