//! The reload of a certificate while the program runs: every few seconds, and at SIGHUP.

use std::io;
use std::sync::Arc;

use super::certificate::ServerCertificate;
use super::metrics::CertificateMetrics;
use crate::files::file_watch::{self, PollTimer, Transition};
use crate::process::clock::unix_now;

/// Follows the files of `certificate` for as long as the process lives.
///
/// # Errors
/// If the handler of SIGHUP cannot be installed.
pub fn follow(
    certificate: Arc<ServerCertificate>,
    metrics: CertificateMetrics,
) -> io::Result<impl Future<Output = ()> + Send> {
    let timer = PollTimer::start()?;
    metrics.report(certificate.not_after(), None);
    let reloaded = Arc::clone(&certificate);
    let reload = move || reloaded.reload(unix_now());
    let report = move |transition: Transition| {
        transition.log("TLS certificate");
        metrics.report(certificate.not_after(), Some(&transition));
    };
    Ok(file_watch::follow(timer, reload, report))
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
