//! `informerd inject`: manifests in files.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::document::rewrite;
use super::{Injector, Mode};

/// The most bytes of all manifests together.
const MOST: u64 = 256 << 20;

/// Changes the pods in the manifests of these files and prints the manifests. `-` is the standard input, and so is no file.
///
/// `mode`: that of pods without a label. `None`: they stay as they are.
///
/// # Errors
/// A file cannot be read or is not YAML, or the output is closed.
pub fn rewrite_files(
    files: &[PathBuf],
    mode: Option<Mode>,
    injector: &Injector,
    out: &mut dyn io::Write,
    err: &mut dyn io::Write,
) -> Result<(), String> {
    let standard_input = ["-".into()];
    let files = if files.is_empty() { &standard_input[..] } else { files };
    let (mut all, mut notes) = (String::new(), Vec::new());
    for file in files {
        let text = read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let done = rewrite(&text, mode, injector);
        let done = done.map_err(|error| format!("{}: {error}", file.display()))?;
        if !all.is_empty() && !done.text.starts_with("---") {
            all.push_str("---\n");
        }
        all.push_str(&done.text);
        notes.extend(done.notes);
    }
    out.write_all(all.as_bytes()).map_err(|error| error.to_string())?;
    for note in notes {
        // If this cannot be written either, there is no other way to report it.
        let _ = writeln!(err, "informerd: {note}");
    }
    Ok(())
}

fn read(file: &Path) -> io::Result<String> {
    let reader: Box<dyn io::Read> =
        if file == Path::new("-") { Box::new(io::stdin()) } else { Box::new(std::fs::File::open(file)?) };
    let mut text = String::new();
    if reader.take(MOST + 1).read_to_string(&mut text)? as u64 > MOST {
        return Err(io::Error::other(format!("more than {MOST} bytes")));
    }
    Ok(text)
}
