//! Properties of the injection, over generated manifests and the examples of tests/data/inject.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod generated;
mod reviews;

use std::fs;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::Value;

use crate::cli::SidecarsArgs;
use crate::container::settings::Settings;
use crate::inject::lint;
use crate::manifest::object::{Object, list, name_of, text};
use crate::manifest::original::below;
use crate::pod::add_sidecar;
use crate::yaml::{documents, stream};
use postern_contract::settings::probes;

fn settings() -> &'static Settings {
    static SETTINGS: LazyLock<Settings> =
        LazyLock::new(|| Settings::new(&SidecarsArgs::default()).unwrap());
    &SETTINGS
}

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/inject/in");

fn example(name: &str) -> String {
    fs::read_to_string(format!("{EXAMPLES}/{name}")).unwrap()
}

/// Returns the texts of all examples.
fn examples() -> impl Iterator<Item = String> {
    let files = fs::read_dir(EXAMPLES).unwrap();
    files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
}

fn values(text: &str) -> Vec<Value> {
    let documents = documents("-", text).unwrap().into_iter();
    documents.map(|document| document.value).collect()
}

/// Returns the text with sidecars.
fn inject(text: &str, settings: &Settings) -> Result<String, String> {
    let mut documents = documents("-", text).map_err(|error| error.to_string())?;
    super::inject::inject(&mut documents, settings).map_err(|error| error.to_string())?;
    Ok(stream(documents.iter().map(|document| &document.value)))
}

/// Returns the setting by which sidecars forward probes, as Kubernetes expands it.
fn forwarded_probes(value: &Value) -> Vec<String> {
    let pod = Object(value).pod();
    let sidecars = pod.into_iter().filter_map(Object::sidecar);
    let variables = sidecars.flat_map(|sidecar| list(&sidecar["env"]));
    let probes = variables.filter(|variable| name_of(variable) == "POSTERN_PROBES");
    probes
        .map(|variable| text(variable, "/value").replace("$$", "$"))
        .collect()
}

