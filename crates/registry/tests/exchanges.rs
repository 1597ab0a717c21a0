//! The client against servers of the tests. Responses of Nacos 3 are written from its published API;
//! the e2e tests run a real server of Nacos 1 and 2.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::Path;
use std::sync::Mutex;

use registry::{Instance, RegistryClient, RegistryError, RegistrySettings};
use serde::Deserialize;
use tests::services::socket_server::{Reply, SocketServer, response};
use tests::wire::certificates::{Authority, write_private};
use tests::wire::message::Message;

const REGISTERED: &str = r#"{"code":0,"message":"success","data":"ok"}"#;
const PASSWORD: &str = "hu&sh";

#[derive(Deserialize)]
struct Exchange {
    name: String,
    #[serde(default)]
    user: bool,
    calls: Vec<String>,
    responses: Vec<(u16, String)>,
    requests: Vec<String>,
    outcome: String,
}

/// Returns a client of the registry at `url`, which names a file of the password if it names a user.
fn client(url: &str) -> RegistryClient {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    write_private(&file, PASSWORD);
    let url = url.replace("FILE", &file.display().to_string());
    let settings = RegistrySettings::for_server(&url).unwrap();
    RegistryClient::new(settings.configured("--registry").unwrap())
}

/// Starts a registry that sends these responses in order, and then none.
fn registry(mut responses: Vec<(u16, String)>) -> SocketServer {
    responses.reverse();
    let responses = Mutex::new(responses);
    SocketServer::start(move |_| match responses.lock().unwrap().pop() {
        Some((status, body)) => {
            let location = "Location: /elsewhere";
            Reply::Bytes(response(
                &format!("{status} X"),
                &[location],
                body.as_bytes(),
            ))
        }
        None => Reply::Silence,
    })
}

fn own() -> Instance {
    Instance {
        metadata: [("context-path", "/auth".to_owned())].into(),
        ..Instance::new("10.0.0.5", 9000)
    }
}

async fn call(client: &mut RegistryClient, name: &str) -> Result<String, RegistryError> {
    let own = own();
    match name {
        "register" => client.register(&own).await?,
        "renew" => client.renew(&own).await?,
        "deregister" => client.deregister(&own).await?,
        "list" => {
            let instances = client.instances().await?;
            let lines: Vec<_> = instances.iter().map(line).collect();
            return Ok(lines.join(", "));
        }
        other => panic!("no call {other}"),
    }
    Ok("done".to_owned())
}

fn line(instance: &Instance) -> String {
    let healthy = if instance.healthy { "" } else { " unhealthy" };
    let enabled = if instance.enabled { "" } else { " disabled" };
    format!(
        "{} {}{healthy}{enabled}",
        instance.authority(),
        instance.weight
    )
}

/// Returns method, path and token.
fn summary(request: &Message) -> String {
    let line = request.first_line();
    let target = line.split(['?', ' ']).take(2).collect::<Vec<_>>().join(" ");
    request
        .header("authorization")
        .iter()
        .fold(target, |text, token| format!("{text} {token}"))
}

#[tokio::test]
async fn every_exchange_of_the_table_ends_as_it_says() {
    let table = include_str!("data/exchanges.json");
    for exchange in serde_json::from_str::<Vec<Exchange>>(table).unwrap() {
        let registry = registry(exchange.responses);
        let address = registry.address();
        let mut client = client(&if exchange.user {
            format!("nacos://me@{address}?password-file=FILE")
        } else {
            format!("nacos://{address}")
        });
        let mut outcome = String::new();
        for name in &exchange.calls {
            let result = call(&mut client, name).await;
            outcome = result.unwrap_or_else(|error| error.to_string());
        }
        assert_eq!(outcome, exchange.outcome, "{}", exchange.name);
        let requests: Vec<_> = registry.requests().iter().map(summary).collect();
        assert_eq!(requests, exchange.requests, "{}", exchange.name);
    }
}

#[tokio::test]
async fn a_registration_is_whole_and_no_address_holds_a_secret() {
    let responses = [
        r#"{"accessToken":"t","tokenTtl":9}"#,
        REGISTERED,
        REGISTERED,
    ];
    let registry = registry(responses.map(|body| (200, body.to_owned())).into());
    let url = format!(
        "nacos://m%40e@{}/team-a?group=G%26&service=s&password-file=FILE",
        registry.address()
    );
    let mut client = client(&url);
    client.register(&own()).await.unwrap();
    client.renew(&own()).await.unwrap();
    let requests = registry.requests();
    let bodies: Vec<_> = requests.iter().map(Message::text).collect();
    let named =
        "ip=10.0.0.5&port=9000&ephemeral=true&serviceName=s&groupName=G%26&namespaceId=team-a";
    let metadata = "metadata=%7B%22context-path%22%3A%22%2Fauth%22%7D";
    assert_eq!(
        bodies,
        [
            "username=m%40e&password=hu%26sh".to_owned(),
            format!("{named}&{metadata}"),
            format!("{named}&heartBeat=true"),
        ]
    );
    assert!(
        requests
            .iter()
            .all(|request| !request.first_line().contains('?'))
    );
    assert!(!format!("{client:?}").contains(PASSWORD));
}

#[tokio::test]
async fn a_list_without_end_is_cut() {
    let endless = SocketServer::start(|_| {
        let body = vec![b'x'; 3 * 1024 * 1024];
        Reply::Bytes(response("200 OK", &[], &body))
    });
    let mut client = client(&format!("nacos://{}", endless.address()));
    let error = client.instances().await.unwrap_err();
    assert!(matches!(error, RegistryError::NotUnderstood), "{error}");
}

#[tokio::test]
async fn over_https_the_authority_counts_that_the_file_holds_now() {
    let (authority, other) = (Authority::new(), Authority::new());
    let tls = authority.issue_server(&["127.0.0.1"]).serving(None);
    let registry = SocketServer::start_tls(tls, |_| {
        Reply::Bytes(response("200 OK", &[], REGISTERED.as_bytes()))
    });
    let file = other.file();
    let ca = Path::new(&file).display();
    let mut client = client(&format!("nacos+https://{}?ca={ca}", registry.address()));
    let error = client.register(&own()).await.unwrap_err().to_string();
    assert!(
        error.contains("certificate") && !error.contains("https://"),
        "{error}"
    );
    assert_eq!(registry.requests().len(), 0);
    std::fs::write(&file, authority.pem()).unwrap();
    client.register(&own()).await.unwrap();
}
