//! Applications of `--applications-dir`, which is polled while the server runs: one file for each, as
//! Kubernetes mounts a Secret, with the id as name and the secret as content.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use postern_process::files::file_watch::PolledFiles;
use postern_process::files::{replaced_file, secret_file};
use postern_transport::admin::health::Condition;
use tracing::{error, info};

use super::registry::ApplicationRegistry;
use super::secret_hash::{MIN_SECRET_LENGTH, SecretHash, SecretHashes};
use super::{AppId, Applications};
use crate::telemetry::audit;
use crate::telemetry::metrics::{Metrics, gauge};

/// The applications in force, and the errors of their files.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MountedApplications {
    path: PathBuf,
    pub(crate) applications: Applications,
    /// A line for each unusable file, or one for the directory.
    errors: Vec<String>,
}

impl MountedApplications {
    /// Reads the directory.
    ///
    /// # Errors
    /// One line, if the directory cannot be read. An unusable file is not an error.
    pub(crate) fn open(path: PathBuf) -> Result<Self, String> {
        Self::read_files(path, &Applications::default()).map_err(|error| error.to_string())
    }

    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.errors
            .iter()
            .map(|error| format!("--applications-dir: {error}"))
    }

    /// Polls for as long as the process lives.
    ///
    /// # Errors
    /// Where SIGHUP cannot be received.
    pub(crate) fn watch(
        self,
        registrations: Arc<ApplicationRegistry>,
        metrics: Metrics,
        condition: Condition,
    ) -> std::io::Result<impl Future<Output = ()>> {
        let mut files = PolledFiles::start(self.clone())?;
        self.count_errors(&metrics);
        Ok(async move {
            let mut former = self;
            loop {
                // The read runs on another thread, so it gets a copy of the former state.
                let before = former.clone();
                if let Some(now) = files.poll(move || before.reread()).await {
                    now.take_over(&former, &registrations, &metrics);
                    match now.errors.join("; ").as_str() {
                        "" => condition.reloaded(None),
                        errors => condition.reloaded(Some(errors)),
                    }
                    former = now.clone();
                }
            }
        })
    }

    fn count_errors(&self, metrics: &Metrics) {
        metrics
            .application_files_unusable
            .set(gauge(self.errors.len()));
    }

    fn take_over(&self, former: &Self, registrations: &ApplicationRegistry, metrics: &Metrics) {
        self.count_errors(metrics);
        // Only new errors: the others were logged when an earlier poll found them.
        for error in self.errors.iter().filter(|it| !former.errors.contains(it)) {
            error!(%error, "an application's file is unusable; the application stays as it was, unless the file was replaced under its mount");
        }
        if self.errors.is_empty() && !former.errors.is_empty() {
            info!("every file of --applications-dir is usable again");
        }
        for (id, event) in registrations.mount(self.applications.clone()) {
            audit::application(event, id.as_str(), None);
        }
        metrics
            .registered_applications
            .set(gauge(registrations.count()));
    }

    fn reread(&self) -> Self {
        match Self::read_files(self.path.clone(), &self.applications) {
            Ok(read) => read,
            // A directory that cannot be read ends no application: the applications of the last poll stay.
            Err(error) => Self {
                errors: vec![format!("{}: {error}", self.path.display())],
                ..self.clone()
            },
        }
    }

    fn read_files(path: PathBuf, former: &Applications) -> std::io::Result<Self> {
        let mut now = Self {
            path,
            applications: Applications::default(),
            errors: Vec::new(),
        };
        for entry in fs::read_dir(&now.path)? {
            let name = entry?.file_name();
            // Kubernetes keeps the data of a volume under names with a dot, behind links.
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let file = now.path.join(&name);
            let named = name.to_str().filter(|name| !is_copy(name));
            let Some(id) = named.and_then(|name| name.parse::<AppId>().ok()) else {
                now.errors.push(format!(
                    "{}: its name is not an application's",
                    file.display()
                ));
                continue;
            };
            match read(&file) {
                Ok(record) => now.applications.put(id, record),
                Err(error) => {
                    now.errors.push(error);
                    // Another secret may be in force on the host, and this one be known to others.
                    if let Some(former) = former.get(id.as_str())
                        && !replaced_file::is_replaced(&file)
                    {
                        now.applications.put(id, former.clone());
                    }
                }
            }
        }
        // A directory has no order, and a poll counts only if two readings are equal.
        now.errors.sort();
        Ok(now)
    }
}

