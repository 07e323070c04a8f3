//! A state that was saved by an earlier process takes the place of the first list, if the apiserver accepts a watch from
//! its revision.

use std::time::Duration;

use super::Reflector;
use super::config::LoadSaved;
use super::machine::{Failure, Outcome};
use super::stream::EventStream;

/// The apiserver accepts a watch from a revision that it no longer has, and then sends an error at once. If it has sent
/// nothing for this long, it has accepted the revision.
const ACCEPTED: Duration = Duration::from_millis(150);

// === impl Reflector ===

impl Reflector {
    /// Begins with a saved state.
    pub fn with_saved(mut self, load: LoadSaved) -> Self {
        self.machine.load_first();
        self.load = Some(load);
        self
    }

    pub(super) async fn load(&mut self) -> Outcome {
        let Some(load) = &mut self.load else { return Outcome::NothingSaved };
        match load(self.writer.restoration()).await {
            Ok(Some(saved)) if !saved.rv().is_zero() => {
                if let Some(form) = saved.form() {
                    self.writer.set_form(form.clone());
                    self.form = Some(form.clone());
                }
                self.saved = Some(saved);
                Outcome::Loaded
            }
            Ok(_) => Outcome::NothingSaved,
            Err(error) => self.failed(&error),
        }
    }

    /// The apiserver has opened a watch from the revision of the saved state, if there is one.
    pub(super) async fn restore(&mut self, stream: &mut EventStream) -> Result<(), Outcome> {
        if self.saved.is_none() {
            return Ok(());
        }
        if let Err(error) = stream.accepted(ACCEPTED).await {
            return Err(self.failed(&error));
        }
        let Some(saved) = self.saved.take() else { return Ok(()) };
        let (rv, objects) = (saved.rv(), saved.objects());
        self.writer.restore(saved).map_err(|error| {
            self.note(&format!("the saved state cannot be used: {error}"), 0);
            Outcome::Failed(Failure::Expired)
        })?;
        self.load = None;
        tracing::info!(resource = %self.lister.resource.gvr, %rv, objects, "continued from the saved state");
        Ok(())
    }
}
