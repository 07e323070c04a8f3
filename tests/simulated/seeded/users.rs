//! Users of the delegated listener who may read one namespace each. The right is taken away and given back at random,
//! whatever else happens. Each user lists, and watches over REST and gRPC, all the time. What is served to a user whose right
//! has been gone for long is wrong, and so is a stream that is still open then.

use std::sync::Arc;
use std::time::Duration;

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use informerd::lifecycle;
use rand::Rng;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Request};

use super::rights::{UNTOLD, client_of, set_of};
use super::typed;
use super::world::{NAMESPACES, RESOURCES, Run};
use crate::support::client;
use crate::support::history::Selected;

#[derive(Clone, Copy)]
pub(super) struct User {
    pub name: &'static str,
    pub namespace: &'static str,
}

pub(super) const USERS: [User; 2] =
    [User { name: "ann", namespace: NAMESPACES[0] }, User { name: "bob", namespace: NAMESPACES[1] }];

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

/// Who takes the rights and gives them back.
pub(super) fn begin(run: &Arc<Run>) -> Vec<JoinHandle<()>> {
    let reading = |number, what| Reading { run: run.clone(), number, what, is_served: false };
    let each = (0..USERS.len()).map(|number| {
        lifecycle::spawn("user", reading(number, "a list").lists());
        lifecycle::spawn("user", reading(number, "a watch").watches());
        lifecycle::spawn("user", reading(number, "a watch over gRPC").watches_typed());
        lifecycle::spawn("rights", revokes(run.clone(), number))
    });
    each.collect()
}

async fn revokes(run: Arc<Run>, number: usize) {
    let mut random = run.random(20 + number as u64);
    while run.goes_on() {
        sleep(Duration::from_millis(random.random_range(2000..15_000))).await;
        set_of(&run, number, false);
        sleep(Duration::from_millis(random.random_range(5000..60_000))).await;
        set_of(&run, number, true);
    }
}

/// The rights are given back for good, and everybody is served. What is wrong with that.
pub(super) async fn end(run: &Run, revoking: &[JoinHandle<()>]) -> Vec<String> {
    revoking.iter().for_each(JoinHandle::abort);
    (0..USERS.len()).for_each(|number| set_of(run, number, true));
    sleep(UNTOLD).await;
    let mut wrong = Vec::new();
    for user in USERS {
        let path = format!("{}?resourceVersion=0", RESOURCES[0].inside(user.namespace));
        let answer = match client_of(run, user.name) {
            Some(client) => client.try_get(&path).await.map(|answer| answer.status.as_u16()),
            None => Err("no daemon".to_owned()),
        };
        if answer != Ok(200) {
            wrong.push(format!("{} gets {answer:?} though it has its right again", user.name));
        }
    }
    let served = run.rights.served.lock();
    if served.len() < 3 * USERS.len() {
        wrong.push(format!("of all users and ways to read, only these were ever served: {served:?}"));
    }
    wrong
}

impl Reading {
    fn user(&self) -> User {
        USERS[self.number]
    }

    fn path(&self, query: &str) -> String {
        format!("{}?resourceVersion=0{query}", RESOURCES[0].inside(self.user().namespace))
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
        let (path, mut client) = (self.path(""), None);
        while self.run.goes_on() {
            sleep(PAUSE).await;
            let Some(to) = client.take().or_else(|| client_of(&self.run, self.user().name)) else { continue };
            let began = Instant::now();
            let Ok(answer) = to.try_get(&path).await else { continue };
            client = Some(to);
            let plan = answer.headers.get("x-informerd-plan");
            // Of what is forwarded the apiserver decides, and this one allows it.
            if answer.status == 200 && !plan.is_some_and(|plan| plan.as_bytes().starts_with(b"forwarded")) {
                self.serves();
                self.is_late(began);
            }
        }
    }

    async fn watches(mut self) {
        let (path, mut client) = (self.path("&watch=1&allowWatchBookmarks=true&timeoutSeconds=60"), None);
        while self.run.goes_on() {
            sleep(PAUSE).await;
            let Some(to) = client.take().or_else(|| client_of(&self.run, self.user().name)) else { continue };
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
        let of = Selected { namespace: Some(self.user().namespace.to_owned()), group: None };
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
