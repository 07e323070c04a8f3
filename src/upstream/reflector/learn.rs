//! Learns how the objects of a type are encoded.

use std::sync::Arc;
use std::time::Duration;

use super::Reflector;
use super::machine::{Failure, Outcome};
use super::stream::read_page;
use crate::apiserver::client::{RequestVerb, UpstreamError};
use crate::codec::Form;
use crate::codec::json::{ListMeta, Style, TypeMeta};
use crate::codec::table::{Columns, Unprintable};
use crate::meta::{Encoding, Origin, Resource};

// === impl Reflector ===

impl Reflector {
    /// Learns how objects of this type are encoded: a watch-list of an empty state would not show the kind of the list.
    pub(super) async fn learn(&mut self) -> Outcome {
        if self.assumes_form() {
            return Outcome::Known;
        }
        let options = self.lister.options(RequestVerb::Probe);
        let path = self.lister.list_path(1, "");
        let mut items = 0;
        let count = |_, _| {
            items += 1;
            true
        };
        let page = read_page(&self.upstream, &self.lister, &self.config, &path, &options, count).await;
        match page {
            Ok(Some(meta)) if meta.rv.is_zero() => self.unversioned("the list has no resource version"),
            Ok(Some(meta)) => match self.learn_columns(&meta) {
                Ok(()) => {
                    self.expected = if meta.continue_token.is_empty() { Some(items) } else { counted(&meta) };
                    if let Some(larger) = self.is_larger(&meta) {
                        return larger;
                    }
                    self.learned(&meta);
                    self.expect(&meta).err().unwrap_or(Outcome::Learned)
                }
                Err(error) => self.failed(&UpstreamError::Table(error)),
            },
            Ok(None) => Outcome::Failed(Failure::Other),
            Err(error) if error.is_about_revisions() && self.writer.resource_version().is_zero() => {
                self.unversioned(&error.to_string())
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Whether the first state is read without that question. A list shows the form itself. A watch-list does not, but all
    /// built-in types have the same one; if the server may not mark its end, the number of objects must be known. A table
    /// cannot be read without its columns, nor can a limit on the number be kept.
    fn assumes_form(&mut self) -> bool {
        let Resource { gvr, kind, origin, .. } = &*self.lister.resource;
        let is_first = self.form.is_none() && !self.machine.assumed;
        if !is_first || self.lister.encoding == Encoding::Table || self.handle.most() != usize::MAX {
            return false;
        }
        if self.by_list {
            return *origin != Origin::Unknown;
        }
        let assumes = *origin == Origin::BuiltIn && !self.machine.paged && self.upstream.marks_watch_lists();
        if assumes {
            let list_kind = format!("{kind}List");
            let form = Form::new(self.lister.encoding, Style::Stripped, &gvr.api_version(), kind, &list_kind);
            self.writer.set_form(form.clone());
            self.form = Some(form);
        }
        assumes
    }

    /// An API server whose lists have other revisions than numbers will not change that soon. If there is a state, it has
    /// sent numbers before: then this is a fault like any other.
    pub(super) fn unversioned(&mut self, why: &str) -> Outcome {
        self.note(why, 0);
        let is_first = self.writer.resource_version().is_zero();
        Outcome::Failed(if is_first { Failure::Unversioned } else { Failure::Other })
    }

    /// Before the first state is read: checks whether it has more objects than this reflector may read. If the
    /// apiserver does not tell the number, the state is read.
    fn is_larger(&self, meta: &ListMeta) -> Option<Outcome> {
        let objects = counted(meta)?;
        let is_first = self.writer.resource_version().is_zero();
        (is_first && objects > self.handle.most()).then_some(Outcome::Failed(Failure::Larger(objects)))
    }

    /// How long a watch-list may stay silent, with so many objects so far. `expected`: how many a list had a moment ago. Also
    /// returns whether it has all objects that are expected. If nothing more comes then, the server may not support watch-lists.
    pub(super) fn silence(&self, expected: Option<usize>, objects: usize) -> (Duration, bool) {
        match expected {
            // The server may first have to bring its cache up to date, which it does for up to 3 s.
            Some(0) => (2 * self.config.initial_end, true),
            Some(expected) if objects >= expected => (self.config.initial_end, true),
            _ => (self.config.initial_idle, false),
        }
    }

    /// The columns of tables must not change while this reflector runs.
    fn learn_columns(&mut self, meta: &ListMeta) -> Result<(), Unprintable> {
        if self.lister.encoding != Encoding::Table {
            return Ok(());
        }
        let definitions = meta.columns.as_ref().ok_or(Unprintable::Definition)?;
        let columns = Columns::new(&self.lister.resource, definitions)?;
        let known = self.lister.columns.get_or_init(|| Arc::new(columns.clone()));
        if **known == columns { Ok(()) } else { Err(Unprintable::Changed) }
    }

    /// Learns whether the items of lists have their type, once there is one: events have it always. Only aggregated API
    /// servers may write it.
    pub(super) async fn learn_items(&mut self) {
        let may_have = self.lister.encoding == Encoding::Json && self.lister.resource.origin == Origin::Unknown;
        if self.typed_items.is_some() || !may_have {
            return;
        }
        let (options, path) = (self.lister.options(RequestVerb::Probe), self.lister.list_path(1, ""));
        let page = read_page(&self.upstream, &self.lister, &self.config, &path, &options, |_, _| true).await;
        // An empty list tells less than the events do.
        if let Some(meta) = page.ok().flatten().filter(|meta| meta.typed_items.is_some()) {
            self.learned(&meta);
        }
    }

    pub(super) fn learned(&mut self, meta: &ListMeta) {
        self.typed_items = meta.typed_items.or(self.typed_items);
        let kind = &self.lister.resource.kind;
        let form = match self.lister.columns.get() {
            // A table shows the TypeMeta of its objects only in its rows.
            Some(columns) => {
                let custom = matches!(self.lister.resource.origin, Origin::Custom { .. });
                let style = if custom { Style::Inline } else { Style::Stripped };
                let api_version = self.lister.resource.gvr.api_version();
                // All built-in types follow this form; objects of other types are not served without their rows.
                let list_kind = format!("{kind}List");
                Form::new(Encoding::Table, style, &api_version, kind, &list_kind).with_columns(Arc::clone(columns))
            }
            None => Form::new(self.lister.encoding, meta.style, &meta.api_version, kind, &meta.list_kind)
                .with_typed_items(self.typed_items == Some(true)),
        };
        if self.form.as_ref() != Some(&form) {
            self.writer.set_form(form.clone());
            self.form = Some(form);
        }
    }

    /// Items are kept in the style in which they arrived. A list without items does not show the style, so it is
    /// guessed.
    pub(super) fn seen(&mut self, type_meta: &TypeMeta) {
        if let Some(form) = &self.form
            && form.style() != type_meta.style
            && form.columns().is_none()
        {
            let (api_version, kind, list_kind) = (form.api_version(), form.kind(), form.list_kind());
            let form = Form::new(self.lister.encoding, type_meta.style, api_version, kind, list_kind)
                .with_typed_items(self.typed_items == Some(true));
            self.writer.set_form(form.clone());
            self.form = Some(form);
        }
    }
}

/// The number of objects in all pages, of which this is the first one with one object.
pub(super) fn counted(meta: &ListMeta) -> Option<usize> {
    let more = meta.remaining_item_count.and_then(|count| usize::try_from(count).ok())?;
    Some(more.saturating_add(1))
}
