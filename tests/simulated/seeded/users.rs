//! What the users of the delegated listener get. Their rights are taken away and given back at random, whatever else happens.
//! Each user lists, and watches over REST and gRPC, all the time. What is served to a user whose right has been gone for long
//! is wrong, and so is a stream that is still open then.

use std::sync::Arc;
use std::time::Duration;

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use informerd::lifecycle;
use rand::Rng;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Request};

use super::rights::{READER, USERS, User, set};
use super::world::{RESOURCES, Run};
use super::{SETTLES, typed};
use crate::support::client::{self, Client};
use crate::support::history::Selected;

/// The longest that a right is used after it was taken away, once all is well: the watches of bindings may be on their way
/// to another apiserver.
const UNTOLD: Duration = Duration::from_secs(15);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(300);
/// How often an open stream is looked at, whether anything comes or not.
const LOOKS: Duration = Duration::from_secs(1);
/// Longer than any answer takes to begin.
const LONGEST: Duration = Duration::from_secs(120);

/// One user, and one way in which it reads.
struct Reading {
    run: Arc<Run>,
    number: usize,
    what: &'static str,
    /// Anything was served.
    is_served: bool,
}

/// Who takes the rights and gives them back. That of the reader is taken away as one of the faults.
pub(super) fn begin(run: &Arc<Run>) -> Vec<JoinHandle<()>> {
    for number in 0..USERS.len() {
        let reading = |what| Reading { run: run.clone(), number, what, is_served: false };
        lifecycle::spawn("user", reading("a list").lists());
        lifecycle::spawn("user", reading("a watch").watches());
        lifecycle::spawn("user", reading("a watch over gRPC").watches_typed());
    }
    let others = (0..USERS.len()).filter(|number| *number != READER);
    others.map(|number| lifecycle::spawn("rights", revokes(run.clone(), number))).collect()
}

async fn revokes(run: Arc<Run>, number: usize) {
    let mut random = run.random(20 + number as u64);
    while run.goes_on() {
        sleep(Duration::from_millis(random.random_range(2000..15_000))).await;
        set(&run, number, false);
        sleep(Duration::from_millis(random.random_range(5000..60_000))).await;
        set(&run, number, true);
    }
}

/// The reader's right is taken away while faults are left, but none of connections: it takes a while until one that is dead
/// is found out.
pub(super) async fn taken(run: &Run) {
    sleep(SETTLES).await;
    set(run, READER, false);
    sleep(3 * UNTOLD).await;
    set(run, READER, true);
}

/// Everybody has the right and is served, and then nobody. What is wrong with that, but for what the readings complain of.
pub(super) async fn end(run: &Run, revoking: &[JoinHandle<()>]) -> Vec<String> {
    revoking.iter().for_each(JoinHandle::abort);
    let mut wrong = Vec::new();
    for (may, expected) in [(true, 200), (false, 403)] {
        (0..USERS.len()).for_each(|number| set(run, number, may));
        sleep(2 * UNTOLD).await;
        for user in USERS {
            let answer = match user.client(run) {
                Some(client) => client.try_get(&user.path("")).await.map(|answer| answer.status.as_u16()),
                None => Err("no daemon".to_owned()),
            };
            if answer != Ok(expected) {
                wrong.push(format!("{} gets {answer:?}; whether it has its right: {may}", user.name));
            }
        }
    }
    let served = run.rights.served.lock();
    if served.len() < 3 * USERS.len() {
        wrong.push(format!("of all users and ways to read, only these were ever served: {served:?}"));
    }
    wrong
}

impl User {
    fn path(&self, query: &str) -> String {
        let path = self.namespace.map_or_else(|| RESOURCES[0].path(), |namespace| RESOURCES[0].inside(namespace));
        format!("{path}?resourceVersion=0{query}")
    }

    /// Of the present daemon, which has a CA of its own, if there is one.
    fn client(&self, run: &Run) -> Option<Client> {
        let ca = run.daemon()?.daemon.ca_file.clone()?;
        Some(Client::tls(&run.delegated_url(), &ca, self.name))
    }
}

