#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use super::*;

fn applications(records: &[(&str, SecretHashes)]) -> Applications {
    let mut all = Applications::default();
    for (id, secrets) in records {
        all.put(id.parse().unwrap(), secrets.clone());
    }
    all
}

fn unreadable(ids: &[&str]) -> Applications {
    Applications {
        unreadable: ids.iter().map(ToString::to_string).collect(),
        ..Applications::default()
    }
}

fn event(id: &str, event: ApplicationEvent) -> (AppId, ApplicationEvent) {
    (id.parse().unwrap(), event)
}

fn orders() -> Applications {
    applications(&[("orders", SecretHashes::of("right"))])
}

fn authorize(registrations: &ApplicationRegistry, id: &str, secret: &str) -> Result<(), Rejection> {
    registrations.authorize(id, secret)
}

#[test]
fn nothing_is_allowed_before_the_store_was_read() {
    let registrations = ApplicationRegistry::new(false);
    assert_eq!(
        authorize(&registrations, "any", "pair"),
        Err(Rejection::StoreUnavailable)
    );
}

#[test]
fn where_registrations_are_required_none_means_closed() {
    let registrations = ApplicationRegistry::new(true);
    assert!(registrations.are_missing());
    registrations.reconcile(&Applications::default());
    assert_eq!(
        authorize(&registrations, "any", "pair"),
        Err(Rejection::StoreUnavailable)
    );
    assert!(registrations.are_missing());
    registrations.reconcile(&orders());
    assert_eq!(authorize(&registrations, "orders", "right"), Ok(()));
    assert!(!registrations.are_missing());
}

#[test]
fn an_application_added_to_a_lost_store_displaces_no_lost_one() {
    let registrations = ApplicationRegistry::new(false);
    registrations.reconcile(&orders());
    let stock = applications(&[("stock", SecretHashes::of("new"))]);
    let reconciled = registrations.reconcile(&stock);
    let lost = [("orders".parse().unwrap(), SecretHashes::of("right"))];
    assert_eq!(reconciled.restored, lost);
    for (id, secret) in [("orders", "right"), ("stock", "new")] {
        assert_eq!(authorize(&registrations, id, secret), Ok(()), "{id}");
    }
}

#[test]
fn a_record_that_became_unreadable_stays_in_force() {
    let unreadable = || unreadable(&["orders", "stock"]);
    let known = ApplicationRegistry::new(false);
    known.reconcile(&orders());
    assert_eq!(known.reconcile(&unreadable()), Reconciled::default());
    assert_eq!(known.unreadable(), ["orders", "stock"]);
    let started = ApplicationRegistry::new(false);
    started.reconcile(&unreadable());
    let denied = Err(Rejection::ApplicationUnknown);
    assert_eq!(authorize(&known, "orders", "right"), Ok(()));
    assert_eq!(authorize(&started, "orders", "right"), denied);
    for registrations in [&known, &started] {
        assert_eq!(authorize(registrations, "stock", "1"), denied);
    }
    known.reconcile(&orders());
    assert_eq!(known.unreadable(), [""; 0]);
}

#[test]
fn a_store_that_lost_an_unreadable_record_opens_nothing() {
    let unreadable = || unreadable(&["orders"]);
    let lost = Applications::default;
    let removed = || applications(&[("orders", SecretHashes::of("right").removed())]);
    let stock_removed = || applications(&[("stock", SecretHashes::default())]);
    for (reads, is_open) in [
        (vec![lost()], true),
        (vec![unreadable(), lost(), lost()], false),
        (vec![lost(), unreadable(), lost()], false),
        (vec![unreadable(), lost(), orders()], false),
        (vec![unreadable(), lost(), orders(), removed()], true),
        (vec![unreadable(), stock_removed()], false),
    ] {
        let registrations = ApplicationRegistry::new(false);
        for read in &reads {
            registrations.reconcile(read);
        }
        let outcome = authorize(&registrations, "any", "pair");
        assert_eq!(outcome.is_ok(), is_open, "{reads:?}");
    }
}

