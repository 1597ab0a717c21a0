//! The dashboard and the alerts use metrics and labels that the programs really export, and the
//! document describes those.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use tests::actors::auth_server::{AuthServer, AuthServerPlan, admin_get};
use tests::actors::process::CommandLine;
use tests::actors::programs::repository;
use tests::actors::sidecar::{Sidecar, SidecarPlan};
use tests::actors::stack::Stack;
use tests::services::prometheus::Prometheus;
use tests::skip::skip;
use tests::tables::dashboard;
use tests::wait;
use tests::wire::certificates::{Authority, write_private};

use crate::e2e::peers::webhook::Webhook;

/// The panel that is empty where no rule is configured.
const WITHOUT_RULES: &str = "Rejections by rule";

/// Labels that Prometheus adds.
const ADDED: [&str; 2] = ["job", "instance"];

/// Returns the scrapes of both programs after a sample of all requests. Some metrics exist only
/// with TLS, a file of users, a registry.
fn scrapes() -> Vec<String> {
    let stack = Stack::start();
    let token = stack.auth_server.login();
    stack.sidecar.bearing(&token).get("/42");
    stack.sidecar.anonymous().get("/42");
    stack.auth_server.anonymous().get("/nowhere");
    let home = tempfile::tempdir().unwrap();
    let users = home.path().join("users.toml");
    write_private(&users, "# no users\n");
    let applications = home.path().join("applications");
    fs::create_dir(&applications).unwrap();
    let authority = Authority::new();
    let certificate = authority.issue("both");
    let auth_server = AuthServerPlan::new()
        .tls(&authority, &certificate)
        .flags(["--users", &format!("file:{}", users.display())])
        .flags(["--applications-dir", &applications.display().to_string()])
        .flags(["--refresh-tokens", "on"])
        .flags(["--registry", "nacos://127.0.0.1:1"])
        .flags(["--advertise", "127.0.0.1:9000"])
        .environment("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        .ready();
    let cache = home.path().join("keys.json");
    let tables = "[[rule]]\nname = 'all'\npaths = ['/**']\nscope = ['a']\n\
                  [[issuer]]\nname = 'members'\nissuer = 'auth'\nauth-server = true\n";
    let sidecar = SidecarPlan::new(&stack.service, &stack.auth_server.url())
        .flags(certificate.flags())
        .flags(["--key-cache", cache.to_str().unwrap()])
        .config(tables)
        .environment("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        .ready();
    wait::until("the cache", || cache.exists());
    let scrape = |admin| admin_get(admin, "/metrics").text();
    let auth_servers = [stack.auth_server.admin(), auth_server.admin()];
    let sidecars = [stack.sidecar.admin(), sidecar.admin()];
    let scrapes = auth_servers.into_iter().chain(sidecars).map(scrape);
    scrapes.chain([Webhook::start(&[]).metrics()]).collect()
}

/// Returns the exported names with their labels.
fn exported() -> BTreeMap<String, BTreeSet<String>> {
    let mut exported: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for text in scrapes() {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let end = line.find(['{', ' ']).unwrap();
            let labels = exported.entry(line[..end].to_owned()).or_default();
            labels.extend(labels_of(&line[end..]));
        }
    }
    exported
}

/// Returns the exported metrics with their labels, each under its name in queries.
fn described() -> BTreeMap<String, BTreeSet<String>> {
    let mut described: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for text in scrapes() {
        let mut family = String::new();
        for line in text.lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                let (name, _) = declared.split_once(' ').unwrap();
                family = name.to_owned();
                described.entry(family.clone()).or_default();
            } else if !line.starts_with('#') {
                let labels = &line[line.find(['{', ' ']).unwrap()..];
                // `le`, the bounds of a histogram, belongs to the format.
                let labels = labels_of(labels).into_iter().filter(|label| label != "le");
                described.entry(family.clone()).or_default().extend(labels);
            }
        }
    }
    described
}

