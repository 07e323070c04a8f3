//! Filling for objects under load.

/// Text that compresses about as well as what stands in real objects: words that all have, and names that no other has.
pub(crate) fn padding(seed: usize, bytes: usize) -> String {
    const WORDS: [&str; 16] = [
        "kubernetes.io/",
        "name:",
        "True,",
        "lastTransitionTime:",
        "containers/",
        "registry.example/",
        "default,",
        "node-",
        "2026-11-21T",
        "sha256:",
        "Running,",
        "cpu:100m,",
        "memory:128Mi,",
        "f:metadata.",
        "f:status.",
        "restartPolicy:",
    ];
    let mut state = (seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut text = String::with_capacity(bytes + 32);
    while text.len() < bytes {
        // xorshift: the same pods in every run.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if state.is_multiple_of(4) {
            text.push_str(&format!("{:08x},", state >> 32));
        } else {
            text.push_str(WORDS[(state >> 8) as usize % WORDS.len()]);
        }
    }
    text.truncate(bytes);
    text
}
