//! A real browser: headless Chromium, driven over W3C WebDriver (JSON over HTTP).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::actors::client::Request;
use crate::actors::process::{CommandLine, Process};
use crate::skip::skip;
use crate::wait;
use crate::wire::raw_client::exchange;

/// WebDriver's JSON name of an element's id (§12.1 of the recommendation).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser window.
#[derive(Debug)]
pub struct Browser {
    driver: SocketAddr,
    session: String,
    _process: Process,
    _home: TempDir,
}

impl Browser {
    /// Starts Chromium with an empty profile; returns `None`, with a SKIP line, where it is not
    /// installed.
    ///
    /// # Panics
    /// When Chromium is installed and does not start.
    pub fn start() -> Option<Self> {
        let (Some(driver), Some(chromium)) = (found("chromedriver"), found("chromium")) else {
            skip(
                "the pages in a browser",
                "apt-get install chromium chromium-driver",
            );
            return None;
        };
        let home = tempfile::tempdir().expect("a temporary directory");
        let (process, port) = started(&driver, home.path());
        let driver = format!("127.0.0.1:{}", port.trim_end_matches('.'))
            .parse()
            .expect("a port");
        let arguments = [
            "--headless=new".to_owned(),
            // Chromium does not start as root otherwise, and containers run as root.
            "--no-sandbox".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-gpu".to_owned(),
            "--no-first-run".to_owned(),
            "--window-size=1200,1000".to_owned(),
            "--force-color-profile=srgb".to_owned(),
            format!("--user-data-dir={}", home.path().join("profile").display()),
        ];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"binary": chromium, "args": arguments},
        }}});
        let session = post(driver, "/session", &capabilities);
        let session = session["sessionId"].as_str().expect("a session").to_owned();
        Some(Self {
            driver,
            session,
            _process: process,
            _home: home,
        })
    }

    /// Opens a page and waits until it is loaded.
    pub fn open(&self, url: &str) {
        self.post("/url", &json!({"url": url}));
    }

    /// Clicks an element.
    pub fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.post(&format!("/element/{element}/click"), &json!({}));
    }

    /// Lays pages out for a window of this width in points, in dark colours or in light ones.
    pub fn emulate(&self, width: u32, is_dark: bool) {
        let scheme = if is_dark { "dark" } else { "light" };
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.devtools(
            "Emulation.setEmulatedMedia",
            &json!({"features": [feature]}),
        );
        let size = json!({"width": width, "height": 800, "deviceScaleFactor": 2, "mobile": true});
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Runs a command of Chromium's own protocol.
    fn devtools(&self, command: &str, parameters: &Value) {
        let call = json!({"cmd": command, "params": parameters});
        self.post("/goog/cdp/execute", &call);
    }

    /// Runs a function body and returns its result.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until an element shows a text.
    pub fn until(&self, selector: &str, expected: &str) {
        wait::until(&format!("`{expected}` in {selector}"), || {
            let found = self.elements(selector).first().cloned()?;
            let text = self.get(&format!("/element/{found}/text"));
            text.as_str()?.contains(expected).then_some(())
        });
    }

    /// Returns the page's errors: script errors and policy violations.
    pub fn complaints(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({"type": "browser"}));
        let entries = entries.as_array().cloned().unwrap_or_default();
        let message = |entry: &Value| entry["message"].as_str().map(str::to_owned);
        entries.iter().filter_map(message).collect()
    }

    fn element(&self, selector: &str) -> String {
        wait::until(selector, || self.elements(selector).first().cloned())
    }

    fn elements(&self, selector: &str) -> Vec<String> {
        let found = self.post(
            "/elements",
            &json!({"using": "css selector", "value": selector}),
        );
        let found = found.as_array().cloned().unwrap_or_default();
        let id = |element: &Value| element[ELEMENT].as_str().map(str::to_owned);
        found.iter().filter_map(id).collect()
    }

    fn post(&self, command: &str, body: &Value) -> Value {
        post(
            self.driver,
            &format!("/session/{}{command}", self.session),
            body,
        )
    }

    fn get(&self, command: &str) -> Value {
        let path = format!("/session/{}{command}", self.session);
        send_command(self.driver, "GET", &Request::new("GET", path))
    }
}

impl Drop for Browser {
    /// The driver stops Chromium only on request.
    fn drop(&mut self) {
        let request = Request::new("DELETE", format!("/session/{}", self.session));
        let bytes = request.bytes(&self.driver.to_string());
        let mut client = crate::wire::raw_client::RawClient::connect(self.driver);
        client.send(&bytes);
        let _ = client.try_response("DELETE");
    }
}

fn post(driver: SocketAddr, path: &str, body: &Value) -> Value {
    send_command(driver, "POST", &Request::new("POST", path).json(body))
}

fn send_command(driver: SocketAddr, method: &str, request: &Request) -> Value {
    let response = exchange(driver, method, &request.bytes(&driver.to_string()));
    assert_eq!(response.status(), 200, "WebDriver: {}", response.text());
    response.json()["value"].clone()
}

/// Starts the driver, and returns its port. It picks one that is free for IPv4 and ends where IPv6 has
/// it, so it may take several tries.
fn started(driver: &Path, home: &Path) -> (Process, String) {
    const TRIES: usize = 5;
    let driver = CommandLine::new(driver)
        .arguments(["--port=0"])
        .environment("HOME", home);
    let started = (0..TRIES).find_map(|_| {
        let mut process = driver.start();
        let port = process.announced_or_ended("ChromeDriver was started successfully on port ")?;
        Some((process, port))
    });
    started.expect("a driver that starts")
}

fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file: &PathBuf| Path::is_file(file))
}
