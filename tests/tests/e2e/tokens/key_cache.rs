//! The last good keys on disk: a sidecar that starts while no auth server is available.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::actors::auth_server::{AuthServer, ECDSA, admin_get};
use tests::actors::expect::has;
use tests::actors::sidecar::{EVERY_SECOND, Sidecar, SidecarPlan};
use tests::actors::stack::ForgedStack;
use tests::services::echo_service::EchoService;
use tests::services::fake_auth_server::{json_response, key_response};
use tests::services::small_disk::{self, SmallDisk};
use tests::wait;
use tests::wire::clock;

/// A sidecar with a cache that is on disk.
struct Cached {
    stack: ForgedStack,
    home: TempDir,
}

impl Cached {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("keys.json");
        let cache = ["--key-cache", file.to_str().unwrap()];
        let stack = ForgedStack::with_flags(cache);
        let cached = Self { stack, home };
        wait::until("the cache", || cached.file().exists());
        cached
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("keys.json")
    }

    fn content(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.file()).unwrap()).unwrap()
    }

    fn write(&self, content: impl AsRef<[u8]>) {
        std::fs::write(self.file(), content).unwrap();
    }

    /// Creates a directory with the name of the new file, so that no process can replace the cache.
    fn block(&self) -> PathBuf {
        let path = self.home.path().join("keys.json.new");
        // A process may be writing the file.
        wait::until("the name", || std::fs::create_dir(&path).ok());
        path
    }

    /// Ends the serving of keys.
    fn outage(&self) {
        let away = json_response("503 Service Unavailable", "{}");
        self.stack.auth_server.set_reply(away);
    }

    /// Returns another process with the same cache.
    fn plan(&self) -> SidecarPlan {
        SidecarPlan::new(&self.stack.service, &self.stack.auth_server.url())
            .flags(ECDSA)
            .flags(["--key-cache", self.file().to_str().unwrap()])
    }

    fn verdict_of(&self, sidecar: &Sidecar) -> String {
        sidecar.verdict_of(&self.stack.token())
    }
}

fn readiness(sidecar: &Sidecar) -> String {
    admin_get(sidecar.admin(), "/readyz").text()
}

fn cache_writes(sidecar: &Sidecar, outcome: &str) -> u64 {
    let name = format!("postern_sidecar_key_cache_writes_total{{outcome=\"{outcome}\"}}");
    sidecar.metric(&name).unwrap_or_default()
}

#[test]
fn a_restart_while_the_auth_server_is_away_serves_at_once() {
    let (service, auth_server) = (EchoService::start(), AuthServer::start());
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("keys.json");
    let plan =
        || SidecarPlan::new(&service, &auth_server.url()).flags(["--key-cache", path_of(&file)]);
    let (before, token) = (plan().ready(), auth_server.login());
    wait::until("the cache", || file.exists());
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    drop(before);
    let later = plan();
    drop(auth_server.into_process());
    let after = later.start();
    assert_eq!(after.bearing(&token).status("/list"), 200);
    assert_eq!(after.anonymous().status("/list"), 401);
    assert_eq!(after.readiness(), 200);
    let report = readiness(&after);
    has(&report, "s ago, from the key cache");
    after.until_logged("loaded from the key cache");
}

fn path_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_age_of_the_keys_counts_on_across_a_restart() {
    let cached = Cached::start();
    cached.outage();
    let mut content = cached.content();
    content["fetched-at"] = json!(clock::now() - 7200);
    cached.write(content.to_string());
    let trusting = cached.plan().flags(["--max-key-age", "10800"]).start();
    assert_eq!(cached.verdict_of(&trusting), "200");
    let age = trusting.metric("postern_sidecar_key_age_seconds").unwrap();
    assert!((7200..7300).contains(&age), "{age}");
    let strict = cached.plan().flags(["--max-key-age", "3600"]).start();
    assert_eq!(cached.verdict_of(&strict), "503 auth_keys_stale");
    assert_eq!(strict.readiness(), 503);
    let report = readiness(&strict);
    assert!(
        report.contains("older than --max-key-age") && report.contains("fetched 72"),
        "{report}"
    );
}