/// Returns true for the name of an editor's copy, whose secret may be a former one.
fn is_copy(name: &str) -> bool {
    name.ends_with('~') || name.ends_with(".bak")
}

/// Reads one secret, or two during a change of secrets, each on a line.
fn read(file: &Path) -> Result<SecretHashes, String> {
    let text = secret_file::read(file).map_err(|error| error.to_string())?;
    let secrets: Vec<_> = text.lines().collect();
    // Secrets are stored as fast hashes, which suits random text of this length alone.
    let are_random = secrets
        .iter()
        .all(|secret| secret.len() >= MIN_SECRET_LENGTH);
    if are_random && (1..=2).contains(&secrets.len()) {
        Ok(secrets.into_iter().map(SecretHash::new).collect())
    } else {
        Err(format!(
            "{}: expected one secret of {MIN_SECRET_LENGTH} or more random characters, or two, each on a line",
            file.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Duration;

    use postern_transport::admin::health::Health;
    use tokio::time::sleep;

    use super::*;

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn accepts(mounted: &MountedApplications, id: &str, secret: &str) -> bool {
        mounted.applications.accepts(id, &secret.repeat(32))
    }

    #[test]
    fn each_file_is_an_application_and_a_bad_one_is_reported_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let volume = path("..data");
        fs::create_dir(&volume).unwrap();
        write(&volume.join("orders"), &"a".repeat(32), 0o600);
        symlink(volume.join("orders"), path("orders")).unwrap();
        let two = format!("{}\n{}\n", "b".repeat(32), "c".repeat(32));
        write(&path("stock"), &two, 0o600);
        write(&path("short"), "changeit", 0o600);
        write(&path("three"), &format!("{two}{two}"), 0o600);
        write(&path("exposed"), &"d".repeat(32), 0o644);
        for name in ["an id", "orders~", "stock.bak"] {
            write(&path(name), &"e".repeat(32), 0o600);
        }
        fs::create_dir(path("directory")).unwrap();

        let mounted = MountedApplications::open(home.path().to_owned()).unwrap();
        assert!(accepts(&mounted, "orders", "a"));
        assert!(accepts(&mounted, "stock", "b") && accepts(&mounted, "stock", "c"));
        assert_eq!(mounted.applications.registered().count(), 2);
        let warnings: Vec<_> = mounted.warnings().collect();
        assert_eq!(warnings.len(), 7, "{warnings:#?}");
        assert!(warnings.iter().all(|line| !line.contains("changeit")));
    }

    #[test]
    fn a_directory_that_is_gone_keeps_its_applications() {
        let home = tempfile::tempdir().unwrap();
        write(&home.path().join("orders"), &"a".repeat(32), 0o600);
        let mounted = MountedApplications::open(home.path().to_owned()).unwrap();
        fs::remove_dir_all(home.path()).unwrap();
        let lost = mounted.reread();
        assert!(accepts(&lost, "orders", "a"));
        assert_eq!(lost.errors.len(), 1);
        assert!(MountedApplications::open(home.path().to_owned()).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_file_does_not_count() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("orders");
        let (first, half) = ("a".repeat(32), "b".repeat(32));
        write(&file, &first, 0o600);
        let mounted = MountedApplications::open(home.path().to_owned()).unwrap();
        let registry = ApplicationRegistry::new(false, Some(mounted.applications.clone()));
        let registry = Arc::new(registry);
        registry.reconcile(Some(Applications::default()));
        let watching = mounted.watch(
            Arc::clone(&registry),
            Metrics::default(),
            Health::new().files("applications_dir"),
        );
        tokio::spawn(watching.unwrap());
        let accepts = |secret: &str| registry.authorize("orders", secret).is_ok();

        write(&file, &half, 0o600);
        sleep(Duration::from_secs(3)).await;
        assert!(accepts(&first) && !accepts(&half), "one poll has read it");
        let whole = half.repeat(2);
        write(&file, &whole, 0o600);
        sleep(Duration::from_secs(4)).await;
        assert!(accepts(&whole) && !accepts(&first) && !accepts(&half));
    }
}
