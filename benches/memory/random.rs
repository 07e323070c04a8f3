//! The numbers and texts of which objects are made: the same in every run.

/// A small generator (splitmix64).
pub(crate) struct Random(u64);

const WORDS: [&str; 64] = [
    "auth", "payment", "ledger", "frontend", "search", "index", "crawler", "media", "thumb", "mail", "queue", "stream",
    "metrics", "logs", "trace", "config", "policy", "gateway", "edge", "cache", "session", "user", "catalog", "price",
    "order", "cart", "ship", "invoice", "report", "batch", "etl", "train", "infer", "feature", "flag", "audit",
    "backup", "vault", "dns", "proxy", "mesh", "agent", "driver", "worker", "store", "event", "graph", "quota",
    "token", "image", "video", "geo", "route", "alert", "rule", "chat", "voice", "fraud", "risk", "bonus", "loyalty",
    "tax", "stock", "demo",
];

// === impl Random ===

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `from` to `to`, neither excluded.
    pub(crate) fn within(&mut self, from: usize, to: usize) -> usize {
        from + (self.next() % (to - from + 1) as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.within(0, 99) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.within(0, of.len() - 1)]
    }

    pub(crate) fn word(&mut self) -> &'static str {
        self.pick::<&'static str>(&WORDS)
    }

    /// From one to `most` words.
    pub(crate) fn name(&mut self, most: usize) -> String {
        let words: Vec<_> = (0..self.within(1, most)).map(|_| self.word()).collect();
        words.join("-")
    }

    pub(crate) fn hex(&mut self, digits: usize) -> String {
        self.characters(b"0123456789abcdef", digits)
    }

    /// As Kubernetes makes names unique.
    pub(crate) fn suffix(&mut self, letters: usize) -> String {
        self.characters(b"bcdfghjklmnpqrstvwxz2456789", letters)
    }

    /// Text as of a certificate or a binary file.
    pub(crate) fn base64(&mut self, characters: usize) -> String {
        self.characters(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", characters)
    }

    pub(crate) fn uuid(&mut self) -> String {
        let [a, b, c, d, e] = [8, 4, 3, 3, 12].map(|digits| self.hex(digits));
        format!("{a}-{b}-4{c}-8{d}-{e}")
    }

    pub(crate) fn time(&mut self) -> String {
        let (month, day) = (self.within(1, 11), self.within(1, 28));
        let (hour, minute, second) = (self.within(0, 23), self.within(0, 59), self.within(0, 59));
        format!("2026-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    pub(crate) fn ip(&mut self) -> String {
        format!("10.{}.{}.{}", self.within(0, 255), self.within(0, 255), self.within(1, 254))
    }

    pub(crate) fn image(&mut self, name: &str) -> String {
        let (team, major, minor, patch) = (self.word(), self.within(0, 9), self.within(0, 40), self.within(0, 9));
        format!("registry.example.com/{team}/{name}:v{major}.{minor}.{patch}")
    }

    fn characters(&mut self, of: &[u8], count: usize) -> String {
        (0..count).map(|_| char::from(*self.pick(of))).collect()
    }
}
