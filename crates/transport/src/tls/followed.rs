//! Values that are made of files with a certificate. Changed content replaces the value as a whole; unusable
//! content or an expired certificate changes nothing.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use postern_process::clock::unix_now;
use postern_process::files::file_watch::{self, run_blocking};
use postern_process::logs::once_a_minute::OnceAMinute;
use tokio::sync::Mutex;
use tracing::warn;

use super::expiry::{self, End};
use super::peer::PeerCertificates;

/// The content of files that is in force, and the value that was made of it.
#[derive(Debug)]
pub struct InForce<C, T> {
    /// The content as it was read.
    pub content: C,
    /// The value for use.
    pub value: T,
}

/// A value of files that may change at any time.
#[derive(Debug)]
pub struct Followed<C, T> {
    /// The files in words, for the log.
    files: &'static str,
    in_force: ArcSwap<InForce<C, T>>,
    ends: Arc<parking_lot::Mutex<Vec<End>>>,
    /// Also locked while files are read, so that the later of two reads counts.
    failure_logged: Mutex<OnceAMinute>,
}

impl<C: PartialEq + AsRef<PeerCertificates>, T> Followed<C, T> {
    /// Starts with a value and the content of which it was made.
    pub fn new(files: &'static str, content: C, value: T) -> Self {
        Self {
            files,
            ends: expiry::in_use(&content.as_ref().ends),
            in_force: ArcSwap::from_pointee(InForce { content, value }),
            failure_logged: Mutex::default(),
        }
    }

    /// Returns the content and the value in force now.
    pub fn load(&self) -> Arc<InForce<C, T>> {
        self.in_force.load_full()
    }

    /// Puts other content in force at `now`, in seconds since 1970, and returns true; false for the
    /// content that is in force already.
    ///
    /// # Errors
    /// An expired certificate that may not replace another one, or the failure of `make`.
    pub fn replace(
        &self,
        content: C,
        now: i64,
        make: impl FnOnce(&C) -> Result<T, String>,
    ) -> Result<bool, String> {
        let former = self.in_force.load();
        if content == former.content {
            return Ok(false);
        }
        content.as_ref().may_replace(former.content.as_ref(), now)?;
        let value = make(&content)?;
        self.ends.lock().clone_from(&content.as_ref().ends);
        self.in_force.store(Arc::new(InForce { content, value }));
        Ok(true)
    }

    /// Reads the files before a use, and puts their content in force. Logs new content, and a failure once a
    /// minute.
    pub async fn follow<E: Display + Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<C, E> + Send + 'static,
        make: impl FnOnce(&C) -> Result<T, String>,
    ) where
        C: Send + 'static,
    {
        let mut failure_logged = self.failure_logged.lock().await;
        let replaced = run_blocking(read)
            .await
            .and_then(|content| self.replace(content, unix_now(), make));
        // Each use reads the files, so the same failure would fill the log.
        let is_news = match &replaced {
            Ok(is_new) => *is_new,
            Err(_) => failure_logged.is_due(Instant::now()),
        };
        if is_news {
            self.log(&replaced);
        }
    }

    /// Logs a replacement, and a certificate that came with it and ends soon.
    pub(super) fn log(&self, replaced: &Result<bool, String>) {
        file_watch::log(self.files, replaced);
        let ending = self.load().content.as_ref().ending(unix_now());
        if let (Ok(true), Some(warning)) = (replaced, ending) {
            warn!("{warning}");
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::super::certificate::tests::{Files, pair};
    use super::super::peer::PeerFiles;
    use super::*;

    const NOW: i64 = 1_800_000_000;

    /// The end of the certificate, and another file beside it.
    #[derive(PartialEq)]
    struct Content(PeerCertificates, &'static str);

    impl AsRef<PeerCertificates> for Content {
        fn as_ref(&self) -> &PeerCertificates {
            &self.0
        }
    }

    fn read(files: &Files, other: &'static str) -> Result<Content, String> {
        let files = PeerFiles {
            identity: Some((files.cert(), files.key())),
            ..PeerFiles::default()
        };
        match files.read() {
            Ok(read) => Ok(Content(read, other)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn made(content: &Content) -> Result<i64, String> {
        match content.1 {
            "unusable" => Err("unusable".to_owned()),
            _ => Ok(content.0.not_after()),
        }
    }

    #[test]
    fn an_expired_certificate_replaces_no_other() {
        let (cert, key) = pair(2020);
        let files = Files::with(&cert, &key);
        let in_force = Content(PeerCertificates::default(), "");
        let followed = Followed::new("files", in_force, 0);
        let replace = |other, now| followed.replace(read(&files, other)?, now, made);
        let end = 1_577_836_800;
        let expired = replace("", NOW).unwrap_err();
        assert!(expired.contains("has expired"), "{expired}");
        assert_eq!(replace("", end), Ok(true));
        assert_eq!(replace("", NOW), Ok(false), "it is in force");
        assert_eq!(replace("password", NOW), Ok(true), "it was before");

        let (cert, key) = pair(2100);
        files.write(&cert, "half");
        assert!(replace("", NOW).is_err());
        files.write(&cert, &key);
        assert!(replace("unusable", NOW).is_err());
        assert_eq!(followed.load().value, end);
        assert_eq!(replace("", NOW), Ok(true));
        assert_eq!(followed.load().value, 4_102_444_800);
    }
}
