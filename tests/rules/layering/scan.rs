//! The paths that lead out of a module, in the tokens of its source: use trees are expanded, `super` is resolved against the module it
//! stands in.

use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path from the crate's root: `["cache", "Writer"]`.
#[derive(Debug)]
pub(super) struct ModulePath {
    pub line: usize,
    pub segments: Vec<String>,
    pub in_tests: bool,
}

#[derive(Debug)]
pub(super) struct Source {
    /// Below `src/`.
    pub file: PathBuf,
    pub room: String,
    pub paths: Vec<ModulePath>,
}

struct Scanner {
    module: Vec<String>,
    found: Vec<ModulePath>,
}

/// The first component below `src/`, or a top-level file's own name.
pub(super) fn room_of(relative: &Path) -> String {
    let first = relative.components().next().map(|first| first.as_os_str().to_string_lossy().into_owned());
    first.unwrap_or_default().trim_end_matches(".rs").to_owned()
}

// === impl Source ===

impl Source {
    pub(super) fn parse(relative: &Path, text: &str) -> Self {
        let stem = relative.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let test_file = stem == "tests"
            || stem == "testing"
            || stem.ends_with("_tests")
            || relative.parent().is_some_and(|dir| dir.components().any(|part| part.as_os_str() == "tests"));
        let mut module: Vec<String> = relative
            .parent()
            .into_iter()
            .flat_map(Path::components)
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect();
        if !matches!(stem.as_str(), "mod" | "lib" | "main") {
            module.push(stem);
        }
        let tokens: TokenStream = text.parse().expect("a source file has tokens");
        let mut scanner = Scanner { module, found: Vec::new() };
        scanner.items(tokens, test_file);
        Self { file: relative.to_owned(), room: room_of(relative), paths: scanner.found }
    }
}

// === impl Scanner ===

impl Scanner {
    fn items(&mut self, stream: TokenStream, in_tests: bool) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let (mut at, mut of_test) = (0, in_tests);
        while let Some(token) = tokens.get(at) {
            let (mut next, mut is_end) = (at + 1, false);
            match token {
                TokenTree::Punct(punct) => {
                    is_end = matches!(punct.as_char(), ';' | ',');
                    of_test |= punct.as_char() == '#' && tokens.get(next).is_some_and(is_cfg_test);
                }
                TokenTree::Group(group) => {
                    self.items(group.stream(), of_test);
                    is_end = group.delimiter() == Delimiter::Brace;
                }
                TokenTree::Ident(word) if word == "mod" => {
                    if let (Some(name), Some(TokenTree::Group(block))) = (tokens.get(at + 1), tokens.get(at + 2)) {
                        self.module.push(name.to_string());
                        self.items(block.stream(), of_test);
                        self.module.pop();
                        (next, is_end) = (at + 3, true);
                    }
                }
                TokenTree::Ident(word) if word == "crate" || word == "super" || word == "informerd" => {
                    if !at.checked_sub(2).is_some_and(|before| is_separator(&tokens, before)) {
                        next = self.path(&tokens, at, of_test);
                    }
                }
                TokenTree::Ident(_) | TokenTree::Literal(_) => {}
            }
            if is_end {
                of_test = in_tests;
            }
            at = next;
        }
    }

    /// A path that begins with `crate`, `super` or the library's own name. Returns where it ends.
    fn path(&mut self, tokens: &[TokenTree], at: usize, in_tests: bool) -> usize {
        let mut base = if is_word(tokens, at, "super") { self.module.clone() } else { Vec::new() };
        base.pop();
        if is_separator(tokens, at + 1) {
            return self.tree(tokens, at + 3, base, in_tests);
        }
        if is_word(tokens, at + 1, "as") && !is_word(tokens, at, "informerd") {
            self.record(tokens, at, &[base, vec!["*".to_owned()]].concat(), in_tests);
        }
        at + 1
    }

    /// What follows a `::`: a name and more, a group, or a star.
    fn tree(&mut self, tokens: &[TokenTree], at: usize, mut segments: Vec<String>, in_tests: bool) -> usize {
        match tokens.get(at) {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let mut next = 0;
                while next < inner.len() {
                    // And a comma.
                    next = self.tree(&inner, next, segments.clone(), in_tests) + 1;
                }
                return at + 1;
            }
            Some(TokenTree::Punct(star)) if star.as_char() == '*' => segments.push("*".to_owned()),
            Some(TokenTree::Ident(word)) => {
                match word.to_string().as_str() {
                    "super" => drop(segments.pop()),
                    "self" => {}
                    name => segments.push(name.to_owned()),
                }
                if is_separator(tokens, at + 1) {
                    return self.tree(tokens, at + 3, segments, in_tests);
                }
            }
            // A turbofish: the path is over.
            _ => {
                self.record(tokens, at - 1, &segments, in_tests);
                return at;
            }
        }
        self.record(tokens, at, &segments, in_tests);
        if is_word(tokens, at + 1, "as") { at + 3 } else { at + 1 }
    }

    fn record(&mut self, tokens: &[TokenTree], at: usize, segments: &[String], in_tests: bool) {
        if !segments.is_empty() {
            let line = tokens[at].span().start().line;
            self.found.push(ModulePath { line, segments: segments.to_vec(), in_tests });
        }
    }
}

fn is_word(tokens: &[TokenTree], at: usize, word: &str) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Ident(found)) if found == word)
}

/// Whether `::` stands here.
fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    let is_colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    is_colon(at) && is_colon(at + 1)
}

fn is_cfg_test(attribute: &TokenTree) -> bool {
    let text = attribute.to_string().replace(' ', "");
    text.starts_with("[cfg(test)") || text.starts_with("[cfg(all(test")
}
