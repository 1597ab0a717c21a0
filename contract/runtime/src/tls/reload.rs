//! Looks into the files of a certificate while the program runs: every few seconds, and at SIGHUP.

use std::sync::Arc;

use tracing::{error, info};

use super::certificate::ServerCertificate;
use crate::clock::unix_now;
use crate::file_watch::{Looks, aside};

/// What a look saw, for a program's metrics; the log has it already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Another certificate is shown from now on.
    Replaced,
    /// The files cannot be used; what is shown stays. Told once for each cause.
    Refused,
    /// Files that could not be used are as before again.
    Recovered,
}

/// Follows the files for as long as the process lives and tells `tell` what changed.
///
/// # Errors
/// Where SIGHUP cannot be received.
pub fn follow(
    certificate: Arc<ServerCertificate>,
    tell: impl Fn(Seen) + Send + 'static,
) -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut looks = Looks::begin()?;
    Ok(async move {
        let mut failures = Failures::default();
        loop {
            looks.next().await;
            let looking = Arc::clone(&certificate);
            let looked = aside(move || looking.reload(unix_now())).await;
            failures.judge(looked).into_iter().for_each(&tell);
        }
    })
}

/// Two files are replaced one after the other: a failure counts once two looks in a row saw it.
#[derive(Debug, Default)]
struct Failures {
    suspected: Option<String>,
    told: Option<String>,
}

impl Failures {
    fn judge(&mut self, looked: Result<bool, String>) -> Option<Seen> {
        let failure = match looked {
            Ok(replaced) => return self.succeeded(replaced),
            Err(failure) => failure,
        };
        if self.told.as_ref() == Some(&failure) {
            return None;
        }
        if self.suspected.as_ref() != Some(&failure) {
            self.suspected = Some(failure);
            return None;
        }
        error!(%failure, "the TLS certificate cannot be used: the one of before stays");
        self.told = self.suspected.take();
        Some(Seen::Refused)
    }

    fn succeeded(&mut self, replaced: bool) -> Option<Seen> {
        self.suspected = None;
        let recovered = self.told.take().is_some();
        if replaced {
            info!("another TLS certificate is shown from now on");
            Some(Seen::Replaced)
        } else if recovered {
            info!("the files of the TLS certificate can be used again");
            Some(Seen::Recovered)
        } else {
            None
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use tokio::task::spawn_blocking;

    use super::super::certificate::tests::{Files, pair};
    use super::*;

    #[test]
    fn a_failure_is_told_once_and_only_when_it_stays() {
        let fails = |why: &str| Err(why.to_owned());
        let mut failures = Failures::default();
        for (looked, seen) in [
            (Ok(false), None),
            (fails("half"), None),
            (Ok(true), Some(Seen::Replaced)),
            (fails("half"), None),
            (fails("half"), Some(Seen::Refused)),
            (fails("half"), None),
            (fails("other"), None),
            (fails("other"), Some(Seen::Refused)),
            (Ok(false), Some(Seen::Recovered)),
            (Ok(false), None),
        ] {
            assert_eq!(failures.judge(looked.clone()), seen, "{looked:?}");
        }
    }

    #[tokio::test]
    async fn changed_files_are_seen_by_themselves() {
        let (cert, key) = pair(2100);
        let files = Files::with(&cert, &key);
        let certificate = Arc::new(files.open().unwrap());
        let (sink, told) = channel();
        let following = follow(Arc::clone(&certificate), move |seen| {
            let _ = sink.send(seen);
        });
        tokio::spawn(following.unwrap());

        let (cert, key) = pair(2099);
        files.write(&cert, &key);
        let seen = spawn_blocking(move || told.recv_timeout(Duration::from_secs(30)));
        assert_eq!(seen.await.unwrap(), Ok(Seen::Replaced));
        assert_eq!(certificate.not_after(), 4_070_908_800);
    }
}
