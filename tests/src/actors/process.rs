//! A child process with captured output: killed on drop, its stderr printed when a test fails.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::wait;

/// Log lines of a failed program that a test prints.
const REPORTED_LINES: usize = 300;

/// A program with its arguments, environment and input.
#[derive(Debug, Clone)]
pub struct CommandLine {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: BTreeMap<String, OsString>,
    input: Vec<u8>,
}

impl CommandLine {
    /// Creates a command line without arguments. Its environment holds only `PATH`, so that a
    /// developer's variables do not configure the program.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let environment = std::env::var_os("PATH").map(|path| ("PATH".to_owned(), path));
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: environment.into_iter().collect(),
            input: Vec::new(),
        }
    }

    /// Sets the bytes on stdin; none by default.
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn arguments<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets one environment variable.
    #[must_use]
    pub fn environment(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.insert(name.to_owned(), value.into());
        self
    }

    /// Sets several environment variables.
    #[must_use]
    pub fn environments(mut self, variables: &[(String, String)]) -> Self {
        let variables = variables.iter();
        let variables = variables.map(|(name, value)| (name.clone(), value.into()));
        self.environment.extend(variables);
        self
    }

    /// Starts the program and keeps it running.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(&self) -> Process {
        let mut child = self
            .command()
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", self.program.display()));
        // An error means that the program has closed its stdin, which is no failure.
        if let Some(mut stdin) = child.stdin.take() {
            let _ = stdin.write_all(&self.input);
        }
        let stdout = Capture::of(child.stdout.take().expect("a piped stdout"));
        let stderr = Capture::of(child.stderr.take().expect("a piped stderr"));
        Process {
            name: self.name(),
            child,
            stdout,
            stderr,
        }
    }

    /// Runs the program to its end.
    ///
    /// # Panics
    /// When it does not start or does not end.
    pub fn run(&self) -> Finished {
        self.start().finished()
    }

    /// Runs the program with this input.
    ///
    /// # Panics
    /// When it fails, or prints no JSON.
    #[must_use]
    pub fn run_json(self, input: &Value) -> Value {
        let run = self.input(input.to_string()).run();
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        serde_json::from_str(&run.stdout).expect("JSON on stdout")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // The program runs outside the sources, where a `./data` could be taken for its store.
        if let Ok(test_executable) = std::env::current_exe()
            && let Some(directory) = test_executable.parent()
        {
            command.current_dir(directory);
        }
        command
            .args(&self.arguments)
            .env_clear()
            .envs(&self.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn name(&self) -> String {
        Path::new(&self.program)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }
}

/// A process that ended by itself.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Everything it wrote to stdout.
    pub stdout: String,
    /// Everything it wrote to stderr.
    pub stderr: String,
}

/// A running process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdout: Capture,
    stderr: Capture,
}

impl Process {
    /// Waits for a stdout line that begins with `prefix` and returns the rest of the line; with
    /// JSON logs, waits for the equivalent log line.
    ///
    /// # Panics
    /// When the process ends first, or the line does not appear in time.
    pub fn announced(&mut self, prefix: &str) -> String {
        let line = self.announced_or_ended(prefix);
        line.unwrap_or_else(|| {
            let (name, ended) = (self.name.clone(), self.ended());
            panic!("{name} ended ({ended:?}) before it printed `{prefix}`")
        })
    }

    /// Waits as [`announced`](Self::announced) does; `None` when the process ends first.
    ///
    /// # Panics
    /// When the line does not appear in time.
    pub fn announced_or_ended(&mut self, prefix: &str) -> Option<String> {
        let what = format!("`{prefix}` on the stdout of {}", self.name);
        wait::until(&what, || {
            let ended = self.ended();
            let line = self
                .stdout
                .text()
                .lines()
                .find_map(|line| line.strip_prefix(prefix).map(str::to_owned))
                .or_else(|| address_in_json(&self.stderr.text(), prefix));
            (line.is_some() || ended.is_some()).then_some(line)
        })
    }