/// Returns the tables of the document: `name{label,label}` in the first column, below the prefix of
/// the program.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let document = fs::read_to_string(repository().join("docs/observe.md")).unwrap();
    let (_, metrics) = document.split_once("\n## Metrics\n").unwrap();
    let metrics = metrics.split("\n## ").next().unwrap();
    let mut prefix = "";
    let mut documented = BTreeMap::new();
    for row in metrics.lines().filter(|line| line.starts_with("| ")) {
        let names = row.split('|').nth(1).unwrap();
        for name in names.split('`').skip(1).step_by(2) {
            if let Some(of_program) = name.strip_suffix('…') {
                prefix = of_program;
                continue;
            }
            let (name, labels) = name.split_once('{').unwrap_or((name, ""));
            let labels = labels.trim_end_matches('}').split(',');
            let labels = labels.filter(|label| !label.is_empty());
            let labels: BTreeSet<String> = labels.map(str::to_owned).collect();
            let before = documented.insert(format!("{prefix}{name}"), labels);
            assert_eq!(before, None, "{name} stands there twice");
        }
    }
    documented
}

#[test]
fn the_document_lists_every_metric_with_its_labels_and_no_other() {
    let (documented, described) = (documented(), described());
    assert!(documented.len() >= 30, "{documented:?}");
    let names = |of: &BTreeMap<String, BTreeSet<String>>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&documented), names(&described));
    for (name, labels) in described {
        // Metrics with labels have no samples before the first count.
        let known = labels.is_empty() || documented[&name] == labels;
        assert!(known, "{name}: {labels:?}, not {:?}", documented[&name]);
    }
}

