#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use super::*;

/// The first document of a store, after a change for each.
fn applications(all: &[(&str, SecretHashes)]) -> Applications {
    let mut document = Applications::default();
    for (id, secrets) in all {
        document = document.changed(id.parse().unwrap(), secrets.clone(), 1);
    }
    document
}

/// The same document after a change of one.
fn after(document: &Applications, id: &str, secrets: SecretHashes) -> Applications {
    document.changed(id.parse().unwrap(), secrets, 9)
}

fn none() -> Applications {
    Applications::default()
}

fn event(id: &str, event: ApplicationEvent) -> (AppId, ApplicationEvent) {
    (id.parse().unwrap(), event)
}

fn orders() -> Applications {
    applications(&[("orders", SecretHashes::default().with_new("right"))])
}

fn authorize(registrations: &ApplicationRegistry, id: &str, secret: &str) -> Result<(), Rejection> {
    registrations.authorize(id, secret)
}

#[test]
fn nothing_is_allowed_before_the_store_was_read() {
    let registrations = ApplicationRegistry::new(false, None);
    assert_eq!(
        authorize(&registrations, "any", "pair"),
        Err(Rejection::StoreUnavailable)
    );
}

#[test]
fn where_registrations_are_required_none_means_closed() {
    let registrations = ApplicationRegistry::new(true, None);
    assert!(registrations.are_missing());
    registrations.reconcile(Some(none()));
    assert_eq!(
        authorize(&registrations, "any", "pair"),
        Err(Rejection::StoreUnavailable)
    );
    assert!(registrations.are_missing());
    registrations.reconcile(Some(orders()));
    assert_eq!(authorize(&registrations, "orders", "right"), Ok(()));
    assert!(!registrations.are_missing());
}

#[test]
fn a_store_that_lost_the_document_gets_it_back_whole() {
    let registrations = ApplicationRegistry::new(false, None);
    registrations.reconcile(Some(orders()));
    let began_anew = none().changed(
        "stock".parse().unwrap(),
        SecretHashes::default().with_new("new"),
        2,
    );
    let longer = after(
        &began_anew,
        "bills",
        SecretHashes::default().with_new("new"),
    );
    for lost in [none(), began_anew, longer] {
        let reconciled = registrations.reconcile(Some(lost));
        assert_eq!(reconciled.restored, Some(orders()));
        assert_eq!(authorize(&registrations, "orders", "right"), Ok(()));
        let unknown = authorize(&registrations, "stock", "new");
        assert_eq!(unknown, Err(Rejection::ApplicationUnknown));
    }
}

#[test]
fn an_unreadable_document_changes_and_opens_nothing() {
    let denied = Err(Rejection::ApplicationUnknown);
    let known = ApplicationRegistry::new(false, None);
    known.reconcile(Some(orders()));
    assert_eq!(known.reconcile(None), Reconciled::default());
    assert_eq!(authorize(&known, "orders", "right"), Ok(()));
    assert_eq!(authorize(&known, "stock", "1"), denied);
    let started = ApplicationRegistry::new(false, None);
    started.reconcile(None);
    let unread = authorize(&started, "orders", "right");
    assert_eq!(unread, Err(Rejection::StoreUnavailable));

    let removed = || {
        after(
            &orders(),
            "orders",
            SecretHashes::default().with_new("right").removed(2),
        )
    };
    for (reads, is_open) in [
        (vec![Some(none())], true),
        (vec![Some(none()), None, Some(none())], false),
        (vec![Some(none()), None, Some(orders())], false),
        (
            vec![Some(none()), None, Some(orders()), Some(removed())],
            true,
        ),
        (vec![Some(none()), None, Some(removed())], true),
    ] {
        let registrations = ApplicationRegistry::new(false, None);
        for read in &reads {
            registrations.reconcile(read.clone());
        }
        let outcome = authorize(&registrations, "any", "pair");
        assert_eq!(outcome.is_ok(), is_open, "{reads:?}");
    }
}

#[test]
fn a_log_shows_what_was_sent_as_an_id_unless_it_may_be_a_secret() {
    let registrations = ApplicationRegistry::new(false, None);
    assert_eq!(
        registrations.logged_id("orders", "x", true),
        "[not known yet]"
    );
    registrations.reconcile(Some(none()));
    let token = format!("postern_rt_{}", "A".repeat(64));
    for (sent, logged) in [
        ("any", "any".to_owned()),
        (
            "2f1c1b8e-6f0e-4d8e-9a53-0f6a3c1d2e4b",
            "2f1c1b8e-6f0e-4d8e-9a53-0f6a3c1d2e4b".to_owned(),
        ),
        ("a;appSecret=hush", "a…".to_owned()),
        ("a&appSecret=hush", "a…".to_owned()),
        ("appSecret=hush", "appSecret…".to_owned()),
        (&token, format!("{}…", &token[..40])),
    ] {
        assert_eq!(registrations.logged_id(sent, "x", true), logged, "{sent}");
    }
    // Where no application is registered none can have sent its own.
    let rejected = registrations.logged_id("MYPASSWORD2", "x", false);
    assert_eq!(rejected, "MYPAS…");
    let closed = ("closed", SecretHashes::default());
    registrations.reconcile(Some(applications(&[
        (
            "orders",
            SecretHashes::default().with_new("former").with_new("right"),
        ),
        closed,
    ])));
    for (sent, secret, logged) in [
        ("orders", "x", "orders"),
        ("orders", "closed", "orders"),
        ("closed", "x", "closed"),
        ("never-registered", "x", "never-re…"),
        ("never-registered-1", "x", "never-re…"),
        ("MYPASSWORD2", "x", "MYPAS…"),
        ("x", "x", "…"),
        ("correct horse", "x", "correc…"),
        (&token, "x", "postern_…"),
        ("größe\u{202e}", "x", "grö…"),
        ("right", "x", "[a secret]"),
        ("former", "x", "[a secret]"),
        ("mistyped secret", "orders", "[a secret]"),
        ("", "orders", ""),
    ] {
        assert_eq!(
            registrations.logged_id(sent, secret, false),
            logged,
            "{sent}"
        );
    }
}

