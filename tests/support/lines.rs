//! What a process writes, line by line.

use std::sync::Arc;

use informerd::lifecycle;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::patience::within;

/// Lines that are read one after the other.
pub(crate) struct Lines {
    lines: tokio::io::Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>,
    /// Those that were read so far.
    pub text: String,
}

impl Lines {
    pub(crate) fn of(pipe: &mut Option<impl AsyncRead + Send + Unpin + 'static>) -> Self {
        let pipe: Box<dyn AsyncRead + Send + Unpin> = Box::new(pipe.take().unwrap());
        Self { lines: BufReader::new(pipe).lines(), text: String::new() }
    }

    /// The next one; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        let line = within("the next line of a process", self.lines.next_line()).await.unwrap();
        self.text.extend(line.iter().flat_map(|line| [line, "\n"]));
        line
    }

    /// The next one with these words.
    pub(crate) async fn until(&mut self, words: &str) -> String {
        loop {
            let line = self.next().await.unwrap_or_else(|| panic!("never {words:?} in\n{}", self.text));
            if line.contains(words) {
                return line;
            }
        }
    }
}

/// Keeps all that comes, and shows it to whoever runs the tests if so told.
pub(crate) fn keep(pipe: &mut Option<impl AsyncRead + Send + Unpin + 'static>, into: &Arc<Mutex<String>>, shows: bool) {
    let (mut lines, into) = (BufReader::new(pipe.take().unwrap()).lines(), Arc::clone(into));
    lifecycle::spawn("what a process writes", async move {
        while let Ok(Some(line)) = lines.next_line().await {
            if shows {
                eprintln!("{line}");
            }
            into.lock().push_str(&format!("{line}\n"));
        }
    });
}