    /// Returns the exit status, once the process has ended.
    ///
    /// # Panics
    /// When the operating system reports an error.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the state of a child")
    }

    /// Waits for the end of the process; a compiler takes longer than any other condition.
    ///
    /// # Panics
    /// When it does not end.
    pub fn finished(mut self) -> Finished {
        let status = wait::within(2 * wait::TIMEOUT, || self.ended());
        let status = status.unwrap_or_else(|| panic!("{} does not end", self.name));
        self.stdout.close();
        self.stderr.close();
        Finished {
            code: status.code(),
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        }
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM, as an orchestrator does.
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends the signal of this name with the shell's `kill`, which keeps the harness free of
    /// `unsafe`.
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub fn signal(&self, name: &str) {
        let status = Command::new("sh")
            .arg("-c")
            .arg(format!("kill -{name} {}", self.child.id()))
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "SIG{name} could not be sent to {}",
            self.name
        );
    }

    /// Returns all output so far, stdout and stderr.
    pub fn output(&self) -> String {
        self.stdout.text() + &self.stderr.text()
    }

    /// Waits for a text in the output, and returns how often it stands there.
    pub fn until_logged(&self, text: &str) -> usize {
        wait::until(text, || {
            let count = self.output().matches(text).count();
            (count > 0).then_some(count)
        })
    }

    /// Waits for a line of the log with this text, and returns it.
    pub fn line_with(&self, text: &str) -> String {
        wait::until(text, || {
            let log = self.stderr();
            let line = log.lines().find(|line| line.contains(text));
            line.map(str::to_owned)
        })
    }

    /// Waits for a JSON line whose field has this value, and returns it.
    pub fn json_line(&self, field: &str, value: &str) -> Value {
        wait::until(value, || {
            let mut lines = self.json_lines().into_iter();
            lines.find(|line| line[field] == value)
        })
    }

    /// Returns the stdout so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Returns the stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Returns the JSON lines of the log so far.
    pub fn json_lines(&self) -> Vec<Value> {
        json_lines(&self.stderr.text())
    }

    /// Returns the resident memory in KiB, from `/proc`; `None` where there is no `/proc`.
    pub fn resident_kib(&self) -> Option<u64> {
        self.memory_kib("VmRSS:")
    }

    /// Returns the maximum of the resident memory so far, in KiB.
    pub fn peak_resident_kib(&self) -> Option<u64> {
        self.memory_kib("VmHWM:")
    }

    /// Returns the anonymous part of the resident memory, in KiB.
    pub fn anonymous_kib(&self) -> Option<u64> {
        self.memory_kib("RssAnon:")
    }

    fn memory_kib(&self, field: &str) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            self.stderr.close();
            let text = last_lines(&self.stderr.text());
            let _ = writeln!(
                std::io::stderr(),
                "---- stderr of {} ----\n{text}",
                self.name
            );
        }
    }
}

fn json_lines(log: &str) -> Vec<Value> {
    let lines = log.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Returns the address in the JSON log line that stands for a line with this `prefix`.
fn address_in_json(log: &str, prefix: &str) -> Option<String> {
    let message = prefix.strip_suffix(" on ")?;
    let mut lines = json_lines(log).into_iter();
    let announced = lines.find(|line| line["message"] == message)?;
    Some(announced["address"].as_str()?.to_owned())
}

/// Returns the end of the log, which shows the cause of a failure; a program under load writes a
/// hundred thousand lines before.
fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let first = lines.len().saturating_sub(REPORTED_LINES);
    lines.get(first..).unwrap_or_default().join("\n")
}

/// One output stream, read by its own thread so that the child never blocks on a full pipe.
#[derive(Debug)]
struct Capture {
    text: Arc<Mutex<Vec<u8>>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Capture {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&text);
        let reader = std::thread::spawn(move || copy_lines(stream, &sink));
        Self {
            text,
            reader: Some(reader),
        }
    }

    /// Waits for the end of the stream; call it only after the child has ended.
    fn close(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap_or_else(PoisonError::into_inner))
            .into_owned()
    }
}

/// Copies line by line, so that a reader never gets half of an announced address.
fn copy_lines(stream: impl Read, sink: &Mutex<Vec<u8>>) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    while stream
        .read_until(b'\n', &mut line)
        .is_ok_and(|count| count > 0)
    {
        sink.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .append(&mut line);
    }
}
