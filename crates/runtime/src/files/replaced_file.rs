//! Files that were replaced under a mount of the file alone, as `docker run -v FILE:FILE` and
//! `subPath` make one: the mount leads to the old file for ever, and no read of it is news.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

pub(crate) const REMEDY: &str = "mount its directory instead";

/// The files of this process in that state at their last read.
static REPLACED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Returns true if the file, opened with this metadata, is in that state, and remembers it.
pub(super) fn note(path: &Path, opened: &Metadata) -> bool {
    let has_no_link = |metadata: &Metadata| metadata.is_file() && metadata.nlink() == 0;
    // A plain rename in between leads to another file now, and `/dev/fd/3` may lead to a deleted
    // file, but has no real path.
    let path_has_no_link = || {
        let now = fs::canonicalize(path).and_then(fs::metadata);
        now.is_ok_and(|now| has_no_link(&now))
    };
    let is_replaced = has_no_link(opened) && path_has_no_link();
    let mut replaced = REPLACED.lock();
    if is_replaced {
        replaced.insert(path.to_owned());
    } else {
        replaced.remove(path);
    }
    is_replaced
}

/// Returns true if this file was replaced under its mount at its last read.
#[must_use]
pub fn is_replaced(path: &Path) -> bool {
    REPLACED.lock().contains(path)
}

/// Returns the note of `/readyz`, if there are such files.
pub(crate) fn readiness_note() -> Option<String> {
    let replaced = REPLACED.lock();
    let names: Vec<_> = replaced
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    let names = names.join(", ");
    (!names.is_empty()).then(|| format!("{names}: replaced or removed under a mount; {REMEDY}"))
}

/// The number of such files, as a metric.
#[derive(Debug)]
pub(crate) struct ReplacedFiles;

impl EncodeMetric for ReplacedFiles {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        let files = i64::try_from(REPLACED.lock().len()).unwrap_or(i64::MAX);
        ConstGauge::new(files).encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}