/// Returns the labels of a selector: `{a="x",b=~"y"} …` → a, b.
fn labels_of(selector: &str) -> Vec<String> {
    let Some(inside) = selector.strip_prefix('{') else {
        return Vec::new();
    };
    let inside = inside.split('}').next().unwrap();
    let mut labels = Vec::new();
    let mut outside_quotes = inside.split('"').step_by(2);
    for part in &mut outside_quotes {
        let name: String = part
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        if !name.is_empty() {
            labels.push(name);
        }
    }
    labels
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the errors of a query: an unknown metric, or a label that it does not have.
fn problems(query: &str, exported: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut labels = BTreeSet::new();
    let mut rest = query;
    let mut metrics = 0;
    while let Some(at) = rest.find("postern_") {
        rest = &rest[at..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let name = &rest[..end];
        metrics += 1;
        match exported.get(name) {
            None => problems.push(format!("{name} is not exported")),
            Some(has) => {
                labels.extend(has.iter().cloned());
                for label in labels_of(&rest[end..]) {
                    if !has.contains(&label) && !ADDED.contains(&label.as_str()) {
                        problems.push(format!("{name} has no label {label}"));
                    }
                }
            }
        }
        rest = &rest[end..];
    }
    if metrics == 0 {
        problems.push("it requests none of our metrics".to_owned());
    }
    for grouping in query.split("by (").skip(1) {
        for label in grouping.split(')').next().unwrap().split(',') {
            let label = label.trim();
            if !labels.contains(label) && !ADDED.contains(&label) {
                problems.push(format!("nothing has the label {label}"));
            }
        }
    }
    problems
}

fn alert_queries() -> Vec<String> {
    let rules =
        fs::read_to_string(repository().join("deploy/prometheus/postern.rules.yml")).unwrap();
    let queries = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "));
    queries.map(str::to_owned).collect()
}

fn dashboard_queries() -> Vec<String> {
    let panels = dashboard::panels();
    let targets = panels.iter().flat_map(|panel| &panel.targets);
    targets.map(|target| target.query.clone()).collect()
}

#[test]
fn every_query_of_dashboard_and_alerts_is_of_an_export() {
    let exported = exported();
    let (alerts, panels) = (alert_queries(), dashboard_queries());
    assert!(
        alerts.len() >= 8 && panels.len() >= 15,
        "{} {}",
        alerts.len(),
        panels.len()
    );
    for query in alerts.iter().chain(&panels) {
        assert_eq!(problems(query, &exported), Vec::<String>::new(), "{query}");
    }
}

#[test]
fn prometheus_evaluates_every_query() {
    let stack = Stack::start();
    let targets = [stack.sidecar.admin(), stack.auth_server.admin()];
    let Some(prometheus) = Prometheus::scraping(&targets) else {
        return;
    };
    let client = stack.sidecar.bearing(&stack.auth_server.login());
    let panels = dashboard::panels();
    let targets = panels.iter().flat_map(|panel| &panel.targets);
    let queries = targets.map(|target| target.over("5s"));
    for query in alert_queries().into_iter().chain(queries) {
        let result = prometheus.query(&query);
        assert!(result.is_ok(), "{query}: {result:?}");
    }
    let result_of = |query: &str| {
        wait::until(query, || {
            client.get("/42");
            stack.sidecar.anonymous().get("/42");
            stack.auth_server.anonymous().get("/nowhere");
            let result = prometheus.query(query).unwrap();
            (!result.is_empty()).then_some(result)
        })
    };
    for panel in panels.iter().filter(|panel| panel.title != WITHOUT_RULES) {
        for target in &panel.targets {
            let result = result_of(&target.over("5s"));
            // Reasons that begin at 0 stay out of the legend.
            let few = panel.title != "Rejections by reason" || result.len() == 1;
            assert!(few, "{result:?}");
        }
    }
    for query in [
        r#"sum by (code) (rate(postern_sidecar_requests_total{code="2xx"}[5s])) > 0"#,
        "histogram_quantile(0.99, sum by (le) (rate(postern_sidecar_request_duration_seconds_bucket[5s]))) > 0",
        "process_open_fds / process_max_fds > 0 and on (job, instance) postern_sidecar_build_info",
        "rate(process_cpu_seconds_total[5s])",
    ] {
        result_of(query);
    }
}

#[test]
fn what_the_alerts_on_keys_need_is_exported_without_any_request() {
    let value = |sidecar: &Sidecar, name: &str| {
        let scrape = admin_get(sidecar.admin(), "/metrics").text();
        let mut samples = scrape.lines().filter_map(|line| line.split_once(' '));
        samples.find_map(|(sample, value)| (sample == name).then(|| value.to_owned()))
    };
    let usable = |sidecar: &Sidecar| value(sidecar, "postern_sidecar_keys_available").unwrap();
    let has_key = |sidecar: &Sidecar| value(sidecar, "postern_sidecar_key_age_seconds").is_some();
    let stack = Stack::start();
    let start = |auth_server: &str, flags: &[&str]| {
        let plan = SidecarPlan::new(&stack.service, auth_server).flags(flags);
        plan.start()
    };
    let keyless = start("http://127.0.0.1:1/auth", &[]);
    let auth_server = AuthServer::start();
    let too_old = start(&auth_server.url(), &["--max-key-age", "1"]);
    wait::until("a key", || has_key(&too_old));
    drop(auth_server);
    wait::until("its end", || usable(&too_old) == "0");
    let found =
        [&keyless, &too_old, &stack.sidecar].map(|sidecar| (usable(sidecar), has_key(sidecar)));
    let expected = [("0", false), ("0", true), ("1", true)];
    assert_eq!(
        found,
        expected.map(|(usable, key)| (usable.to_owned(), key))
    );
}

#[test]
fn each_alert_fires_in_a_case_of_promtool() {
    let below = |name: &str| repository().join("deploy/prometheus").join(name);
    let rules = fs::read_to_string(below("postern.rules.yml")).unwrap();
    let file = below("postern.rules.test.yml");
    let cases = fs::read_to_string(&file).unwrap();
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let untested: Vec<_> = alerts
        .filter(|alert| !cases.contains(&format!(" alertname: {alert}\n")))
        .collect();
    assert_eq!(untested, Vec::<&str>::new());
    let found = std::process::Command::new("promtool")
        .arg("--version")
        .output();
    if !found.is_ok_and(|output| output.status.success()) {
        skip("the alerts in promtool", "apt-get install prometheus");
        return;
    }
    let end = CommandLine::new("promtool")
        .arguments(["test", "rules", &file.display().to_string()])
        .run();
    assert_eq!(end.code, Some(0), "{}{}", end.stdout, end.stderr);
}

#[test]
fn no_metric_has_a_path_a_user_or_a_token_as_label() {
    let allowed = [
        "outcome", "reason", "code", "result", "version", "le", "app_id", "kid", "role", "rule",
        "issuer", "kind", "event", "grant",
    ];
    for (name, labels) in exported() {
        for label in labels {
            assert!(allowed.contains(&label.as_str()), "{name} {label}");
        }
    }
}
