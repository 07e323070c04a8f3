//! Watches: where they start, and how long they last.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use tokio::time::{Instant, timeout};

use crate::cache::{Floor, WaitError, WatchError, WatchSpec, WatchStart};
use crate::codec::json::Style;
use crate::codec::{Form, Format, Shape};
use crate::informer::{Informer, Use};
use crate::meta::{Encoding, ListOptions, ResourceVersion, Status, Verb, errors};

use super::answer::WatchSource;
use super::plan::{Freshness, WatchPlan};
use super::resolved::Resolved;
use super::service::served;
use super::unserved::Unserved;
use super::{ConsistentReads, ForwardReason, Outcome, ReadRequest, Reads, Served, Waited, WatchAnswer, plan};

/// The apiserver ends a watch without `timeoutSeconds` at a random moment between this and twice this
/// (`--min-request-timeout`).
const MIN_REQUEST_TIMEOUT: Duration = Duration::from_secs(1800);

/// How long a watch that can be forwarded waits for what it lacks.
const REACH: Duration = Duration::from_secs(5);

impl Reads {
    pub async fn watch(&self, request: &ReadRequest) -> Outcome<WatchAnswer> {
        self.answered("watch", request, || self.try_watch(request), |answer| answer.served).await
    }

    async fn try_watch(&self, request: &ReadRequest) -> Result<WatchAnswer, Unserved> {
        let mut options = request.options.clone();
        options.set_defaults();
        options.validate().map_err(|_| ForwardReason::Invalid)?;
        let (arrived, Format { encoding, shape, .. }) = (Instant::now(), request.format);
        let mut read = match self.resolve(request).await {
            Ok(read) => read,
            Err(
                unserved
                @ (Unserved::Forward(ForwardReason::Invalid | ForwardReason::NotReadable) | Unserved::Outdated),
            ) => {
                return Err(unserved);
            }
            Err(unserved) => return self.in_gap(request, &options, encoding, shape).ok_or(unserved),
        };
        let in_gap = |read: &Resolved| {
            let encoding = if read.converted { Encoding::Protobuf } else { read.encoding };
            self.in_gap(request, &options, encoding, read.shape)
        };
        if let Some(answer) = in_gap(&read) {
            return Ok(answer);
        }
        let result = self.start(request, &options, &mut read, arrived).await;
        match result {
            Err(Unserved::Refuse(_) | Unserved::Outdated) => result,
            // Again after all waits, and after the start: a gap that comes later ends the watch.
            result => in_gap(&read).map_or(result, Ok),
        }
    }

    /// The answer to a watch from within a gap, which is neither served nor forwarded: neither another cache nor the
    /// apiserver would tell its client what it lacks.
    fn in_gap(
        &self,
        request: &ReadRequest,
        options: &ListOptions,
        encoding: Encoding,
        shape: Shape,
    ) -> Option<WatchAnswer> {
        let Ok(WatchPlan::After(rv)) = plan::watch(options, ConsistentReads::Upstream) else { return None };
        let floor = self.floors().known(&self.factory.store_of(&request.gvr), &request.gvr.resource)?;
        let error = errors::expired_watch(rv.get(), floor.gap_around(rv)?.get());
        let form = Arc::new(Form::new(encoding, Style::Stripped, &request.gvr.api_version(), "", ""));
        Some(failed(shape, form, error, Served { rv, ..Served::default() }))
    }