impl Reading {
    fn user(&self) -> User {
        USERS[self.number]
    }

    /// Complains if what began then, and is served now, is served too late.
    fn is_late(&self, began: Instant) -> bool {
        let Some(gone) = self.run.rights.gone_since(self.number) else { return false };
        let bound = gone.max(self.run.disturbed_until()) + UNTOLD;
        if began <= bound {
            return false;
        }
        let (user, what, gone, late) = (self.user().name, self.what, gone.elapsed(), began - bound);
        self.run.complain(format!("{user} has {what} {gone:?} after its right went, which is {late:?} too long"));
        true
    }

    fn serves(&mut self) {
        if !std::mem::replace(&mut self.is_served, true) {
            self.run.rights.served.lock().push((self.user().name, self.what));
        }
    }

    async fn lists(mut self) {
        let (user, mut client) = (self.user(), None);
        while self.run.goes_on() {
            sleep(PAUSE).await;
            let Some(to) = client.take().or_else(|| user.client(&self.run)) else { continue };
            let began = Instant::now();
            let Ok(answer) = to.try_get(&user.path("")).await else { continue };
            client = Some(to);
            let (status, plan) = (answer.status.as_u16(), answer.headers.get("x-informerd-plan"));
            // What it is refused it has no right to, or the apiserver does not say.
            if ![200, 403, 410, 429, 500, 502, 503, 504].contains(&status) {
                self.run.complain(format!("{} gets {status}: {}", user.name, answer.text()));
            }
            // Of what is forwarded the apiserver decides, and this one allows it.
            if status == 200 && !plan.is_some_and(|plan| plan.as_bytes().starts_with(b"forwarded")) {
                self.serves();
                self.is_late(began);
            }
        }
    }

    async fn watches(mut self) {
        let (user, mut client) = (self.user(), None);
        let path = user.path("&watch=1&allowWatchBookmarks=true&timeoutSeconds=60");
        while self.run.goes_on() {
            sleep(PAUSE).await;
            let Some(to) = client.take().or_else(|| user.client(&self.run)) else { continue };
            let Ok(watch) = to.try_watch(&path).await else { continue };
            client = Some(to);
            if watch.status != 200 || watch.is_forwarded() {
                continue;
            }
            let mut watch = watch.until_the_end();
            loop {
                match timeout(LOOKS, watch.next()).await {
                    Ok(Ok(Some(event))) if event["type"] != "ERROR" => self.serves(),
                    Ok(_) => break,
                    Err(_) => {}
                }
                if self.is_late(Instant::now()) {
                    break;
                }
            }
        }
    }

    async fn watches_typed(mut self) {
        let of = Selected { namespace: self.user().namespace.map(ToOwned::to_owned), group: None };
        let token = format!("Bearer {}", self.user().name);
        let mut client = None;
        while self.run.goes_on() {
            sleep(PAUSE).await;
            let connect = || {
                let ca = self.run.daemon()?.daemon.ca_file.clone()?;
                Some(ObjectsClient::with_origin(client::typed(&ca), self.run.delegated_url().parse().ok()?))
            };
            let Some(mut to) = client.take().or_else(connect) else { continue };
            let selection = typed::selection(RESOURCES[0], &of);
            let bookmark_interval = Some(prost_types::Duration { seconds: 2, nanos: 0 });
            let mut request = Request::new(v1::WatchRequest { selection, bookmark_interval, ..Default::default() });
            request.metadata_mut().insert("authorization", token.parse().unwrap());
            let mut stream = match timeout(LONGEST, to.watch(request)).await {
                Ok(Ok(stream)) => stream.into_inner(),
                // Others may say that the daemon is gone, and the next one has another CA.
                Ok(Err(status)) if status.code() == Code::PermissionDenied => {
                    client = Some(to);
                    continue;
                }
                _ => continue,
            };
            client = Some(to);
            loop {
                match timeout(LOOKS, stream.message()).await {
                    Ok(Ok(Some(_))) => self.serves(),
                    Ok(_) => break,
                    Err(_) => {}
                }
                if self.is_late(Instant::now()) {
                    break;
                }
            }
        }
    }
}