#[test]
fn a_log_shows_what_was_sent_as_an_id_unless_it_may_be_a_secret() {
    let registrations = ApplicationRegistry::new(false);
    assert_eq!(
        registrations.logged_id("orders", "x", 16),
        "[not known yet]"
    );
    registrations.reconcile(&Applications::default());
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
        assert_eq!(registrations.logged_id(sent, "x", 16), logged, "{sent}");
    }
    let closed = ("closed", SecretHashes::default());
    registrations.reconcile(&applications(&[
        ("orders", SecretHashes::of("former").with_new("right")),
        closed,
    ]));
    for (sent, secret, logged) in [
        ("orders", "x", "orders"),
        ("orders", "closed", "orders"),
        ("closed", "x", "closed"),
        ("never-registered", "x", "never-registered"),
        ("never-registered-1", "x", "never-registered…"),
        ("correct horse", "x", "correct…"),
        (&token, "x", "postern_rt_AAAAA…"),
        ("größe\u{202e}", "x", "größe…"),
        ("right", "x", "[a secret]"),
        ("former", "x", "[a secret]"),
        ("mistyped secret", "orders", "[a secret]"),
        ("", "orders", ""),
    ] {
        assert_eq!(registrations.logged_id(sent, secret, 16), logged, "{sent}");
    }
}

#[test]
fn a_removed_application_that_could_obtain_tokens_is_named_once() {
    let registrations = ApplicationRegistry::new(false);
    let granted = |grant: &str| {
        let grant = serde_json::from_str(grant).unwrap();
        SecretHashes::of("right").with_grant(grant)
    };
    let orders = granted(r#"{"audience":["stock"]}"#);
    let jobs = granted(r#"{"scope":"a"}"#);
    let with = |orders: &SecretHashes, jobs: &SecretHashes| {
        applications(&[("orders", orders.clone()), ("jobs", jobs.clone())])
    };
    registrations.reconcile(&with(&orders, &jobs));
    let ended = |stored: Applications| registrations.reconcile(&stored).ended;
    assert_eq!(ended(with(&orders, &jobs)), []);
    // A lost record is restored, and is no removal.
    assert_eq!(ended(applications(&[])), []);
    let removed = with(&orders.removed(), &jobs.removed());
    assert_eq!(ended(removed.clone()), ["orders".parse().unwrap()]);
    assert_eq!(ended(removed), []);
}

#[test]
fn applications_of_a_directory_count_beside_those_of_the_store() {
    let mounted = applications(&[("stock", SecretHashes::of("mounted"))]);
    let registrations = ApplicationRegistry::new(false).with_directory(mounted);
    let closed = authorize(&registrations, "stock", "mounted");
    assert_eq!(
        closed,
        Err(Rejection::StoreUnavailable),
        "the store was not read yet"
    );
    registrations.reconcile(&orders());
    assert_eq!(registrations.count(), 2);
    for (id, secret, outcome) in [
        ("orders", "right", Ok(())),
        ("stock", "mounted", Ok(())),
        ("orders", "mounted", Err(Rejection::ApplicationUnknown)),
        ("stock", "right", Err(Rejection::ApplicationUnknown)),
    ] {
        assert_eq!(authorize(&registrations, id, secret), outcome, "{id}");
    }
    assert_eq!(registrations.logged_id("stock", "x", 0), "stock");
    assert!(registrations.registered_id("stock").is_some());
    let dropped = SecretHashes::of("mounted").with_new("next").newest();
    registrations.reconcile(&applications(&[("stock", dropped)]));
    let rejected = authorize(&registrations, "stock", "mounted");
    assert_eq!(
        rejected,
        Err(Rejection::ApplicationUnknown),
        "it was dropped"
    );
}

#[test]
fn an_empty_directory_accepts_no_client() {
    let stock = applications(&[("stock", SecretHashes::of("mounted"))]);
    let registrations = ApplicationRegistry::new(false).with_directory(stock);
    registrations.reconcile(&Applications::default());
    let removed = registrations.mount(Applications::default());
    assert_eq!(removed, [event("stock", ApplicationEvent::Removed)]);
    for (id, secret) in [("stock", "mounted"), ("any", "pair")] {
        let rejected = authorize(&registrations, id, secret);
        assert_eq!(rejected, Err(Rejection::ApplicationUnknown), "{id}");
    }
    let hmac = ApplicationRegistry::new(true).with_directory(orders());
    hmac.reconcile(&Applications::default());
    assert!(!hmac.are_missing());
    assert_eq!(authorize(&hmac, "orders", "right"), Ok(()));
}

#[test]
fn a_dropped_secret_stays_dropped_when_an_older_record_is_back() {
    let registrations = ApplicationRegistry::new(false);
    let leaked = SecretHashes::of("leaked");
    let dropped = leaked.with_new("next").newest();
    registrations.reconcile(&applications(&[("orders", dropped.clone())]));
    let reconciled = registrations.reconcile(&applications(&[("orders", leaked)]));
    let expected = ("orders".parse().unwrap(), dropped);
    assert_eq!(reconciled.restored, [expected]);
    let leaked = authorize(&registrations, "orders", "leaked");
    assert_eq!(leaked, Err(Rejection::ApplicationUnknown));
    assert_eq!(authorize(&registrations, "orders", "next"), Ok(()));
}
