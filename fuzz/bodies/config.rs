//! A configuration file. What it says can be said by flags instead, with the same result; every mistake has its line.

use std::io;
use std::path::Path;

use informerd::config::{Flags, Kind, Loaded, Origin, SETTINGS, Source, load};

/// A world with one file and nothing else.
struct World<'a>(&'a str);

const PATH: &str = "/config.yaml";

impl Source for World<'_> {
    fn variable(&self, _: &str) -> Result<Option<String>, String> {
        Ok(None)
    }

    fn variable_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        if path == Path::new(PATH) { Ok(self.0.to_owned()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let flags = Flags::from([("config", vec![PATH.to_owned()])]);
    match load(&flags, &World(text)) {
        Ok(loaded) => by_flags(&loaded),
        Err(mistakes) => {
            assert!(!mistakes.0.is_empty(), "refused without a reason");
            for mistake in &mistakes.0 {
                assert!(!mistake.message.is_empty() && !mistake.to_string().is_empty());
                if let Origin::File { line, .. } = &mistake.origin {
                    // YAML knows more line breaks than one.
                    let lines = text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count() as u64;
                    assert!(*line <= lines + 1, "line {line} of {lines}: {mistake}");
                }
            }
        }
    }
}

fn by_flags(loaded: &Loaded) {
    let mut flags = Flags::new();
    for effective in loaded.effective.iter().filter(|effective| effective.key != "config") {
        let setting = SETTINGS.iter().find(|setting| setting.key == effective.key).expect("a setting");
        let texts = match setting.kind {
            Kind::Many(_) if effective.text.starts_with('[') || effective.text.contains(',') => return,
            // Rules have a form of their own in flags.
            _ if effective.text.starts_with(['[', '{']) => return,
            _ => vec![effective.text.clone()],
        };
        flags.insert(setting.key, texts);
    }
    let again = load(&flags, &World("")).unwrap_or_else(|mistakes| panic!("not as flags: {mistakes}"));
    assert_eq!(format!("{:?}", again.config), format!("{:?}", loaded.config));
}
