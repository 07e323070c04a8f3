//! What is told of revisions, kept for a test.

use parking_lot::Mutex;

use super::RevisionObserver;
use crate::meta::{RequestInfo, ResourceVersion};

/// Records the calls.
#[derive(Default)]
pub(crate) struct Recorder(pub(crate) Mutex<Vec<String>>);

impl RevisionObserver for Recorder {
    fn wrote(&self, info: &RequestInfo, rv: ResourceVersion) {
        self.0.lock().push(format!("wrote {} {rv}", info.resource));
    }

    fn wrote_unknown(&self, info: &RequestInfo) {
        self.0.lock().push(format!("wrote {} ?", info.resource));
    }

    fn may_have_written(&self, info: &RequestInfo) {
        self.0.lock().push(format!("perhaps wrote {}", info.resource));
    }

    fn shown(&self, info: &RequestInfo) -> ResourceVersion {
        ResourceVersion(if info.namespace == "known" { 9 } else { 0 })
    }

    fn showed(&self, info: &RequestInfo, rv: ResourceVersion, known: ResourceVersion) {
        let known = if known.is_zero() { String::new() } else { format!(" after {known}") };
        self.0.lock().push(format!("showed {} {rv}{known}", info.resource));
    }

    fn showed_unknown(&self, info: &RequestInfo) {
        self.0.lock().push(format!("showed {} ?", info.resource));
    }

    fn showed_none(&self, info: &RequestInfo) {
        self.0.lock().push(format!("no {} in {}", info.name, info.resource));
    }

    fn unreached(&self, info: &RequestInfo) {
        self.0.lock().push(format!("{} did not get there", info.resource));
    }
}
