//! Behaviour of the apiserver that depends on the User-Agent.

/// Whether the apiserver indents JSON for this client by default, because people read its output. `agent` is empty
/// without the header.
pub fn is_indented_for(agent: &[u8]) -> bool {
    [&b"curl"[..], b"Wget", b"Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
}
