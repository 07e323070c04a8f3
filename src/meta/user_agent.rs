//! What the apiserver reads from a User-Agent.

/// Whether the apiserver indents JSON for this client without being asked: people look through it. Without any header
/// `agent` is empty.
pub fn is_indented_for(agent: &[u8]) -> bool {
    [&b"curl"[..], b"Wget", b"Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
}
