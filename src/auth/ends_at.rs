//! Caches whose entries each have an end of their own.

use std::time::Duration;

use moka::Expiry;
use tokio::time::Instant;

/// The end of an entry, by its value.
pub(super) struct EndsAt<V>(pub(super) fn(&V) -> Instant);

#[expect(clippy::disallowed_types, reason = "the signature the cache asks for")]
impl<K, V> Expiry<K, V> for EndsAt<V> {
    fn expire_after_create(&self, _: &K, value: &V, _: std::time::Instant) -> Option<Duration> {
        Some((self.0)(value).saturating_duration_since(Instant::now()))
    }

    /// A new entry takes nothing from the one that it replaces.
    fn expire_after_update(
        &self,
        key: &K,
        value: &V,
        updated: std::time::Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.expire_after_create(key, value, updated)
    }
}
