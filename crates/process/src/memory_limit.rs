//! The memory limit of this process: the lowest limit of its control group and of the groups above it.

use std::fs;
use std::path::Path;

/// The directory of the control groups of version 2, with the memory groups of version 1 below it.
const ROOT: &str = "/sys/fs/cgroup";
const OWN_GROUP: &str = "/proc/self/cgroup";

/// Returns the limit in bytes; `None` if there is no limit or it cannot be read.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    lowest_limit(Path::new(ROOT), &fs::read_to_string(OWN_GROUP).ok()?)
}

fn lowest_limit(root: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        let group = group.trim_start_matches('/');
        if controllers.is_empty() {
            return lowest_above(&root.join(group), root, "memory.max");
        }
        if !controllers.split(',').any(|name| name == "memory") {
            return None;
        }
        let root = root.join("memory");
        lowest_above(&root.join(group), &root, "memory.limit_in_bytes")
    });
    limits.min()
}

/// Returns the lowest limit of the group and the groups above. Within a container the group's own
/// path may be missing: its root is the container's.
fn lowest_above(group: &Path, root: &Path, file: &str) -> Option<u64> {
    group
        .ancestors()
        .take_while(|path| path.starts_with(root))
        .filter_map(|group| limit(&group.join(file)))
        .min()
}

/// Parses a limit: `max` is not a number, and version 1 writes nearly 2^63 for no limit.
fn limit(file: &Path) -> Option<u64> {
    let bytes: u64 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (bytes < 1 << 60).then_some(bytes)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_above_a_process_counts() {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("memory.max", "max\n"),
            ("a/memory.max", "4096\n"),
            ("a/b/memory.max", "8192\n"),
            ("c/memory.max", "max\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/d/memory.limit_in_bytes", "1024\n"),
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        for (groups, expected) in [
            ("", None),
            ("0::/\n", None),
            ("0::/c\n", None),
            ("0::/a/b\n", Some(4096)),
            ("0::/a/not-here/either\n", Some(4096)),
            ("0::/../../etc\n", None),
            ("9:cpu,memory:/d\n1:name=systemd:/a\n", Some(1024)),
            ("9:cpu,memory:/\n0::/\n", None),
            ("9:cpu,memory:/d\n0::/a\n", Some(1024)),
        ] {
            assert_eq!(lowest_limit(root.path(), groups), expected, "{groups:?}");
        }
    }
}
