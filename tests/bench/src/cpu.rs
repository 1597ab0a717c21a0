//! CPU time of a process, from `/proc`.

use std::time::Duration;

/// Returns the user and system time of the process, including all its threads and the ended ones.
///
/// # Panics
/// When the process is gone, or there is no `/proc`.
pub fn time_of(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))
        .unwrap_or_else(|error| panic!("/proc/{process}/stat: {error}"));
    let ticks = ticks(&stat).unwrap_or_else(|| panic!("no CPU time in {stat}"));
    let nanoseconds = ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second();
    Duration::from_nanos(nanoseconds)
}

/// Pins every thread of a process to these processors; returns true on success.
pub fn pin(process: u32, processors: std::ops::Range<usize>) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return false;
    };
    let ids = threads
        .flatten()
        .filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    ids.map(|id| pin_thread(id, processors.clone()))
        .fold(true, |all, one| all & one)
}

#[cfg(target_os = "linux")]
fn pin_thread(id: i32, processors: std::ops::Range<usize>) -> bool {
    let mut set = rustix::thread::CpuSet::new();
    for processor in processors {
        set.set(processor);
    }
    let id = rustix::process::Pid::from_raw(id);
    id.is_some() && rustix::thread::sched_setaffinity(id, &set).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn pin_thread(_: i32, _: std::ops::Range<usize>) -> bool {
    false
}

/// Gives the measured program one processor and the load the others; returns a text about the
/// result.
pub fn share_processors(measured: u32) -> &'static str {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    if all > 1 && pin(measured, 0..1) && pin(std::process::id(), 1..all) {
        "on a processor of its own"
    } else {
        "on processors shared with the load"
    }
}

/// Reads `utime` and `stime`, fields 14 and 15 (proc(5)); the name before them may hold any bytes.
fn ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// Returns the microseconds of CPU for each of `requests`.
///
/// # Panics
/// When there were no requests: a division by zero must not look like a result.
pub fn microseconds_each(spent: Duration, requests: u64) -> f64 {
    assert!(requests > 0, "there was no response");
    #[expect(
        clippy::cast_precision_loss,
        reason = "far fewer than 2^52 of either in a measurement"
    )]
    let each = spent.as_micros() as f64 / requests as f64;
    each
}
