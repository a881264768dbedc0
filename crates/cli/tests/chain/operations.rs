//! What people decide about: conflicts, dead letters, replays and old markers, through the commands, while relay and consumers
//! run. Each test runs on MySQL with RabbitMQ, and on SQLite with the embedded queue.

mod conflicts;
mod dead;
mod purge;
mod replay;
mod site;

/// One test for each pair of parts.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod on_mysql_and_rabbitmq {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::operations::site::Site::on_mysql_and_rabbitmq().await).await;
            })*
        }

        mod on_sqlite_and_embedded {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::operations::site::Site::on_sqlite_and_embedded().await).await;
            })*
        }
    };
}

use on_both;
