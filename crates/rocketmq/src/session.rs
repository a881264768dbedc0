//! What producers and consumers share: the ways to the proxies, routes, and the tasks that keep this client known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use crate::error::{CallError, StartError};
use crate::generated::messages::{
    self, AddressScheme, Endpoints, NotifyClientTerminationRequest, QueryRouteRequest,
};
use crate::group_settings::GroupSettings;
use crate::identity::Identity;
use crate::options::{Address, Options};
use crate::readiness::{Readiness, Standing};
use crate::route::Route;
use crate::status::check;
use crate::transport::{Dialer, Link};

mod telemetry;

pub(crate) use telemetry::Recovered;

/// How often routes are asked for again.
const ROUTES_EVERY: Duration = Duration::from_secs(30);
/// How soon a topic without a route is asked for again.
const ROUTES_MISSING_EVERY: Duration = Duration::from_secs(1);

/// How long a bad answer about a route stands for those who ask at once.
const FAILURE_STANDS: Duration = Duration::from_millis(250);

/// Held by who asks for a topic's route, with what the last one found out when it was not a route.
type Question = Arc<tokio::sync::Mutex<Option<(Instant, CallError)>>>;

/// What kind of client a session is for.
pub(crate) struct Role {
    pub(crate) client_type: messages::ClientType,
    /// What the settings say beside the client type.
    pub(crate) pub_sub: messages::settings::PubSub,
    /// Consumer group; none for producers.
    pub(crate) group: Option<messages::Resource>,
    pub(crate) topics: Vec<String>,
    /// Where checks of half messages go.
    pub(crate) orphans: Option<mpsc::Sender<Recovered>>,
}

/// A running client. Dropping it ends its tasks.
pub(crate) struct Session {
    shared: Arc<Shared>,
    tasks: Mutex<JoinSet<()>>,
}

/// What the session's tasks and calls look at.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) identity: Arc<Identity>,
    dialer: Dialer,
    pub(crate) role: Role,
    links: Mutex<BTreeMap<Address, Arc<Link>>>,
    routes: Mutex<BTreeMap<String, Arc<Route>>>,
    questions: Mutex<BTreeMap<String, Question>>,
    pub(crate) standing: Standing,
    /// What the server last said of this client.
    pub(crate) told: watch::Sender<Option<GroupSettings>>,
}

