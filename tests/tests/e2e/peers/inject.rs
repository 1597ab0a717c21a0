//! `postern-k8s inject` and `postern-k8s lint` over manifests of others: tests/data/inject and
//! tests/data/lint.

use std::fs;
use std::path::PathBuf;

use tests::actors::expect::has;
use tests::actors::process::{CommandLine, Finished};
use tests::actors::programs::{Program, repository};

use crate::e2e::configuration::command_line::{CONFIG, run};

/// The variable that rewrites the expected outputs instead of comparing them.
const UPDATE: &str = "POSTERN_UPDATE_DOCS";

fn data(directory: &str) -> PathBuf {
    repository().join("tests/data").join(directory)
}

/// Returns the files of a directory in the order of their names.
fn files(directory: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(data(directory)).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 5, "{directory}: {files:?}");
    files
}

fn postern_k8s(arguments: &[&str], input: &str) -> Finished {
    CommandLine::new(Program::Kubernetes.path())
        .arguments(arguments)
        .input(input)
        .run()
}

#[test]
fn manifests_of_others_get_their_sidecars() {
    let inputs = files("inject/in");
    assert!(inputs.len() >= 12);
    for input in inputs {
        let end = postern_k8s(&["inject", "-f", &input.display().to_string()], "");
        assert_eq!(end.code, Some(0), "{}: {}", input.display(), end.stderr);
        let expected = data("inject/out").join(input.file_name().unwrap());
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&expected, &end.stdout).unwrap();
        }
        let expected = fs::read_to_string(&expected).unwrap();
        assert_eq!(end.stdout, expected, "{}", input.display());
        let again = postern_k8s(&["inject"], &expected);
        assert_eq!(again.stdout, expected, "{}", input.display());
    }
}

#[test]
fn what_cannot_be_wrapped_is_rejected_with_object_and_reason() {
    for file in files("inject/rejected") {
        let text = fs::read_to_string(&file).unwrap();
        let reason = text.lines().next().unwrap().trim_start_matches("# ");
        let end = postern_k8s(&["inject"], &text);
        let expected = (Some(CONFIG), "");
        assert_eq!((end.code, &*end.stdout), expected, "{}", file.display());
        let (location, found) = end
            .stderr
            .split_once(": ")
            .unwrap()
            .1
            .split_once(": ")
            .unwrap();
        let line = location
            .strip_prefix("-:")
            .and_then(|line| line.parse::<usize>().ok());
        assert!(
            line.is_some() && found.starts_with(reason),
            "{}: {}",
            file.display(),
            end.stderr
        );
        assert_eq!(end.stderr.lines().count(), 1, "{}", end.stderr);
    }
}

#[test]
fn the_bounds_of_sidecars_follow_from_their_memory() {
    let input = fs::read_to_string(data("inject/in/guestbook.yaml")).unwrap();
    for (flags, requests, connections) in [
        ("cpu-request=20m", "200", "250"),
        ("memory-limit=200Mi", "148", "185"),
        ("memory-limit=1Gi --set=POSTERN_MAX_REQUESTS=9", "9", "250"),
    ] {
        let words = format!("inject --resources {flags}");
        let end = postern_k8s(&words.split(' ').collect::<Vec<_>>(), &input);
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        for (name, value) in [("REQUESTS", requests), ("CONNECTIONS", connections)] {
            let end = end
                .stdout
                .split_once(&format!("POSTERN_MAX_{name}\""))
                .unwrap();
            let value = format!("value: \"{value}\"");
            assert!(
                end.1.trim_start().starts_with(&value),
                "{flags:?}: {}",
                end.1
            );
        }
    }
}

#[test]
fn settings_of_all_sidecars_come_from_the_command_line() {
    let input = fs::read_to_string(data("inject/in/guestbook.yaml")).unwrap();
    let flags = [
        "--image",
        "registry.example.com/postern/sidecar:1.2.3",
        "--set",
        "POSTERN_JWKS=http://auth.postern:9000/auth/.well-known/jwks.json",
        "--set",
        "POSTERN_AUDIENCE=cluster",
        "--set",
        "POSTERN_LOG_FORMAT=",
    ];
    let end = postern_k8s(&[&["inject", "-f", "-"][..], &flags].concat(), &input);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    for text in ["sidecar:1.2.3", "jwks.json", "value: \"cluster\""] {
        assert!(end.stdout.contains(text), "{text}: {}", end.stdout);
    }
    for text in ["LOG_FORMAT", "POSTERN_APP_ID", "AUTH_SERVER", "secretName"] {
        assert!(!end.stdout.contains(text), "{text}: {}", end.stdout);
    }
}

