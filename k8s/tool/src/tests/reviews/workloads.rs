//! Workloads and their pods: labels, annotations, rollouts.

use super::*;

fn deployment(own: &Value, of_pods: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"postern/sidecar": "true"}, "annotations": own},
        "spec": {"template": {
            "metadata": {"labels": {"app": "web", "postern/sidecar": "true"}, "annotations": of_pods},
            "spec": {"containers": [{"name": "web", "image": "a:1", "ports": [{"containerPort": 3000}]}]},
        }},
    })
}

/// Returns a stored workload with other labels and annotations of its own, as `kubectl` changes them.
fn changed(stored: &Value, labels: Value, annotations: Value) -> Value {
    let mut changed = stored.clone();
    changed["metadata"]["labels"] = labels;
    changed["metadata"]["annotations"] = annotations;
    changed
}

#[test]
fn changed_annotations_of_a_workload_reach_its_pods() {
    let label = || json!({"postern/sidecar": "true"});
    let all = json!({"postern/public-path": "/**", "postern/port": "3000"});
    let found = |object: &Value| {
        let stored = updated(object, object)?;
        let mut found = stored["spec"]["template"]["metadata"]["annotations"].clone();
        let members = found.as_object_mut()?;
        members.remove("postern/original");
        Some(found)
    };
    let inherited = stored(&deployment(&all, &json!({}))).unwrap();
    let own = stored(&deployment(&json!({}), &all)).unwrap();
    let other = json!({"postern/public-path": "/up", "postern/port": "3000"});
    for (before, annotations, expected) in [
        (&inherited, other.clone(), Some(other.clone())),
        // The only port of its container.
        (&inherited, json!({}), Some(json!({"postern/port": "3000"}))),
        (&inherited, all.clone(), Some(all.clone())),
        // They are the pods' own, or it is unknown which one counts.
        (&own, json!({}), Some(all.clone())),
        (&own, all.clone(), Some(all.clone())),
    ] {
        let object = changed(before, label(), annotations);
        assert_eq!(found(&object), expected, "{object}");
    }
    assert_eq!(stored(&changed(&own, label(), other)), None);
}

#[test]
fn a_container_that_others_add_to_the_pods_stops_no_rollout() {
    let first = stored(&deployment(&json!({}), &json!({}))).unwrap();
    let mut pod = pod_of(&first);
    let mesh = json!({"name": "mesh", "image": "mesh:1", "ports": [{"containerPort": 15090}]});
    let containers = pod["spec"]["containers"].as_array_mut().unwrap();
    containers.push(mesh);
    let text = stored(&pod).unwrap().to_string();
    assert!(text.contains("http://127.0.0.1:3000"), "{text}");
    // The workload's own change is followed.
    let mut changed = first;
    changed["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = 4000.into();
    let pod = pod_of(&updated(&changed, &changed).unwrap());
    let text = stored(&pod).unwrap().to_string();
    assert!(text.contains("http://127.0.0.1:4000"), "{text}");
}

#[test]
fn annotations_of_any_author_s_get_a_response() {
    let deep = json!({"/metadata".to_owned() + &"/a".repeat(200_000): {"now": null, "was": 1}});
    let records = [
        json!({"": {"now": null, "was": 1}}),
        json!({"/spec": {"now": null, "was": 1}}),
        json!({"/metadata/annotations/postern~1original": {"now": null, "was": "x"}}),
        deep,
    ];
    let values = "|0|18080|-1|{}|null|\n|$(A)|NaN|999999999999999999999Gi";
    let mut values: Vec<_> = values.split('|').map(str::to_owned).collect();
    values.extend(["9".repeat(400), "a".repeat(100_000)]);
    values.extend(records.iter().map(ToString::to_string));
    for name in ALL.into_iter().chain([ORIGINAL]) {
        for value in &values {
            for label in ["true", "false"] {
                let mut object = deployment(&json!({}), &json!({name: value}));
                object["metadata"]["labels"]["postern/sidecar"] = label.into();
                let body = request(&object).to_string();
                let (_, reviewed) = review(body.as_bytes(), settings()).unwrap();
                let message = reviewed["response"]["status"]["message"].as_str();
                assert!(message.unwrap_or_default().len() <= 1000, "{reviewed}");
                is_whole(&object);
            }
        }
    }
}

#[test]
fn the_label_of_a_workload_is_followed() {
    for labels in [json!({}), json!({"postern/sidecar": "false"})] {
        let annotations = json!({"postern/port": "3000"});
        let mut before = deployment(&annotations, &json!({}));
        let label = before["spec"]["template"]["metadata"]["labels"].as_object_mut();
        label.unwrap().remove("postern/sidecar");
        let reviewed = stored(&before).unwrap();
        let of_pods = &reviewed["spec"]["template"]["metadata"]["labels"];
        assert_eq!(of_pods["postern/sidecar"], "true");
        for object in [reviewed, injected(&before)] {
            let changed = changed(&object, labels.clone(), annotations.clone());
            let mut expected = before.clone();
            expected["metadata"]["labels"] = labels.clone();
            let found = updated(&object, &changed).map(pruned);
            assert_eq!(found, Some(pruned(expected)));
        }
        // The pods have a label of their own.
        let own = deployment(&annotations, &json!({}));
        let own = changed(&stored(&own).unwrap(), labels.clone(), annotations);
        let is_contradiction = labels.get("postern/sidecar").is_some();
        assert_eq!(updated(&own, &own).is_none(), is_contradiction, "{own}");
    }
}

#[test]
fn a_job_that_runs_stays() {
    let mut job = deployment(&json!({"postern/port": "3000"}), &json!({}));
    job["kind"] = "Job".into();
    assert_eq!(updated(&job, &job), Some(job.clone()));
    assert_ne!(stored(&job), Some(job));
}

#[test]
fn pods_that_only_appear_protected_are_rejected() {
    let annotated = |name: &str, value: &str| pod(&json!({name: value}));
    let fake = json!([{"name": "sidecar", "image": "nginx:1", "restartPolicy": "Always", "ports": [{"name": "sidecar", "containerPort": 80}]}]);
    let plain = pod(&json!({}));
    let (mut faked, mut mislabelled) = (plain.clone(), plain.clone());
    faked["spec"]["initContainers"] = fake;
    mislabelled["metadata"]["labels"]["postern/sidecar"] = "True".into();
    let known = stored(&plain).unwrap();
    let of_pattern = "postern/public-path: pattern";
    let mut on_the_node = known.clone();
    on_the_node["spec"]["hostNetwork"] = true.into();
    for (rejected, reason) in [
        (faked, "called sidecar"),
        (on_the_node, "hostNetwork"),
        (mislabelled, "neither"),
        (annotated("postern/public-path", "POST"), of_pattern),
        (annotated("postern/public-path", "[[a"), of_pattern),
        (
            annotated("postern/port", "18080"),
            "port 18080 is the sidecar's",
        ),
    ] {
        let (_, reviewed) = review(request(&rejected).to_string().as_bytes(), settings()).unwrap();
        let found = reviewed["response"]["status"]["message"].as_str().unwrap();
        assert!(found.contains(reason), "{reason}: {found}");
    }
    assert_eq!(stored(&known), Some(known.clone()));
}