impl Session {
    /// Starts the tasks; does not wait for a connection.
    pub(crate) async fn start(
        options: &Options,
        identity: Arc<Identity>,
        role: Role,
    ) -> Result<Self, StartError> {
        if options.addresses.is_empty() {
            return Err(StartError::Invalid(
                "the options name no address, give one proxy at least".to_owned(),
            ));
        }
        if role.topics.is_empty() && role.group.is_some() {
            return Err(StartError::Invalid("a consumer without topics has nothing to do".to_owned()));
        }
        let dialer = Dialer::new(options).await?;
        let shared = Arc::new(Shared {
            options: options.clone(),
            identity,
            dialer,
            role,
            links: Mutex::default(),
            routes: Mutex::default(),
            questions: Mutex::default(),
            standing: Standing::default(),
            told: watch::Sender::new(None),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(keep_routes(shared.clone()));
        Ok(Self { shared, tasks: Mutex::new(tasks) })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Ends the tasks and tells every connected proxy that this client is gone.
    pub(crate) async fn close(&self) {
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        let links: Vec<_> = lock(&self.shared.links).values().cloned().collect();
        let deadline = Instant::now() + self.shared.options.request_timeout;
        for link in links.iter().filter(|link| link.is_connected()) {
            let request = NotifyClientTerminationRequest { group: self.shared.role.group.clone() };
            let told = link.call(request, deadline, |mut stub, request| async move {
                stub.notify_client_termination(request).await
            });
            if let Err(error) = told.await {
                // The proxy finds out by the missing heartbeats.
                tracing::debug!(%error, "a proxy did not hear that this client ends");
            }
        }
        tasks.shutdown().await;
        self.shared.standing.closed();
    }
}

impl Shared {
    /// The way to a proxy.
    pub(crate) fn link(&self, address: &Address) -> Arc<Link> {
        let mut links = lock(&self.links);
        let link = links.entry(address.clone()).or_insert_with(|| {
            Arc::new(Link::new(address.clone(), self.dialer.clone(), self.identity.clone()))
        });
        link.clone()
    }

    /// The ways to these proxies, connected ones first.
    pub(crate) fn links(&self, addresses: &[Address]) -> Vec<Arc<Link>> {
        let mut links: Vec<_> = addresses.iter().map(|address| self.link(address)).collect();
        links.sort_by_key(|link| !link.is_connected());
        links
    }

    /// The route of a topic, if it is known.
    pub(crate) fn known_route(&self, topic: &str) -> Option<Arc<Route>> {
        lock(&self.routes).get(topic).cloned()
    }

    /// The route of a topic: the known one, or one asked for now. However many ask at once, one question is put, and
    /// its answer stands for a moment when it is a bad one.
    pub(crate) async fn route(&self, topic: &str, deadline: Instant) -> Result<Arc<Route>, CallError> {
        if let Some(route) = self.known_route(topic) {
            return Ok(route);
        }
        let question = lock(&self.questions).entry(topic.to_owned()).or_default().clone();
        let asked = async {
            let mut failure = question.lock().await;
            if let Some(route) = self.known_route(topic) {
                return Ok(route);
            }
            if let Some((at, error)) = &*failure
                && at.elapsed() < FAILURE_STANDS
            {
                return Err(error.clone());
            }
            let asked = self.ask_route(topic, deadline).await;
            *failure = asked.as_ref().err().map(|error| (Instant::now(), error.clone()));
            asked
        };
        let late = || Err(CallError::not_sent(format!("no route of topic {topic} before the deadline")));
        timeout_at(deadline, asked).await.unwrap_or_else(|_| late())
    }

    /// Asks one access point after the other; the first answer counts, be it good or bad.
    async fn ask_route(&self, topic: &str, deadline: Instant) -> Result<Arc<Route>, CallError> {
        let mut failure = None;
        for link in self.links(&self.options.addresses) {
            let request = QueryRouteRequest {
                topic: Some(self.identity.resource(topic)),
                endpoints: Some(self.access_point()),
            };
            let deadline = deadline.min(Instant::now() + self.options.request_timeout);
            let asked = link
                .call(request, deadline, |mut stub, request| async move { stub.query_route(request).await });
            match asked.await {
                Ok(response) => {
                    check(response.status.as_ref())?;
                    let mut route = Route::new(response);
                    if self.options.access_points_only {
                        route.lead_to(&self.options.addresses);
                    }
                    let route = Arc::new(route);
                    lock(&self.routes).insert(topic.to_owned(), route.clone());
                    return Ok(route);
                }
                Err(error @ CallError::Answered { .. }) => return Err(error),
                // A route changes nothing: the next access point may be asked whatever became of this call.
                Err(CallError::NotSent { reason } | CallError::Unknown { reason }) => failure = Some(reason),
            }
        }
        let reason = failure.unwrap_or_else(|| "no access point".to_owned());
        Err(CallError::not_sent(format!("no route of topic {topic}: {reason}")))
    }

    /// Forgets the route of a topic, so that the next call asks for it.
    pub(crate) fn forget_route(&self, topic: &str) {
        lock(&self.routes).remove(topic);
    }

    pub(crate) fn access_point(&self) -> Endpoints {
        let scheme = match self.options.addresses.first().map(|address| address.host.parse()) {
            Some(Ok(std::net::IpAddr::V4(_))) => AddressScheme::IPv4,
            Some(Ok(std::net::IpAddr::V6(_))) => AddressScheme::IPv6,
            Some(Err(_)) | None => AddressScheme::DomainName,
        };
        let addresses = self.options.addresses.iter();
        let addresses = addresses
            .map(|address| messages::Address { host: address.host.clone(), port: i32::from(address.port) });
        Endpoints { scheme: scheme.into(), addresses: addresses.collect() }
    }

    /// Whether this client is known there, its settings heard.
    pub(crate) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.standing.subscribe()
    }
}

/// Keeps routes fresh, and one pair of tasks per proxy that the routes name.
async fn keep_routes(shared: Arc<Shared>) {
    let mut attending: BTreeMap<Address, AbortHandle> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    let mut ticks = interval(ROUTES_MISSING_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        ticks.tick().await;
        for topic in &shared.role.topics {
            if asked.get(topic).is_some_and(|at| at.elapsed() < ROUTES_EVERY) {
                continue;
            }
            let deadline = Instant::now() + shared.options.request_timeout;
            match shared.ask_route(topic, deadline).await {
                Ok(_) => drop(asked.insert(topic.clone(), Instant::now())),
                Err(error) => shared.standing.no_route(topic, &error),
            }
        }
        let mut wanted: BTreeSet<Address> =
            lock(&shared.routes).values().flat_map(|route| route.addresses()).collect();
        // Without topics of its own a producer stands with the access points, until it sends somewhere.
        if shared.role.topics.is_empty() {
            wanted.extend(shared.options.addresses.iter().cloned());
        }
        attending.retain(|address, task| {
            let keep = wanted.contains(address);
            if !keep {
                task.abort();
                shared.standing.gone(address);
            }
            keep
        });
        for address in wanted {
            attending.entry(address).or_insert_with_key(|address| {
                tasks.spawn(telemetry::attend(shared.clone(), shared.link(address)))
            });
        }
        while tasks.try_join_next().is_some() {}
    }
}

/// Locks a map that is whole between any two statements, so a panic elsewhere does not spoil it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