#[test]
fn several_files_are_one_set_of_manifests() {
    let input = fs::read_to_string(data("inject/in/boutique.yaml")).unwrap();
    let (workload, services) = input.split_once("---\n").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    // Editors of Windows begin each file with a byte order mark.
    let one = write("1.yaml", &format!("\u{feff}{workload}"));
    let two = write("2.yaml", &format!("\u{feff}{services}"));
    let end = run(Program::Kubernetes, &["inject", "-f", &one, "-f", &two]);
    let expected = fs::read_to_string(data("inject/out/boutique.yaml")).unwrap();
    assert_eq!(end.stdout, expected, "{}", end.stderr);
}

#[test]
fn an_input_without_the_label_is_named() {
    let input = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n";
    let end = postern_k8s(&["inject"], input);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    has(&end.stderr, "nothing is changed: no object has the label");
}

#[test]
fn a_mistyped_annotation_is_named() {
    let input = fs::read_to_string(data("inject/in/podinfo.yaml")).unwrap();
    let before = "metadata:\n";
    let mistyped = "metadata:\n  annotations: {postern/prot: '9999', other/port: '1'}\n";
    let end = postern_k8s(&["inject"], &input.replacen(before, mistyped, 1));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    let warning = "warning: Deployment podinfo: the annotation postern/prot means nothing";
    has(&end.stderr, warning);
    let of_annotations = end.stderr.matches("annotation").count();
    assert_eq!(of_annotations, 1, "{}", end.stderr);
}

#[test]
fn inject_removes_what_it_has_put_in() {
    let injected = fs::read_to_string(data("inject/out/podinfo.yaml")).unwrap();
    let end = postern_k8s(&["inject", "--remove"], &injected);
    assert_eq!((end.code, &*end.stderr), (Some(0), ""));
    for text in ["serve", "18080", "18081", "postern/original", "preStop"] {
        assert!(!end.stdout.contains(text), "{text}: {}", end.stdout);
    }
    let again = postern_k8s(&["inject"], &end.stdout);
    assert_eq!(again.stdout, injected, "{}", again.stderr);

    let unknown = injected.replace("postern/original", "postern/originals");
    let end = postern_k8s(&["inject", "--remove"], &unknown);
    let line =
        "warning: Deployment podinfo: not changed: it does not say what was replaced in it\n";
    assert_eq!((end.code, &*end.stderr), (Some(0), line));
    assert_eq!(end.stdout, unknown);
}

#[test]
fn flags_renew_the_sidecars_that_inject_has_put_in() {
    let injected = fs::read_to_string(data("inject/out/podinfo.yaml")).unwrap();
    let flags = [
        "inject",
        "--image",
        "example.com/sidecar:9",
        "--set",
        "POSTERN_AUDIENCE=other",
    ];
    let renewed = postern_k8s(&flags, &injected);
    let original = fs::read_to_string(data("inject/in/podinfo.yaml")).unwrap();
    let expected = postern_k8s(&flags, &original).stdout;
    assert!(expected.contains("sidecar:9") && expected.contains("\"other\""));
    assert_eq!(renewed.stdout, expected, "{}", renewed.stderr);
}

