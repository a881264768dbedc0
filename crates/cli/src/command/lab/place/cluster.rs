//! A RocketMQ cluster, as the processes of a side reach it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use consign_rocketmq::admin::{Admin, AdminOptions};
use consign_rocketmq::{Address, Credentials, Options, TlsOptions};
use serde::{Deserialize, Serialize};

/// How long one call of administration may take: many sides make their topics at once.
const ADMINISTRATION: Duration = Duration::from_secs(30);

/// The cluster. Holds secrets: it is never printed.
#[derive(Clone, Serialize, Deserialize)]
pub struct Cluster {
    proxies: Vec<(String, u16)>,
    access_points_only: bool,
    credentials: Option<(String, String)>,
    encryption: Option<Encryption>,
    name_servers: String,
}

#[derive(Clone, Serialize, Deserialize)]
struct Encryption {
    ca: Option<PathBuf>,
    client_cert: Option<PathBuf>,
    client_key: Option<PathBuf>,
    server_name: Option<String>,
}

impl Cluster {
    /// The cluster behind these proxies and name servers. The lab's topics and groups are in no namespace.
    pub fn new(options: Options, name_servers: String) -> Self {
        let Options { addresses, credentials, tls, access_points_only, .. } = options;
        Self {
            proxies: addresses.into_iter().map(|proxy| (proxy.host, proxy.port)).collect(),
            access_points_only,
            credentials: credentials.map(|it| (it.access_key, it.secret_key)),
            encryption: tls.map(|tls| Encryption {
                ca: tls.ca_file,
                client_cert: tls.client_cert,
                client_key: tls.client_key,
                server_name: tls.server_name,
            }),
            name_servers,
        }
    }

    /// The client's options.
    pub fn options(&self) -> Options {
        let addresses = self.proxies.iter().map(|(host, port)| Address::new(host.as_str(), *port));
        Options {
            addresses: addresses.collect(),
            access_points_only: self.access_points_only,
            credentials: self.credentials(),
            tls: self.encryption.clone().map(|it| TlsOptions {
                ca_file: it.ca,
                client_cert: it.client_cert,
                client_key: it.client_key,
                server_name: it.server_name,
            }),
            ..Options::default()
        }
    }

    /// The same by way of a port of this machine, which leads to the first proxy.
    pub fn options_through(&self, through: Option<u16>) -> Options {
        let mut options = self.options();
        let Some(port) = through else { return options };
        if let (Some(tls), Some((host, _))) = (&mut options.tls, self.proxies.first()) {
            tls.server_name.get_or_insert_with(|| host.clone());
        }
        options.addresses = vec![Address::new("127.0.0.1", port)];
        // The proxy names its own address in every route.
        options.access_points_only = true;
        options
    }

    /// Host and port of the first proxy.
    pub fn first_proxy(&self) -> anyhow::Result<(String, u16)> {
        self.proxies.first().cloned().context("there is no proxy")
    }

    /// The name servers, for people.
    pub fn name_servers(&self) -> &str {
        &self.name_servers
    }

    /// Who administrates it.
    pub fn admin(&self) -> anyhow::Result<Admin> {
        let mut options = AdminOptions::new(&self.name_servers)?;
        options.deadline = ADMINISTRATION;
        options.credentials = self.credentials();
        Ok(Admin::new(options))
    }

    fn credentials(&self) -> Option<Credentials> {
        self.credentials.clone().map(|(access_key, secret_key)| Credentials { access_key, secret_key })
    }
}