#[test]
fn a_cache_that_may_not_be_used_is_left_alone() {
    let cached = Cached::start();
    cached.outage();
    let good = cached.content().to_string();
    let mut other_source = cached.content();
    other_source["origin"]["source"] = json!("http://elsewhere/auth");
    for (what, content, mode) in [
        ("of another source", other_source.to_string(), 0o600),
        ("for its group to write", good, 0o620),
    ] {
        cached.write(&content);
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(cached.file(), mode).unwrap();
        let sidecar = cached.plan().start();
        let found = cached.verdict_of(&sidecar);
        assert_eq!(found, "503 auth_keys_unavailable", "{what}");
        sidecar.until_logged("the key cache is not used");
        std::fs::remove_file(cached.file()).unwrap();
    }
}

#[test]
fn a_cache_that_cannot_be_replaced_does_not_count_at_a_restart() {
    const NOTE: &str = "the key cache cannot be written and does not count at a restart";
    let cached = Cached::start();
    let sidecar = cached.plan().flags(EVERY_SECOND).ready();
    assert!(!readiness(&sidecar).contains(NOTE));
    let in_the_way = cached.block();
    let new_key = cached.stack.forge.untrusted().served();
    cached.stack.auth_server.set_reply(key_response(&new_key));
    wait::until("a failed write", || cache_writes(&sidecar, "failed") > 0);
    has(readiness(&sidecar), NOTE);
    assert_eq!(sidecar.readiness(), 200);
    wait::until("the new key", || {
        cached.verdict_of(&sidecar) == "401 token_signature"
    });
    cached.outage();
    drop(sidecar);
    for is_in_the_way in [true, false] {
        if !is_in_the_way {
            std::fs::remove_dir(&in_the_way).unwrap();
        }
        let later = cached.plan().start();
        let verdict = cached.verdict_of(&later);
        assert_eq!(verdict, "503 auth_keys_unavailable", "{is_in_the_way}");
    }
}

#[test]
fn a_full_disk_keeps_the_old_cache_until_there_is_room() {
    let Some(disk) = SmallDisk::new() else { return };
    let file = disk.path().join("keys.json");
    let stack = ForgedStack::with(|plan| {
        plan.under(disk.wrapper())
            .flags(["--key-cache", path_of(&file)])
            .flags(EVERY_SECOND)
    });
    let sidecar = &stack.sidecar;
    let seen = disk.seen_by(sidecar.process());
    let content = || std::fs::read(seen.join("keys.json")).ok();
    let old = wait::until("the cache", content);
    assert!(!file.exists(), "it is on the small disk");

    small_disk::fill(&seen);
    let new_key = stack.forge.untrusted().served();
    stack.auth_server.set_reply(key_response(&new_key));
    wait::until("several failures", || cache_writes(sidecar, "failed") > 1);
    let token = stack.forge.untrusted_token(clock::now(), &Value::Null);
    let new_user = sidecar.bearing(&token);
    assert_eq!(new_user.status("/list"), 200, "serving goes on");
    assert_eq!(sidecar.readiness(), 200);
    assert_eq!(content(), Some(old.clone()), "the old cache is whole");
    let files = std::fs::read_dir(&seen).unwrap().count();
    assert_eq!(files, 2, "nothing is left behind by the attempts");
    let warning = "the key cache cannot be written";
    sidecar.until_logged(warning);
    assert_eq!(cache_writes(sidecar, "written"), 1);

    small_disk::make_room(&seen);
    let new = wait::until("the new cache", || {
        content().filter(|content| *content != old)
    });
    let new: Value = serde_json::from_slice(&new).unwrap();
    assert_eq!(new["jwks"]["keys"].as_array().unwrap().len(), 1);
    let news = sidecar.until_logged("the key cache was written again");
    assert_eq!(news, 1);
    let warnings = sidecar.until_logged(warning);
    assert_eq!(warnings, 1, "once, however long the disk was full");
    wait::until("the count", || cache_writes(sidecar, "written") == 2);
    assert_eq!(new_user.status("/list"), 200);
}
