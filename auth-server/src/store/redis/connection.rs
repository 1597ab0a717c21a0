//! A connection to the store.

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisResult, Role};

use super::TIMEOUT;
use super::address::{Endpoint, Sentinels};
use super::failure::Failed;

pub(super) enum Connection {
    /// A connection to one server, also to a master that a Sentinel has named.
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    pub(super) async fn open(endpoint: &Endpoint) -> Result<Self, Failed> {
        Ok(match endpoint {
            Endpoint::One(client) => Self::One(connect(client).await?),
            Endpoint::Sentinels(sentinels) => {
                let by = |sentinel| Box::pin(sentinels.master_by(sentinel));
                // All begin at once, so that the last error is of the farthest server.
                let (master, _) = select_ok(sentinels.clients.iter().map(by)).await?;
                Self::One(master)
            }
            Endpoint::Cluster(client) => Self::Cluster(client.get_async_connection().await?),
        })
    }

    /// Returns true if the client sends a command again by itself after some errors.
    pub(super) fn repeats(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    pub(super) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::One(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }
}

impl Sentinels {
    /// Connects to the master that a Sentinel names, if that server takes itself for a master: the records of
    /// a replica may be old.
    async fn master_by(&self, sentinel: &Client) -> Result<MultiplexedConnection, Failed> {
        let mut which = redis::cmd("SENTINEL");
        which.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let (host, port) = naming_server("the Sentinel", sentinel, async {
            match which.query_async(&mut connect(sentinel).await?).await? {
                Some(named) => Ok(named),
                None => Err((ErrorKind::Client, "it knows no master of this name").into()),
            }
        })
        .await?;
        let master = self.client_of(host, port)?;
        naming_server("the master", &master, async {
            let mut connection = connect(&master).await?;
            match redis::cmd("ROLE").query_async(&mut connection).await? {
                Role::Primary { .. } => Ok(connection),
                // A Sentinel may name a former master for a while after a fail-over.
                _ => Err((ErrorKind::Client, "it is a replica").into()),
            }
        })
        .await
    }
}

async fn connect(client: &Client) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(TIMEOUT))
        .set_response_timeout(Some(TIMEOUT));
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// Names the server in the error of `work`.
async fn naming_server<T>(
    role: &str,
    client: &Client,
    work: impl Future<Output = RedisResult<T>>,
) -> Result<T, Failed> {
    work.await.map_err(|error| Failed {
        server: Some(format!("{role} {}", client.get_connection_info().addr())),
        ..error.into()
    })
}
