//! The frame of the event that a thread has written last. An event usually goes to many watches, one after the other.
//!
//! The bytes of an object are shared by all threads, so each delivery would change their reference counts, for each part
//! of a frame, in the caches of several processors. A thread that writes an event for the second time copies the frame.
//! Only this thread counts the references to the copy.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::codec::{Form, Shape, Slices};
use crate::meta::{Damaged, EventType, Object, ResourceVersion};

/// What one thread has written last.
struct Last {
    form: Arc<Form>,
    /// While this reference exists, the memory of the object is not reused. So its address identifies the object.
    object: Weak<Object>,
    kind: EventType,
    rv: Option<ResourceVersion>,
    shape: Shape,
    /// `None` before the second time.
    frame: Option<Bytes>,
}

/// The most bytes of a frame that is copied.
const MOST: usize = 16 << 10;

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// The same bytes as [`Form::event_frame`].
///
/// # Errors
/// The bytes of the object are damaged.
pub(super) fn event_frame(
    form: &Arc<Form>,
    kind: EventType,
    object: &Arc<Object>,
    rv: Option<ResourceVersion>,
    shape: Shape,
) -> Result<Slices, Damaged> {
    LAST.with_borrow_mut(|last| match last {
        Some(last) if last.is(form, kind, object, rv, shape) => {
            if let Some(frame) = &last.frame {
                return Ok(frame.clone().into());
            }
            let frame = form.event_frame(kind, object, rv, shape)?;
            if frame.len() > MOST {
                return Ok(frame);
            }
            let copy = last.frame.insert(join(&frame));
            Ok(copy.clone().into())
        }
        _ => {
            *last = Some(Last { form: Arc::clone(form), object: Arc::downgrade(object), kind, rv, shape, frame: None });
            form.event_frame(kind, object, rv, shape)
        }
    })
}

fn join(frame: &Slices) -> Bytes {
    let mut joined = Vec::with_capacity(frame.len());
    frame.iter().for_each(|part| joined.extend_from_slice(part));
    joined.into()
}

// === impl Last ===

impl Last {
    fn is(
        &self,
        form: &Arc<Form>,
        kind: EventType,
        object: &Arc<Object>,
        rv: Option<ResourceVersion>,
        shape: Shape,
    ) -> bool {
        std::ptr::eq(self.object.as_ptr(), Arc::as_ptr(object))
            && (self.kind, self.rv, self.shape) == (kind, rv, shape)
            && (Arc::ptr_eq(&self.form, form) || self.form == *form)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json::Style;
    use crate::http::testing::object;
    use crate::meta::Encoding;

    fn form() -> Arc<Form> {
        Arc::new(Form::new(Encoding::Json, Style::Inline, "v1", "ConfigMap", "ConfigMapList"))
    }

    #[test]
    fn a_frame_is_the_same_each_time() {
        let (forms, objects) = ([form(), form()], [object(7, 100), object(8, 100), object(9, MOST)]);
        for rv in [None, Some(ResourceVersion(20))] {
            for kind in [EventType::Added, EventType::Deleted] {
                for times in 1..4 {
                    for object in &objects {
                        for form in &forms {
                            let expected = form.event_frame(kind, object, rv, Shape::Full).unwrap().into_bytes();
                            for _ in 0..times {
                                let written = event_frame(form, kind, object, rv, Shape::Full);
                                assert_eq!(written.unwrap().into_bytes(), expected);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn from_the_second_time_on_it_is_one_part_that_the_thread_shares() {
        let (form, small, large) = (form(), object(7, 100), object(8, MOST));
        let write = |object: &Arc<Object>| event_frame(&form, EventType::Modified, object, None, Shape::Full).unwrap();
        let [first, second, third] = [write(&small), write(&small), write(&small)];
        assert_eq!((first.iter().count(), second.iter().count()), (3, 1));
        assert_eq!(second.into_bytes().as_ptr(), third.into_bytes().as_ptr());
        assert_eq!([write(&large), write(&large)].map(|frame| frame.iter().count()), [3, 3]);
        let weak = Arc::downgrade(&large);
        drop(large);
        assert!(weak.upgrade().is_none(), "no thread keeps an object");
    }
}
