//! Writes lists. A list consists of a head, its items as shared slices in batches, and a tail.

use std::sync::Arc;

use super::copies::Copies;
use crate::codec::{Form, ListMetaOut, Shape, Slices};
use crate::meta::{Damaged, Object};
use crate::reads::{ListAnswer, ListItems};

/// Objects per frame. A frame goes to the kernel in one vectored write, which takes up to 64 slices.
const BATCH: usize = 63;

/// Writes one list.
pub(super) struct ListWriter {
    form: Arc<Form>,
    shape: Shape,
    meta: ListMetaOut,
    items: ListItems,
    batch: Vec<Arc<Object>>,
    /// Other batches may follow.
    more: bool,
    /// Held back until it is known whether another item follows: the last item has no comma.
    held: Option<Arc<Object>>,
    state: ListState,
    /// The number of objects written so far.
    pub(super) objects: u64,
}

/// One step of writing.
pub(super) enum BodyStep {
    Frame(Slices),
    /// No output yet: a selective list searched a part of the cache and found no match, or one more step was compressed.
    Again,
    /// No output yet: there is no memory for it. The next step tries again.
    Wait,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ListState {
    Head,
    Items,
    Done,
}

// === impl ListWriter ===

impl ListWriter {
    pub(super) fn new(answer: ListAnswer) -> Self {
        Self {
            form: answer.form,
            shape: answer.shape,
            meta: answer.meta,
            items: answer.items,
            batch: Vec::with_capacity(BATCH),
            more: true,
            held: None,
            state: ListState::Head,
            objects: 0,
        }
    }

    /// Reserves what is made for this step of `copies` before.
    ///
    /// # Errors
    /// The bytes of an object are damaged. So is the next step.
    pub(super) fn step(&mut self, copies: &mut Copies) -> Result<BodyStep, Damaged> {
        if self.state == ListState::Done {
            return Ok(BodyStep::End);
        }
        if self.batch.is_empty() && self.more {
            self.more = self.items.next(BATCH, &mut self.batch);
            if self.more && self.batch.is_empty() {
                return Ok(BodyStep::Again);
            }
        }
        let mut out = Slices::new();
        let empty = self.state == ListState::Head && self.batch.is_empty() && self.held.is_none();
        if self.state == ListState::Head {
            out.append(self.form.list_head(self.shape, &self.meta, empty));
        }
        let (mut written, mut items, mut is_full) = (0, 0, false);
        for object in &self.batch {
            // It stays where it is if it cannot be written: the list never goes on without it.
            if let Some(held) = &self.held {
                is_full = copies.reserve(self.form.copied(held, None, self.shape)).is_err();
                if is_full {
                    break;
                }
                out.append(self.form.list_item(held, self.shape, false)?);
                items += 1;
            }
            written += 1;
            self.held = Some(Arc::clone(object));
        }
        self.objects += written as u64;
        self.batch.drain(..written);
        if self.batch.is_empty()
            && !self.more
            && let Some(last) = &self.held
        {
            is_full = copies.reserve(self.form.copied(last, None, self.shape)).is_err();
            if !is_full {
                out.append(self.form.list_item(last, self.shape, true)?);
                self.held = None;
            }
        }
        if is_full && items == 0 {
            return Ok(BodyStep::Wait);
        }
        self.state = ListState::Items;
        if self.batch.is_empty() && !self.more && self.held.is_none() {
            out.append(self.form.list_tail(self.shape, &self.meta, empty));
            self.state = ListState::Done;
        }
        Ok(BodyStep::Frame(out))
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == ListState::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::{World, list_text, objects};
    use crate::memory::Ledger;

    /// The text, the number of objects, and the number of steps without output.
    fn whole(answer: ListAnswer) -> (String, u64, usize) {
        let mut writer = ListWriter::new(answer);
        let mut copies = Copies::new(&Ledger::default());
        let (mut text, mut again) = (Vec::new(), 0);
        loop {
            match writer.step(&mut copies).unwrap() {
                BodyStep::Frame(frame) => frame.into_iter().for_each(|part| text.extend_from_slice(&part)),
                BodyStep::Again => again += 1,
                BodyStep::Wait => panic!("there is memory"),
                BodyStep::End => return (String::from_utf8(text).unwrap(), writer.objects, again),
            }
        }
    }

    #[tokio::test]
    async fn a_long_search_is_made_in_steps() {
        for length in [0, 1, 100] {
            let (text, written, again) = whole(World::sparse(objects(length, 3)).await.list());
            assert!(text == list_text(length, 3), "{length}");
            assert_eq!(written, length as u64);
            assert!(again > 0);
        }
    }
}
