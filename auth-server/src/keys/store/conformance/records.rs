//! Rules about records with an end.

use std::sync::Arc;
use std::time::Duration;

use runtime::process::clock::unix_now;
use tokio::task::JoinSet;

use super::installations::Installation;
use crate::keys::store::records::{NewRecord, RecordId, RecordStore, StoredRecord, remove_record};

fn id(number: u8) -> RecordId {
    RecordId::from_start(&[number; RecordId::LENGTH]).unwrap()
}

fn new(text: &str) -> Option<NewRecord<'_>> {
    let ends = unix_now() + 3600;
    Some(NewRecord { text, ends })
}

async fn held(store: &Arc<dyn RecordStore>, number: u8) -> Option<StoredRecord> {
    store.record(&id(number)).await.unwrap()
}

pub(super) async fn a_session_is_replaced_only_by_who_knows_what_is_there(
    installation: &dyn Installation,
) {
    let (store, other) = (installation.records(), installation.records());
    let swap = async |expected: &Option<StoredRecord>, new| {
        let swapped = store.swap_record(&id(1), expected.as_ref(), new).await;
        swapped.unwrap()
    };
    assert_eq!(held(&store, 1).await, None);
    assert!(swap(&None, new("first")).await);
    let first = held(&other, 1).await;
    assert_eq!(first.as_ref().unwrap().text, "first");
    assert!(!swap(&None, new("second")).await);
    assert!(swap(&first, new("second")).await);
    assert!(!swap(&first, new("third")).await);
    assert!(!swap(&first, None).await);
    assert_eq!(held(&other, 1).await.unwrap().text, "second");
    assert_eq!(held(&other, 2).await, None);
    let removed = remove_record(&*other, &id(1), |_| true).await.unwrap();
    assert_eq!(removed.unwrap().text, "second");
    assert_eq!(remove_record(&*store, &id(1), |_| true).await, Ok(None));
    assert!(!swap(&first, new("third")).await);
    assert_eq!(held(&store, 1).await, None);
}

pub(super) async fn of_many_who_renew_a_session_at_once_one_does(installation: &dyn Installation) {
    let store = installation.records();
    let begun = store.swap_record(&id(1), None, new("0")).await;
    assert_eq!(begun, Ok(true));
    let before = held(&store, 1).await;
    let mut racing = JoinSet::new();
    for number in 1..=8 {
        let (store, before) = (installation.records(), before.clone());
        racing.spawn(async move {
            let text = number.to_string();
            let swapped = store.swap_record(&id(1), before.as_ref(), new(&text)).await;
            swapped.unwrap().then_some(text)
        });
    }
    let winners: Vec<String> = racing.join_all().await.into_iter().flatten().collect();
    assert_eq!(winners, [held(&store, 1).await.unwrap().text]);
}

pub(super) async fn a_session_is_over_at_its_end(installation: &dyn Installation) {
    let store = installation.records();
    let new = NewRecord {
        text: "short",
        ends: unix_now() + 2,
    };
    assert_eq!(store.swap_record(&id(1), None, Some(new)).await, Ok(true));
    while held(&store, 1).await.is_some() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let again = NewRecord {
        text: "again",
        ends: unix_now() + 3600,
    };
    assert_eq!(store.swap_record(&id(1), None, Some(again)).await, Ok(true));
    assert_eq!(held(&store, 1).await.unwrap().text, "again");
}