#[test]
fn a_removed_application_that_could_obtain_tokens_is_named_once() {
    let registrations = ApplicationRegistry::new(false, None);
    let granted = |grant: &str| {
        let grant = serde_json::from_str(grant).unwrap();
        SecretHashes::default().with_new("right").with_grant(grant)
    };
    let orders = granted(r#"{"audience":["stock"]}"#);
    let jobs = granted(r#"{"scope":"a"}"#);
    let both = applications(&[("orders", orders.clone()), ("jobs", jobs.clone())]);
    registrations.reconcile(Some(both.clone()));
    let ended = |stored: Applications| registrations.reconcile(Some(stored)).ended;
    assert_eq!(ended(both.clone()), []);
    // A lost document is restored, and is no removal.
    assert_eq!(ended(none()), []);
    let removed = after(&both, "orders", orders.removed(2));
    let removed = after(&removed, "jobs", jobs.removed(2));
    assert_eq!(ended(removed.clone()), ["orders".parse().unwrap()]);
    assert_eq!(ended(removed), []);
}

#[test]
fn applications_of_a_directory_count_beside_those_of_the_store() {
    let mounted = applications(&[("stock", SecretHashes::default().with_new("mounted"))]);
    let registrations = ApplicationRegistry::new(false, Some(mounted));
    let closed = authorize(&registrations, "stock", "mounted");
    assert_eq!(
        closed,
        Err(Rejection::StoreUnavailable),
        "the store was not read yet"
    );
    registrations.reconcile(Some(orders()));
    assert_eq!(registrations.count(), 2);
    for (id, secret, outcome) in [
        ("orders", "right", Ok(())),
        ("stock", "mounted", Ok(())),
        ("stock", "right", Err(Rejection::ApplicationUnknown)),
    ] {
        assert_eq!(authorize(&registrations, id, secret), outcome, "{id}");
    }
    assert_eq!(registrations.logged_id("stock", "x", false), "stock");
    assert!(registrations.registered_id("stock").is_some());
    let dropped = SecretHashes::default()
        .with_new("mounted")
        .with_new("next")
        .newest();
    registrations.reconcile(Some(after(&orders(), "stock", dropped)));
    let rejected = authorize(&registrations, "stock", "mounted");
    assert_eq!(
        rejected,
        Err(Rejection::ApplicationUnknown),
        "it was dropped"
    );
}

#[test]
fn an_empty_directory_accepts_no_client() {
    let stock = applications(&[("stock", SecretHashes::default().with_new("mounted"))]);
    let registrations = ApplicationRegistry::new(false, Some(stock));
    registrations.reconcile(Some(none()));
    let changed = registrations.mount(applications(&[(
        "stock",
        SecretHashes::default().with_new("other"),
    )]));
    assert_eq!(changed, [event("stock", ApplicationEvent::SecretsChanged)]);
    let removed = registrations.mount(Applications::default());
    assert_eq!(removed, [event("stock", ApplicationEvent::Removed)]);
    for (id, secret) in [("stock", "mounted"), ("any", "pair")] {
        let rejected = authorize(&registrations, id, secret);
        assert_eq!(rejected, Err(Rejection::ApplicationUnknown), "{id}");
    }
    let hmac = ApplicationRegistry::new(true, Some(orders()));
    hmac.reconcile(Some(none()));
    assert!(!hmac.are_missing());
    assert_eq!(authorize(&hmac, "orders", "right"), Ok(()));
}

#[test]
fn a_dropped_secret_stays_dropped_when_an_older_record_is_back() {
    let registrations = ApplicationRegistry::new(false, None);
    let leaked = SecretHashes::default().with_new("leaked").with_new("next");
    let older = applications(&[("orders", leaked.clone())]);
    let dropped = after(&older, "orders", leaked.newest());
    registrations.reconcile(Some(dropped.clone()));
    let reconciled = registrations.reconcile(Some(older.clone()));
    assert_eq!(reconciled.restored, Some(dropped));
    // A command has written to the older one since.
    let written = after(&older, "stock", SecretHashes::default().with_new("other"));
    assert!(registrations.reconcile(Some(written)).restored.is_some());
    assert_eq!(authorize(&registrations, "stock", "other"), Ok(()));
    let leaked = authorize(&registrations, "orders", "leaked");
    assert_eq!(leaked, Err(Rejection::ApplicationUnknown));
    assert_eq!(authorize(&registrations, "orders", "next"), Ok(()));
}
