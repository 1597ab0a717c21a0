//! A connection for one call.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisResult};

use super::address::Endpoint;

pub(super) enum Connection {
    /// Also to a master found by a Sentinel, for this call only.
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    pub(super) async fn open(endpoint: &Endpoint, timeout: Duration) -> RedisResult<Self> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout))
            .set_response_timeout(Some(timeout));
        match endpoint {
            Endpoint::One(client) => client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map(Self::One),
            Endpoint::Sentinels(sentinels) => sentinels
                .client()?
                .get_async_connection_with_config(&config)
                .await
                .map(Self::One),
            Endpoint::Cluster(client) => client.get_async_connection().await.map(Self::Cluster),
        }
    }

    pub(super) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::One(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }
}
