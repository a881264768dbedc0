//! MySQL and MariaDB. Every test runs on both and makes a database of its own. The servers are named by
//! `CONSIGN_TEST_MYSQL_URL` and `CONSIGN_TEST_MARIADB_URL`, which must be allowed to create databases.

/// Expands behaviours that take a [`server::Server`] into one test for each server.
macro_rules! on_both_servers {
    ($($behaviour:ident),* $(,)?) => {
        mod mysql {
            $(#[test] fn $behaviour() {
                consign_conformance::waiting::run(super::$behaviour($crate::mysql::server::Server::MySql));
            })*
        }
        mod mariadb {
            $(#[test] fn $behaviour() {
                consign_conformance::waiting::run(super::$behaviour($crate::mysql::server::Server::MariaDb));
            })*
        }
    };
}

mod append;
mod applying;
mod bookmark;
mod connection;
mod each;
mod files;
mod findings;
mod handlers;
mod inbox;
mod ordered;
mod outbox;
mod parking;
mod partitions;
mod purge;
mod race;
mod records;
mod retention;
mod rows;
mod schema;
mod server;
mod suites;
mod time;
mod transaction;