#[test]
fn sidecars_speak_what_services_say_renewed_ones_too() {
    for (ports, protocol) in [
        (
            "{port: 80, targetPort: 7000, appProtocol: kubernetes.io/h2c}",
            "h2c",
        ),
        (
            "{port: 80, targetPort: main, appProtocol: https-web}",
            "https",
        ),
        ("{port: 80, targetPort: 7000, name: grpc-api}", "h2c"),
        ("{port: 80, targetPort: main, name: http2}", "h2c"),
        (
            "{port: 80, targetPort: 7000, name: grpc-api, appProtocol: http}",
            "http",
        ),
        ("{port: 80, targetPort: 7000, name: grpc-web}", "http"),
        ("{port: 443, targetPort: 7000, name: https}", "http"),
        (
            "{port: 80, targetPort: 7000, name: http}, {port: 90, targetPort: main, name: grpc}",
            "http",
        ),
        (
            "{port: 80, targetPort: 7000, name: h2c}, {port: 90, targetPort: main, name: grpc}",
            "h2c",
        ),
        // It leads to the sidecar by its author's will, who says what clients speak to it.
        ("{port: 443, targetPort: 18080, appProtocol: https}", "http"),
        // An open port, and one of UDP.
        (
            "{port: 80, targetPort: 7000, name: h2c}, {port: 90, targetPort: main, name: open, appProtocol: https}",
            "h2c",
        ),
        (
            "{port: 90, targetPort: main, name: open, appProtocol: https, protocol: UDP}",
            "http",
        ),
    ] {
        let manifests = format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: api, labels: {{app: api, postern/sidecar: \"true\"}}}}
spec: {{containers: [{{name: api, image: \"api:1\", ports: [{{name: main, containerPort: 7000}}]}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: api, annotations: {{postern/open-ports: open}}}}
spec: {{selector: {{app: api}}, ports: [{ports}]}}
"
        );
        let upstream = format!("{protocol}://127.0.0.1:7000");
        let injected = postern_k8s(&["inject"], &manifests);
        has(&injected.stdout, format!("\"{upstream}\""));
        let renewed = postern_k8s(&["inject", "--image", "sidecar:9"], &injected.stdout);
        has(&renewed.stdout, format!("\"{upstream}\""));
    }
}

#[test]
fn a_pod_s_annotation_counts_more_than_the_operator_s_user() {
    let input = fs::read_to_string(data("inject/in/openshift.yaml")).unwrap();
    let deployment = input.split("---\n").next().unwrap();
    let plain = &deployment.replace("  annotations: {postern/run-as-user: \"\"}\n", "");
    let users = |flags: &[&str], input: &str| {
        let end = postern_k8s(&[&["inject"], flags].concat(), input);
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        let found = end.stdout.lines().map(str::trim);
        let found = found.filter_map(|line| line.strip_prefix("runAsUser: "));
        found.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(users(&[], plain), ["65532"]);
    assert_eq!(users(&["--run-as-user", ""], plain), [""; 0]);
    assert_eq!(users(&["--run-as-user", "7"], plain), ["7"]);
    assert_eq!(users(&["--run-as-user", "7"], deployment), [""; 0]);
    for mistake in ["0", "-1", "root", " ", "2147483648"] {
        let end = postern_k8s(&["inject", &format!("--run-as-user={mistake}")], plain);
        assert_eq!(end.code, Some(64), "{}", end.stderr);
        has(
            &end.stderr,
            format!("--run-as-user: {mistake:?} is no user id"),
        );
    }
}

#[test]
fn live_objects_change_in_two_steps() {
    let example = fs::read_to_string(data("inject/in/podinfo.yaml")).unwrap();
    let live = example.replace(
        "metadata:\n  name: podinfo",
        "metadata:\n  resourceVersion: \"7\"\n  name: podinfo",
    );
    let both = postern_k8s(&["inject"], &live);
    for line in [
        "warning: Deployment podinfo: the Secret postern-sidecar is not in this input, and no pod starts without it: create it first",
        "warning: Service podinfo: is moved at once",
    ] {
        assert!(both.stderr.contains(line), "{line}: {}", both.stderr);
    }
    let workloads = postern_k8s(&["inject", "--only", "workloads"], &live);
    let services = postern_k8s(&["inject", "--only", "services"], &live);
    assert!(
        !workloads.stdout.contains("kind: \"Service\"\n"),
        "{}",
        workloads.stdout
    );
    assert_eq!(
        services.stdout.matches("\nkind: ").count(),
        1,
        "{}",
        services.stdout
    );
    // Each warning stands beside its object.
    for (end, is_of_workloads) in [(workloads, true), (services, false)] {
        let says = |text| end.stderr.contains(text);
        assert_eq!(says("at once"), !is_of_workloads, "{}", end.stderr);
        assert_eq!(says("Secret postern-sidecar"), is_of_workloads);
    }

    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: postern-sidecar}\nstringData: {app-secret: a}\n";
    let flags = ["inject", IMAGE, AUTH_SERVER];
    let known = postern_k8s(&flags, &(example + secret));
    assert_eq!((known.code, &*known.stderr), (Some(0), ""));
}

const IMAGE: &str = "--image=registry.example.com/postern/sidecar:1";
const AUTH_SERVER: &str = "--set=POSTERN_AUTH_SERVER=dns://auth.identity.svc:9000/auth";

#[test]
fn defaults_that_few_clusters_can_use_are_named_once() {
    let input = fs::read_to_string(data("inject/in/boutique.yaml")).unwrap();
    let several = format!("{input}\n---\n{}", input.replace("frontend", "backend"));
    let own_file = fs::read_to_string(data("inject/in/config-file.yaml")).unwrap();
    let (image, source) = ("warning: no --image: ", "warning: no --set of a source");
    for (input, flags, named) in [
        (&several, &[][..], &[image, source][..]),
        (&several, &[IMAGE], &[source]),
        (&several, &["--set=POSTERN_AUDIENCE=a"], &[image, source]),
        (&several, &[AUTH_SERVER], &[image]),
        (&several, &["--set=POSTERN_JWKS=http://a/keys"], &[image]),
        (&several, &[IMAGE, AUTH_SERVER], &[]),
        (&several, &["--only=services"], &[]),
        (&several, &["--remove"], &[]),
        // Its ConfigMap names the source.
        (&own_file, &[], &[image]),
    ] {
        let end = postern_k8s(&[&["inject"], flags].concat(), input);
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        let lines = end.stderr.lines().filter(|line| line.contains(": no --"));
        let lines: Vec<_> = lines.collect();
        let are_named = lines.iter().zip(named).all(|(a, b)| a.starts_with(b));
        assert!(
            lines.len() == named.len() && are_named,
            "{flags:?}: {lines:?}"
        );
    }
}

#[test]
fn a_service_that_has_the_label_alone_is_named() {
    let service = "apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, labels: {postern/sidecar: \"true\"}}
spec: {selector: {app: web}, ports: [{port: 80}]}
";
    let pod = "---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {containers: [{name: web, image: \"web:1\", ports: [{containerPort: 80}]}]}
";
    let labelled = pod.replace("{app: web}", "{app: web, postern/sidecar: \"true\"}");
    let both = format!("{service}{pod}");
    let line = "Service shop/web: has the label postern/sidecar, and no workload here that it selects has it";
    let labelled = format!("{service}{labelled}");
    for (words, input, code, said) in [
        ("inject", service, 0, true),
        ("inject", &both, 0, true),
        ("inject", &labelled, 0, false),
        ("lint", service, 0, true),
        ("lint", &both, 0, true),
        // The workload alone is what it complains about.
        ("lint", &labelled, CONFIG, false),
    ] {
        let end = postern_k8s(&[words], input);
        assert_eq!(end.code, Some(code), "{words}: {}", end.stderr);
        let is_said = end.stderr.contains(line);
        assert_eq!(is_said, said, "{words} {input}: {}", end.stderr);
    }
}

#[test]
fn lint_names_what_inject_would_change_or_reject() {
    for file in files("lint") {
        let text = fs::read_to_string(&file).unwrap();
        let reason = text.lines().next().unwrap().trim_start_matches("# ");
        let (before, _) = text.rsplit_once("apiVersion").unwrap();
        let (file, line) = (file.display().to_string(), before.lines().count() + 1);
        let end = run(Program::Kubernetes, &["lint", "-f", &file]);
        assert_eq!(end.code, Some(CONFIG), "{file}");
        let start = format!("{file}:{line}: {reason}");
        assert!(end.stdout.starts_with(&start), "{start}: {}", end.stdout);
        assert_eq!(end.stdout.lines().count(), 1, "{}", end.stdout);
        assert_eq!(end.stderr, "error: 1 problem\n");
        let twice = run(Program::Kubernetes, &["lint", "-f", &file, "-f", &file]);
        has(&twice.stderr, "error: 2 problems\n");
    }
    let whole = fs::read_to_string(data("inject/out/podinfo.yaml")).unwrap();
    let end = postern_k8s(&["lint"], &whole);
    assert_eq!((end.code, &*end.stdout), (Some(0), ""));
}
