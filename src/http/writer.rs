//! Bodies of gets and lists, produced in steps.

use std::task::{Context, Poll};

use super::copies::Copies;
use super::list_body::{ListWriter, Step};
use crate::codec::Slices;
use crate::codec::json::Indenter;
use crate::memory::Ledger;
use crate::meta::Damaged;

/// Indented bytes per step.
const STEP: usize = 64 << 10;

/// Writes the body of one answer, indented if requested.
pub(super) struct Writer {
    /// `None` for a single object.
    list: Option<ListWriter>,
    /// The bytes to write before the list is asked for more.
    pending: Slices,
    indenter: Option<Indenter>,
    copies: Copies,
}

// === impl Writer ===

impl Writer {
    pub(super) fn object(body: Slices, indent: bool, ledger: &Ledger) -> Self {
        Self { list: None, pending: body, indenter: indent.then(Indenter::default), copies: Copies::new(ledger) }
    }

    pub(super) fn list(writer: ListWriter, indent: bool, ledger: &Ledger) -> Self {
        Self { list: Some(writer), ..Self::object(Slices::new(), indent, ledger) }
    }

    /// Counts a copy that the body of an object is.
    pub(super) fn copied(&mut self, bytes: usize) {
        self.copies.add(bytes);
    }

    /// Ready once the client has taken the copies in earlier frames.
    pub(super) fn poll_taken(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.copies.poll_taken(cx)
    }

    /// The number of objects of a list that were taken so far.
    pub(super) fn objects(&self) -> u64 {
        self.list.as_ref().map_or(0, ListWriter::objects)
    }

    /// # Errors
    /// The bytes of an object are damaged. So is the next step.
    pub(super) fn step(&mut self) -> Result<Step, Damaged> {
        loop {
            if self.pending.is_empty() {
                match self.list.as_mut().map_or(Ok(Step::End), |list| list.step(&mut self.copies))? {
                    Step::Frame(frame) => self.pending = frame,
                    other => return Ok(other),
                }
            }
            let Some(indenter) = &mut self.indenter else {
                return Ok(Step::Frame(self.copies.hold(std::mem::take(&mut self.pending))));
            };
            let indented = indenter.step(&mut self.pending, STEP);
            // The last line break is held back, so a step may produce nothing.
            if !indented.is_empty() {
                self.copies.add(indented.len());
                return Ok(Step::Frame(self.copies.hold(indented.into())));
            }
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.pending.is_empty() && self.list.as_ref().is_none_or(ListWriter::is_done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::{World, list_text, objects};

    fn whole(mut writer: Writer) -> String {
        let mut text = Vec::new();
        loop {
            match writer.step().unwrap() {
                Step::Frame(frame) => {
                    assert!(!frame.is_empty() && frame.len() < STEP + 100);
                    frame.into_iter().for_each(|part| text.extend_from_slice(&part));
                }
                Step::Again => {}
                Step::End => break,
            }
        }
        assert!(writer.is_done());
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn a_list_is_indented_across_its_frames() {
        for length in [0, 1, 62, 63, 64, 700] {
            let list = World::new(objects(length, 300)).await.list();
            let mut indented = Slices::from(bytes::Bytes::from(list_text(length, 300)));
            let indented = Indenter::default().step(&mut indented, usize::MAX);
            assert!(
                whole(Writer::list(ListWriter::new(list), true, &Ledger::default())).as_bytes() == indented,
                "{length}"
            );
        }
    }

    #[test]
    fn an_object_larger_than_a_step_is_made_in_several() {
        let compact = format!("{{\"a\":[{}1]}}\n", "1,".repeat(STEP));
        let text = whole(Writer::object(Slices::from(bytes::Bytes::from(compact.clone())), true, &Ledger::default()));
        let value: serde_json::Value = serde_json::from_str(&compact).unwrap();
        assert!(text == serde_json::to_string_pretty(&value).unwrap());
    }
}