    /// Serves the watch from a cache, whatever gaps come meanwhile.
    async fn start(
        &self,
        request: &ReadRequest,
        options: &ListOptions,
        read: &mut Resolved,
        arrived: Instant,
    ) -> Result<WatchAnswer, Unserved> {
        read.rows = self.followed(read);
        let plan = plan::watch(options, read.mode(Verb::Watch))?;
        read.rows.initial = matches!(plan, WatchPlan::State { .. });
        let (informer, form, mut waited) = self.synced(read).await?;
        let (synced, half) = (Instant::now(), lifetime(options.timeout_seconds) / 2);
        let most = if read.local { Duration::MAX } else { REACH.min(half) };
        let initial_end = matches!(plan, WatchPlan::State { initial_end: true, .. });
        // For types without a watch cache, the marker of the initial events is the only bookmark.
        let bookmarks = options.allow_watch_bookmarks && !request.gvr.is_events();
        // Before the start is chosen: the cache may list again meanwhile.
        if bookmarks || initial_end {
            timeout(most, informer.learn_bookmark()).await.ok();
            // Only a bookmark of the apiserver shows the form of a table's bookmarks.
            if matches!(read.shape, Shape::Table(_)) && informer.cache().bookmark_template().is_none() {
                return Err(ForwardReason::NotSynced.into());
            }
        }
        let start = match plan {
            WatchPlan::State { freshness, .. } => match self.fresh(&informer, read, freshness, Verb::Watch).await {
                Ok((snapshot, waited_fresh)) => {
                    waited = waited.max(waited_fresh);
                    read.floor.raise(snapshot.rv());
                    WatchStart::State
                }
                // The store has not reached the revision yet. Once the apiserver has parsed the options, it answers 200
                // in any case, and the error is the only event of the stream.
                Err(Unserved::TooLarge { want }) => {
                    let bound = arrived + self.config.freshness_timeout;
                    if let Err(error) = informer.cache().wait_for(want, bound).await {
                        let WaitError::Timeout { current } = error else { return Err(ForwardReason::NotSynced.into()) };
                        let error = errors::too_large_resource_version(want.get(), current.get());
                        return Ok(failed(read.shape, form, error, served(&informer, Waited::Freshness, current)));
                    }
                    waited = waited.max(Waited::Freshness);
                    WatchStart::State
                }
                Err(other) => return Err(other),
            },
            WatchPlan::After(rv) => {
                // After a restart, clients come back with older revisions. What they lack is asked for once.
                informer.reach_back(rv, most.saturating_sub(synced.elapsed())).await;
                WatchStart::After(rv)
            }
            WatchPlan::Now { consistent: true } => {
                waited = waited.max(Waited::Freshness);
                let bound = Instant::now() + self.config.freshness_timeout;
                let revision = informer.revision(Verb::Watch, bound).await;
                WatchStart::After(revision.map_err(|_| ForwardReason::NotFresh)?)
            }
            WatchPlan::Now { consistent: false } => {
                WatchStart::After(self.fresh(&informer, read, Freshness::Any, Verb::Watch).await?.0.rv())
            }
        };
        let spec = WatchSpec {
            predicate: read.predicate.clone(),
            start,
            bookmarks,
            initial_end,
            // Counted from now on: our own waits do not use up the client's time.
            deadline: Instant::now() + lifetime(options.timeout_seconds),
        };
        match informer.cache().watch(spec) {
            Ok(watcher) => {
                // After the start: whatever changes from now on ends the watch.
                read.is_still_shareable()?;
                let served = served(&informer, waited, watcher.starts_after());
                let source = WatchSource::Cache { watcher, cache: informer.cache().clone() };
                let rent = Some(informer.rent(true));
                Ok(WatchAnswer { form, shape: read.shape, source, served, rent, proof: read.proof.take() })
            }
            Err(WatchError::NotReady) => Err(ForwardReason::NotSynced.into()),
            // One that cannot be forwarded gets the 410 here.
            Err(WatchError::TooOld { rv, .. })
                if !request.local && self.goes_on_upstream(&informer, &read.floor, rv) =>
            {
                Err(ForwardReason::OutsideWindow.into())
            }
            Err(WatchError::TooOld { rv, oldest_minus_1 }) => {
                let error = errors::expired_watch(rv.get(), oldest_minus_1.get());
                Ok(failed(read.shape, form, error, served(&informer, waited, oldest_minus_1)))
            }
        }
    }

    /// How the watch counts towards the start of an informer.
    pub(super) fn followed(&self, read: &Resolved) -> Use {
        let is_cached = matches!(read.mode(Verb::Watch), ConsistentReads::Probe | ConsistentReads::Cache);
        let must = read.rows.must || is_cached || self.serves_while_away(&read.resource.gvr);
        Use { must, watch: true, ..read.rows }
    }

