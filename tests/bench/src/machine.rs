//! Machine and time of a measurement.

use std::path::{Path, PathBuf};
use std::process::Command;

use time::OffsetDateTime;
use time::macros::format_description;

/// Returns processor, cores and kernel, on one line.
pub fn description() -> String {
    let model = first_field("/proc/cpuinfo", "model name").unwrap_or_else(|| "?".to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let distribution = std::fs::read_to_string("/etc/os-release")
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="))?;
            Some(line.trim_matches('"').to_owned())
        })
        .unwrap_or_default();
    format!(
        "{model}, {cores} cores, Linux {}, {distribution}",
        kernel.trim()
    )
}

/// Returns the date in UTC.
///
/// # Panics
/// When the clock is outside of the calendar.
pub fn today() -> String {
    OffsetDateTime::now_utc()
        .format(format_description!("[year]-[month]-[day]"))
        .expect("a date")
}

/// Returns the recent number of runnable processes; above about one, other processes distort the
/// figures.
pub fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Returns the first line of a program's version output, on either stream.
pub fn version(program: impl AsRef<Path>, flag: &str) -> Option<String> {
    let output = Command::new(program.as_ref()).arg(flag).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.to_owned())
}

/// Returns the path of a program, found as the shell does.
pub fn find(program: &str) -> Option<PathBuf> {
    // Debian installs servers outside a plain user's path.
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

fn first_field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