/// Returns the first place where `after` lacks something of `before`.
fn lost(before: &Value, after: &Value, path: &str) -> Option<String> {
    let moves = [
        "/targetPort",
        "/httpGet/path",
        "/httpGet/port",
        "/httpGet/scheme",
        "/spec/resources/requests/cpu",
        "/spec/resources/requests/memory",
        "/spec/resources/limits/cpu",
        "/spec/resources/limits/memory",
    ];
    match (before, after) {
        (Value::Null, _) => None,
        (Value::Object(before), Value::Object(after)) => before.iter().find_map(|(name, value)| {
            let path = format!("{path}/{name}");
            match after.get(name) {
                Some(kept) => lost(value, kept, &path),
                None => Some(path),
            }
        }),
        (Value::Array(before), Value::Array(after)) if before.len() <= after.len() => {
            let kept = after.iter().skip(after.len() - before.len());
            let mut pairs = before.iter().zip(kept);
            pairs.find_map(|(before, after)| lost(before, after, &format!("{path}/-")))
        }
        _ if before == after || moves.iter().any(|end| path.ends_with(end)) => None,
        _ => Some(path.to_owned()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn inject_adds_once_and_keeps_everything(manifest in generated::manifest()) {
        let text = manifest.text();
        let before = values(&text);
        let Ok(once) = inject(&text, settings()) else {
            return Ok(());
        };
        prop_assert!(once.contains("startupz"), "{once}");
        for (before, after) in before.iter().zip(values(&once)) {
            prop_assert_eq!(lost(before, &after, ""), None, "{}\n{}", text, once);
        }
        prop_assert_eq!(lint(&documents("-", &once).unwrap(), settings()).problems, Vec::<String>::new());
        for probes in values(&once).iter().flat_map(forwarded_probes) {
            prop_assert!(probes::parse(&probes).is_ok(), "{}", probes);
        }
        let twice = inject(&once, settings()).unwrap();
        prop_assert_eq!(twice, once);
    }
}

/// Returns the text without sidecars, and what stays.
fn remove(text: &str) -> (Vec<Value>, Vec<String>) {
    let mut documents = documents("-", text).unwrap();
    super::inject::remove(&mut documents, |_| true);
    let stays = documents.iter().flat_map(|each| each.warnings.clone());
    let stays = stays.collect();
    let values = documents.into_iter().map(|document| document.value);
    (values.collect(), stays)
}

/// Removes empty members, which for Kubernetes are not there.
fn pruned(value: Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(members) => {
            let members = members
                .into_iter()
                .map(|(name, value)| (name, pruned(value)));
            Value::Object(members.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(items) => items.into_iter().map(pruned).collect(),
        scalar => scalar,
    }
}

/// Asserts that the way back leads to the same objects.
fn leads_back(text: &str) {
    let Ok(injected) = inject(text, settings()) else {
        return;
    };
    let (removed, stays) = remove(&injected);
    assert_eq!(stays, Vec::<String>::new(), "{text}");
    let original: Vec<Value> = values(text).into_iter().map(pruned).collect();
    let removed: Vec<Value> = removed.into_iter().map(pruned).collect();
    assert_eq!(removed, original, "{injected}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn what_inject_has_put_in_is_removed(manifest in generated::manifest()) {
        leads_back(&manifest.text());
    }
}

#[test]
fn the_examples_lead_back() {
    for text in examples() {
        leads_back(&text);
    }
}

#[test]
fn what_was_edited_since_stays_and_is_named() {
    let injected = inject(&example("podinfo.yaml"), settings()).unwrap();
    let edited = injected
        .replacen("targetPort: 18080", "targetPort: 9999", 1)
        .replacen("seconds: 15", "seconds: 7", 1);
    let (removed, stays) = remove(&edited);
    let expected = [
        "Deployment podinfo: /spec/template/spec/containers/0/lifecycle: edited since, left as it is",
        "Service podinfo: /spec/ports/0/targetPort: edited since, left as it is",
    ];
    assert_eq!(stays, expected);
    let text = stream(&removed);
    assert!(text.contains("targetPort: 9999") && text.contains("seconds: 7"));
    let is_free = !text.contains("postern/original") && !text.contains("readyz: \"sidecar\"");
    assert!(is_free, "{text}");
}

#[test]
fn an_edited_probe_stays_whole() {
    let injected = inject(&example("tcp-probes.yaml"), settings()).unwrap();
    let edited = injected.replacen("path: \"/probe/chat-readiness\"", "path: \"/ready\"", 1);
    let (removed, stays) = remove(&edited);
    let member = "/spec/template/spec/containers/0/readinessProbe";
    let line = format!("Deployment chat: {member}: edited since, left as it is");
    assert_eq!(stays, [line]);
    let container = "/spec/template/spec/containers/0";
    let probes = removed.iter().find_map(|each| each.pointer(container));
    let probes = probes.unwrap();
    assert_eq!(probes["readinessProbe"]["tcpSocket"], Value::Null);
    assert_eq!(probes["readinessProbe"]["httpGet"]["path"], "/ready");
    assert_eq!(probes["startupProbe"]["httpGet"], Value::Null);
}

/// Returns the value that a container finds in a variable; `None` where it has no such one.
fn expanded(container: &Value, name: &str) -> Option<String> {
    let variable = list(&container["env"]).find(|variable| name_of(variable) == name)?;
    Some(text(variable, "/value").replace("$$", "$"))
}

/// Pieces of settings that annotations hold, good and bad.
fn setting() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "/", "a", "/a/**", "/b", ",", ", ", "GET", "HEAD ", "get", " ", "*", "{x}", "..", "%2f",
        "$", "$(HOME)", "$$", "\n", "ü", "?", "//",
    ]);
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn an_annotation_is_accepted_if_the_sidecar_accepts_its_setting(value in setting()) {
        let accepts: [(&str, &str, bool); 3] = [
            ("postern/public-path", "POSTERN_PUBLIC_PATH", postern_contract::settings::pass_list(&value).is_ok()),
            ("postern/app-name", "POSTERN_APP_NAME", postern_contract::settings::context_path(&value).is_ok()),
            ("postern/app-id", "POSTERN_APP_ID", postern_contract::settings::app_id(&value).is_ok()),
        ];
        for (annotation, variable, is_accepted) in accepts {
            let mut pod = serde_json::json!({
                "kind": "Pod",
                "metadata": {
                    "name": "a", "labels": {"app": "a", "postern/sidecar": "true"},
                    "annotations": {annotation: value},
                },
                "spec": {"containers": [{"name": "a", "image": "a:1"}]},
            });
            match add_sidecar(&mut pod, settings(), &[]) {
                Ok(_) => {
                    let sidecar = pod.pointer("/spec/initContainers/0").unwrap();
                    prop_assert_eq!(expanded(sidecar, variable), Some(value.clone()));
                    prop_assert!(is_accepted);
                }
                Err(error) => {
                    prop_assert!(!is_accepted && error.contains(annotation), "{}", error);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn the_webhook_makes_the_pod_that_inject_makes(manifest in generated::manifest()) {
        reviews::same_pods(&manifest.text());
    }
}

/// Returns the pointers of all members and items below a value.
fn pointers(value: &Value, path: &str) -> Vec<String> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(members) => {
            let members = members.iter();
            members
                .map(|(name, value)| (below(path, name), value))
                .collect()
        }
        Value::Array(items) => {
            let paths = (0..items.len()).map(|n| format!("{path}/{n}"));
            paths.zip(items).collect()
        }
        _ => Vec::new(),
    };
    let below = |(path, value): (String, &Value)| [pointers(value, &path), vec![path]].concat();
    inner.into_iter().flat_map(below).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn a_wrong_member_is_left_alone_or_an_error_of_one_line(
        manifest in generated::manifest(),
        number in any::<prop::sample::Index>(),
        wrong in prop::sample::select(vec![
            Value::Null, true.into(), 7.into(), (-1).into(), "x".into(), vec![1].into(),
            serde_json::json!({}), serde_json::json!({"x": [null, {}]}), serde_json::json!([{"name": "sidecar"}, 7]),
        ]),
    ) {
        let mut objects = Value::from(values(&manifest.text()));
        let pointers = pointers(&objects, "");
        let pointer = &pointers[number.index(pointers.len())];
        *objects.pointer_mut(pointer).unwrap() = wrong;
        let text = stream(objects.as_array().unwrap());
        match inject(&text, settings()) {
            Ok(injected) => {
                let twice = inject(&injected, settings());
                prop_assert_eq!(twice.as_ref(), Ok(&injected), "{}", pointer);
                let before = values(&text);
                for (before, after) in before.iter().zip(values(&injected)) {
                    prop_assert_eq!(lost(before, &after, ""), None, "{}", injected);
                }
            }
            Err(error) => {
                let names_object = error.starts_with("-:") && error.matches(": ").count() >= 2;
                prop_assert!(names_object && !error.contains('\n'), "{}", error);
            }
        }
        for object in values(&text) {
            reviews::is_whole(&object);
        }
    }
}

#[test]
fn the_webhook_makes_the_pods_of_the_examples() {
    for text in examples() {
        reviews::same_pods(&text);
    }
}

#[test]
fn any_text_is_an_error_of_one_line_or_written_anew() {
    for text in [
        "",
        "\n",
        "---\n",
        "---\n---\n",
        "a",
        "[]",
        "{}",
        "- a\n- b\n",
        "kind: Pod\n",
        "kind: Deployment\nspec:\n",
        "# only a comment\n",
        "a: b\n...\n",
        "%YAML 1.2\n---\na: b\n",
        "a: *nothing\n",
        "a: [\n",
        "\ta: b\n",
        "a: b\r\nc: d\r\n",
        "? [a]\n: b\n",
        "a: &a [*a, *a]\n",
        "a: .inf\n",
        "~: 1\n",
        "<<: 1\n",
        "kind: List\nitems: {}\n",
    ] {
        match inject(text, settings()) {
            Ok(written) => assert_eq!(values(&written), values(text), "{text}"),
            Err(error) => assert!(error.starts_with("-:") && !error.contains('\n'), "{error}"),
        }
    }
}

#[test]
fn references_that_multiply_end() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{}", level - 1);
        let items = vec![below; 10].join(", ");
        text += &format!("a{level}: &a{level} [{items}]\n");
    }
    let error = inject(&text, settings()).unwrap_err();
    assert!(error.contains("references without an end"), "{error}");
    let mut chain = "a0: &a0 [x]\n".to_owned();
    for level in 1..5000 {
        chain += &format!("a{level}: &a{level} [*a{}]\n", level - 1);
    }
    let error = inject(&chain, settings()).unwrap_err();
    assert!(error.contains("references without an end"), "{error}");
    let deep = "[".repeat(5000);
    let error = inject(&deep, settings()).unwrap_err();
    assert!(error.starts_with("-:1: "), "{error}");
}