    /// Whether a watch from before the window is forwarded.
    fn goes_on_upstream(&self, informer: &Informer, floor: &Floor, rv: ResourceVersion) -> bool {
        // The client may know this revision from a list that we forwarded: the apiserver's window still has it. And types
        // without a watch cache have the much longer history of etcd.
        if floor.may_have_shown(rv) || informer.key().gvr.is_events() {
            return true;
        }
        // The apiserver's window may reach further back than ours. But if we had to relist, the revisions before that had
        // left its window, too.
        informer.cache().stats().replaced_total <= 1 && self.old_watches.take(Instant::now())
    }
}

fn failed(shape: Shape, form: Arc<Form>, error: Status, served: Served) -> WatchAnswer {
    WatchAnswer { form, shape, source: WatchSource::Error(Some(Box::new(error))), served, rent: None, proof: None }
}

fn lifetime(timeout_seconds: Option<i64>) -> Duration {
    match timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()) {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => MIN_REQUEST_TIMEOUT.mul_f64(rand::rng().random_range(1.0..2.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::client::Upstream;
    use crate::apiserver::discovery::{ApiResource, Discovery};
    use crate::apiserver::testing::{FakeServer, bare, silence};
    use crate::cache::Writer;
    use crate::informer::Factory;
    use crate::meta::{Gvr, Object, Resource};
    use crate::reads::{Filter, OpenWatch, ReadsConfig, Refusal, Selection, WantedEncoding, WatchFrom, WatchTerms};

    /// A cache of the resource, in place of the one before.
    fn put(factory: &Factory) -> Writer {
        let floor = factory.floors().of("", "configmaps");
        let resource = Resource::simple("", "configmaps", "ConfigMap");
        let mut writer = factory.put_with(resource, |config| config.floor = floor);
        writer.set_form(Form::new(Encoding::Json, Style::Stripped, "v1", "ConfigMap", "ConfigMapList"));
        writer
    }

    /// A cache that was listed at these revisions, each time with these objects.
    async fn listed(lists: impl IntoIterator<Item = (u64, Vec<Object>)>) -> (Reads, Writer) {
        listed_before(kube::Config::new("http://127.0.0.1:1".parse().unwrap()), lists).await
    }

    async fn listed_before(
        server: kube::Config,
        lists: impl IntoIterator<Item = (u64, Vec<Object>)>,
    ) -> (Reads, Writer) {
        let upstream = Upstream::from_config(server).await.unwrap();
        let discovery = Discovery::knowing(upstream.clone(), vec![ApiResource::core("configmaps", "ConfigMap")]);
        let factory = Factory::simple(Duration::from_secs(3600), upstream, discovery);
        let mut writer = put(&factory);
        for (rv, objects) in lists {
            let objects = objects.into_iter().map(Arc::new).collect();
            writer.replace(objects, ResourceVersion(rv)).await.unwrap();
        }
        let config = ReadsConfig::simple(ConsistentReads::Cache, Duration::from_secs(60));
        let reads = Reads::new(config, factory).for_trusted();
        reads.floors().of("", "configmaps").showed(ResourceVersion(1));
        (reads, writer)
    }

    /// What becomes of a watch from this revision: it is forwarded, ends with an error, or follows.
    async fn watched(reads: &Reads, rv: u64, local: bool) -> &'static str {
        let options = ListOptions { watch: true, resource_version: rv.to_string(), ..ListOptions::default() };
        let request = ReadRequest { local, ..ReadRequest::simple(Gvr::new("", "v1", "configmaps"), None, options) };
        match reads.watch(&request).await {
            Outcome::Forward(ForwardReason::OutsideWindow) => "forwarded",
            Outcome::Serve(WatchAnswer { source: WatchSource::Error(_), .. }) => "error",
            Outcome::Serve(_) => "follows",
            other => panic!("{other:?}"),
        }
    }

    /// A watch from this revision over gRPC.
    async fn opened(reads: &Reads, rv: u64) -> Result<OpenWatch, Refusal> {
        let (gvr, long) = (Gvr::new("", "v1", "configmaps"), Duration::from_secs(3600));
        let (filters, encoding) = (vec![Filter::default()], WantedEncoding::Any);
        let selection = Selection { gvr, filters, shape: Shape::Full, encoding, identified: false };
        let (from, deadline) = (WatchFrom::After(ResourceVersion(rv)), Instant::now() + long);
        let terms = WatchTerms { from, max_staleness: None, bookmark_interval: long, deadline };
        reads.open_watch(&selection, terms).await
    }

    /// The apiserver would tell it of what comes, and not of what it lacks.
    #[tokio::test]
    async fn a_client_that_was_cut_off_inside_a_gap_lists_again() {
        let (reads, _writer) = listed([10, 20, 30].map(|rv| (rv, Vec::new()))).await;
        for (rv, wanted) in [
            (9, "forwarded"),
            (10, "forwarded"),
            (11, "error"),
            (19, "error"),
            (20, "forwarded"),
            (29, "error"),
            (30, "follows"),
        ] {
            assert_eq!(watched(&reads, rv, false).await, wanted, "{rv}");
            let of_certificate = if wanted == "follows" { wanted } else { "error" };
            assert_eq!(watched(&reads, rv, true).await, of_certificate, "it cannot be forwarded: {rv}");
        }
    }

    #[tokio::test]
    async fn a_gap_outlives_the_state_of_its_cache_and_concerns_the_others_of_the_resource() {
        let (reads, mut writer) = listed([10, 20].map(|rv| (rv, Vec::new()))).await;
        writer.not_ready("there is no memory for it");
        for (rv, local) in [(11, false), (19, true)] {
            assert_eq!(watched(&reads, rv, local).await, "error", "it is not forwarded without a state, either: {rv}");
            assert!(matches!(opened(&reads, rv).await, Err(Refusal::Expired(_))), "nor does it wait for one: {rv}");
        }
        writer.replace(Vec::new(), ResourceVersion(30)).await.unwrap();
        assert_eq!(watched(&reads, 15, false).await, "error");
        // Another one has followed all events, and its window has the whole gap.
        let mut other = put(&reads.factory);
        other.replace(Vec::new(), ResourceVersion(5)).await.unwrap();
        other.progress(ResourceVersion(40));
        for (rv, wanted) in [(5, "follows"), (10, "follows"), (11, "error"), (19, "error"), (20, "follows")] {
            assert_eq!(watched(&reads, rv, false).await, wanted, "{rv}");
        }
        // The revisions begin again, and mean something else.
        other.rewound("the store was set back");
        other.replace(Vec::new(), ResourceVersion(12)).await.unwrap();
        other.progress(ResourceVersion(15));
        for (rv, wanted) in [(11, "error"), (12, "follows"), (15, "follows")] {
            assert_eq!(watched(&reads, rv, false).await, wanted, "{rv}");
        }
    }

    /// As after a store that was restored from a backup: the apiserver would not tell them what they lack.
    #[tokio::test]
    async fn after_a_list_that_contradicts_the_cache_all_clients_list_again() {
        let (reads, mut writer) = listed([(10, Vec::new()), (20, vec![bare("a", "x", 5)])]).await;
        for (rv, wanted) in [(9, "error"), (10, "error"), (19, "error"), (20, "follows")] {
            assert_eq!(watched(&reads, rv, false).await, wanted, "{rv}");
        }
        // Something contradicted the cache, and the list shows only that an object is gone.
        writer.lacks_after(ResourceVersion::ZERO);
        writer.replace(Vec::new(), ResourceVersion(30)).await.unwrap();
        for (rv, wanted) in [(20, "error"), (29, "error"), (30, "follows")] {
            assert_eq!(watched(&reads, rv, false).await, wanted, "{rv}");
        }
    }

    /// Only the apiserver can say what is wrong with a watch, and ends it.
    #[tokio::test]
    async fn a_client_inside_a_gap_is_forwarded_only_to_be_refused() {
        let (reads, _writer) = listed([10, 20].map(|rv| (rv, Vec::new()))).await;
        let protobuf = Format { encoding: Encoding::Protobuf, shape: Shape::Full, json_fallback: None };
        for (rv, labels, format, forwarded) in [
            ("10", "", protobuf, Some(ForwardReason::Encoding)),
            ("15", "", protobuf, None),
            ("15", "a in (", Format::json(Shape::Full), Some(ForwardReason::Invalid)),
        ] {
            let (resource_version, label_selector) = (rv.to_owned(), labels.to_owned());
            let options = ListOptions { watch: true, resource_version, label_selector, ..ListOptions::default() };
            let request = ReadRequest::simple(Gvr::new("", "v1", "configmaps"), None, options);
            match reads.watch(&ReadRequest { format, ..request }).await {
                Outcome::Forward(reason) => assert_eq!(Some(reason), forwarded, "{rv}"),
                Outcome::Serve(WatchAnswer { source: WatchSource::Error(Some(error)), form, .. }) => {
                    assert_eq!((error.code, form.encoding(), forwarded), (410, Encoding::Protobuf, None));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Its client was cut off by another cache of the resource.
    #[tokio::test(start_paused = true)]
    async fn a_gap_that_comes_while_a_watch_waits_is_seen() {
        for is_served in [false, true] {
            let (reads, mut writer) = listed([(10, Vec::new())]).await;
            let mut other = put(&reads.factory);
            let gap = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                writer.replace(Vec::new(), ResourceVersion(20)).await.unwrap();
                if is_served {
                    other.replace(Vec::new(), ResourceVersion(5)).await.unwrap();
                    other.progress(ResourceVersion(40));
                }
            };
            let (watched, opened, ()) = tokio::join!(watched(&reads, 15, false), opened(&reads, 15), gap);
            assert_eq!(watched, "error", "{is_served}");
            assert_eq!(matches!(opened, Err(Refusal::Expired(_))), is_served, "{opened:?}");
        }
    }

    /// The apiserver does not show the form of bookmarks, and the cache lists again before that is over.
    #[tokio::test(start_paused = true)]
    async fn a_watch_of_what_comes_begins_where_the_cache_is_after_the_waits() {
        let server = FakeServer::plain(|_, _| silence()).await;
        let (reads, mut writer) = listed_before(server.config(), [(10, Vec::new())]).await;
        let resource_version_match = "NotOlderThan".to_owned();
        let options = ListOptions { watch: true, allow_watch_bookmarks: true, ..ListOptions::default() };
        let options = ListOptions { send_initial_events: Some(false), resource_version_match, ..options };
        let request = ReadRequest::simple(Gvr::new("", "v1", "configmaps"), None, options);
        let lists_again = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            writer.replace(Vec::new(), ResourceVersion(20)).await.unwrap();
        };
        let (outcome, ()) = tokio::join!(reads.watch(&request), lists_again);
        match outcome {
            Outcome::Serve(WatchAnswer { source: WatchSource::Cache { watcher, .. }, .. }) => {
                assert_eq!(watcher.starts_after(), ResourceVersion(20));
            }
            other => panic!("{other:?}"),
        }
    }

    /// The apiserver does not answer, and no time is over before its own. The first waits until the attempt is given up.
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_can_be_forwarded_does_not_wait_long_for_what_it_lacks() {
        let server = FakeServer::plain(|_, _| silence()).await;
        for (timeout_seconds, allow_watch_bookmarks, waited) in
            [(None, false, 4), (Some(4), false, 2), (None, true, 5), (Some(4), true, 2)]
        {
            let (reads, _writer) = listed_before(server.config(), [(30, Vec::new())]).await;
            let (watch, resource_version) = (true, "29".to_owned());
            let options = ListOptions { timeout_seconds, allow_watch_bookmarks, ..ListOptions::default() };
            let options = ListOptions { watch, resource_version, ..options };
            let (request, begun) =
                (ReadRequest::simple(Gvr::new("", "v1", "configmaps"), None, options), Instant::now());
            let outcome = reads.watch(&request).await;
            assert!(matches!(outcome, Outcome::Forward(ForwardReason::OutsideWindow)), "{outcome:?}");
            assert_eq!(begun.elapsed().as_secs(), waited);
        }
    }
}
