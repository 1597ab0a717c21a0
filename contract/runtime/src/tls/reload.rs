//! The reload of a certificate while the program runs: every few seconds, and at SIGHUP.

use std::io;
use std::sync::Arc;

use tracing::{error, info};

use super::certificate::ServerCertificate;
use super::metrics::CertificateMetrics;
use crate::clock::unix_now;
use crate::file_watch::{FailureDedup, PollTimer, Transition, run_blocking};

/// Follows the files of `certificate` for as long as the process lives.
///
/// # Errors
/// If the handler of SIGHUP cannot be installed.
pub fn follow(
    certificate: Arc<ServerCertificate>,
    metrics: CertificateMetrics,
) -> io::Result<impl Future<Output = ()> + Send> {
    let mut timer = PollTimer::start()?;
    metrics.report(certificate.not_after(), None);
    Ok(async move {
        let mut failures = FailureDedup::after_two_polls();
        loop {
            timer.next().await;
            let reloaded = Arc::clone(&certificate);
            let polled = run_blocking(move || reloaded.reload(unix_now())).await;
            let Some(transition) = failures.transition(polled) else {
                continue;
            };
            log(&transition);
            metrics.report(certificate.not_after(), Some(&transition));
        }
    })
}

fn log(transition: &Transition) {
    match transition {
        Transition::Replaced => info!("a new TLS certificate is presented from now on"),
        Transition::Recovered => info!("the files of the TLS certificate can be used again"),
        Transition::Unusable(failure) => {
            error!(%failure, "the TLS certificate cannot be used: keeping the previous one");
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::super::certificate::tests::{Files, pair};
    use super::*;

    #[tokio::test]
    async fn changed_files_are_used_by_themselves() {
        let (cert, key) = pair(2100);
        let files = Files::with(&cert, &key);
        let certificate = Arc::new(files.open().unwrap());
        let following = follow(Arc::clone(&certificate), CertificateMetrics::default());
        tokio::spawn(following.unwrap());

        let (cert, key) = pair(2099);
        files.write(&cert, &key);
        let replaced = async {
            while certificate.not_after() != 4_070_908_800 {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let replaced = timeout(Duration::from_secs(30), replaced).await;
        assert!(replaced.is_ok(), "the old certificate is still presented");
    }
}
