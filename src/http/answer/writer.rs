//! Bodies of gets and lists, produced in steps.

use super::copies::Copies;
use super::list_writer::{BodyStep, ListWriter};
use crate::codec::Slices;
use crate::codec::json::Indenter;
use crate::memory::Ledger;
use crate::meta::Damaged;

/// A step ends with a line break, which is longer only in the deepest objects.
const LINE: usize = 256;

/// Writes the body of one answer, indented if requested.
pub(super) struct Writer {
    /// `None` for a single object.
    list: Option<ListWriter>,
    /// The bytes to write before the list is asked for more.
    pending: Slices,
    indenter: Option<Indenter>,
    pub(super) copies: Copies,
}

// === impl Writer ===

impl Writer {
    /// `copies`: those in `body`.
    pub(super) fn object(body: Slices, indent: bool, mut copies: Copies) -> Self {
        let pending = if indent { copies.keep(body) } else { body };
        Self { list: None, pending, indenter: indent.then(Indenter::default), copies }
    }

    pub(super) fn list(writer: ListWriter, indent: bool, ledger: &Ledger) -> Self {
        Self { list: Some(writer), ..Self::object(Slices::new(), indent, Copies::new(ledger)) }
    }

    /// The number of objects of a list that were taken so far.
    pub(super) fn objects(&self) -> u64 {
        self.list.as_ref().map_or(0, |list| list.objects)
    }

    /// # Errors
    /// The bytes of an object are damaged. So is the next step.
    pub(super) fn step(&mut self) -> Result<BodyStep, Damaged> {
        loop {
            if self.pending.is_empty() {
                match self.list.as_mut().map_or(Ok(BodyStep::End), |list| list.step(&mut self.copies))? {
                    BodyStep::Frame(frame) if self.indenter.is_some() => self.pending = self.copies.keep(frame),
                    BodyStep::Frame(frame) => self.pending = frame,
                    other => return Ok(other),
                }
            }
            let Some(indenter) = &mut self.indenter else {
                return Ok(BodyStep::Frame(self.copies.hold(std::mem::take(&mut self.pending))));
            };
            let Ok(most) = self.copies.reserve_frame() else { return Ok(BodyStep::Wait) };
            let indented = indenter.step(&mut self.pending, most - LINE);
            self.copies.settle(2 * indented.len());
            // The last line break is held back, so a step may produce nothing.
            if !indented.is_empty() {
                return Ok(BodyStep::Frame(self.copies.hold(indented.into())));
            }
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.pending.is_empty() && self.list.as_ref().is_none_or(ListWriter::is_done)
    }
}

#[cfg(test)]
mod tests {
    use super::super::copies::MOST;
    use super::*;
    use crate::http::testing::{World, list_text, objects};

    fn whole(mut writer: Writer) -> String {
        let mut text = Vec::new();
        loop {
            match writer.step().unwrap() {
                BodyStep::Frame(frame) => {
                    assert!(!frame.is_empty() && frame.len() < MOST + 100);
                    frame.into_iter().for_each(|part| text.extend_from_slice(&part));
                }
                BodyStep::Again | BodyStep::Wait => {}
                BodyStep::End => break,
            }
        }
        assert!(writer.is_done());
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn a_list_is_indented_across_its_frames() {
        for length in [0, 1, 2, 62, 63, 64, 126, 127, 700] {
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
        let compact = format!("{{\"a\":[{}1]}}\n", "1,".repeat(MOST));
        let text = whole(Writer::object(
            Slices::from(bytes::Bytes::from(compact.clone())),
            true,
            Copies::new(&Ledger::default()),
        ));
        let value: serde_json::Value = serde_json::from_str(&compact).unwrap();
        assert!(text == serde_json::to_string_pretty(&value).unwrap());
    }

    #[test]
    fn indented_text_is_made_in_small_steps_while_memory_is_short() {
        let ledger = Ledger::new(1 << 20, crate::memory::Pressure::default());
        ledger.pressure().set(crate::memory::Level::Short);
        let compact = bytes::Bytes::from(format!("{{\"a\":[{}1]}}\n", "1,".repeat(MOST)));
        let mut answers = Vec::new();
        loop {
            let mut writer = Writer::object(compact.clone().into(), true, Copies::new(&ledger));
            match writer.step().unwrap() {
                BodyStep::Frame(frame) => answers.push(frame),
                _ => break,
            }
        }
        assert!(answers.iter().all(|frame| frame.len() <= 16 << 10) && ledger.used() <= 49 << 14);
        // The last one is for whoever comes when there is no memory.
        assert_eq!(answers.len(), 48 + 1);
    }
}
