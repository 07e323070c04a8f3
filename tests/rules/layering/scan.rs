//! The paths in the tokens of a source that lead to other modules: use trees are expanded, `super` and `self` are resolved
//! against the module they stand in.

use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::program::in_room;

/// A path that begins with a room: `["cache", "Writer"]`.
#[derive(Debug)]
pub(super) struct ModulePath {
    pub line: usize,
    pub segments: Vec<String>,
    pub in_tests: bool,
    /// The name under which the module shows it to others, of a `pub use`.
    pub shown_as: Option<String>,
}

#[derive(Debug)]
pub(super) struct Source {
    /// From the root of the repository.
    pub file: PathBuf,
    pub room: String,
    /// Its name begins with the room.
    pub module: Vec<String>,
    pub is_test: bool,
    pub paths: Vec<ModulePath>,
    /// The modules in files of their own that only tests have.
    pub test_modules: Vec<Vec<String>>,
}

struct Scanner {
    /// What `crate` means: a crate below `crates/` is a room.
    root: Vec<String>,
    module: Vec<String>,
    found: Vec<ModulePath>,
    test_modules: Vec<Vec<String>>,
    /// A `pub use` has begun.
    shows: bool,
}

/// The first component of a path in a room, or a top-level file's own name.
pub(super) fn room_of(relative: &Path) -> String {
    let first = relative.components().next().map(|first| first.as_os_str().to_string_lossy().into_owned());
    first.unwrap_or_default().trim_end_matches(".rs").to_owned()
}

// === impl Source ===

impl Source {
    pub(super) fn parse(file: &Path, text: &str) -> Self {
        let relative = &in_room(file);
        let stem = relative.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_test = stem == "tests"
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
        let room = room_of(relative);
        let root = if file.starts_with("crates") { vec![room.clone()] } else { Vec::new() };
        let mut scanner = Scanner { root, module, found: Vec::new(), test_modules: Vec::new(), shows: false };
        scanner.items(tokens, is_test);
        let Scanner { module, found: paths, test_modules, .. } = scanner;
        Self { file: file.to_owned(), room, module, is_test, paths, test_modules }
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
                    self.shows &= punct.as_char() != ';';
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
                    } else if let (Some(name), true) = (tokens.get(at + 1), of_test) {
                        self.test_modules.push([&self.module[..], &[name.to_string()]].concat());
                    }
                }
                TokenTree::Ident(word) if word == "use" => self.shows = is_public(&tokens, at),
                TokenTree::Ident(_) if !at.checked_sub(2).is_some_and(|before| is_separator(&tokens, before)) => {
                    next = self.path(&tokens, at, of_test);
                }
                TokenTree::Ident(_) | TokenTree::Literal(_) => {}
            }
            if is_end {
                of_test = in_tests;
            }
            at = next;
        }
    }

    /// A path that begins with `crate`, the name of a crate of ours, `super`, `self` or the name of a module. Returns where it
    /// ends.
    fn path(&mut self, tokens: &[TokenTree], at: usize, in_tests: bool) -> usize {
        let word = tokens[at].to_string();
        let mut base = self.module.clone();
        let of_ours = word.strip_prefix("informerd_").map(str::to_owned);
        match word.as_str() {
            "crate" => base.clone_from(&self.root),
            "informerd" => base.clear(),
            _ if of_ours.is_some() => base = of_ours.iter().cloned().collect(),
            "super" => drop(base.pop()),
            "self" => {}
            // A type, or a variable.
            _ if !word.starts_with(char::is_lowercase) => return at + 1,
            _ => base.push(word.clone()),
        }
        if is_separator(tokens, at + 1) {
            return self.tree(tokens, at + 3, base, in_tests);
        }
        if is_word(tokens, at + 1, "as") {
            if matches!(word.as_str(), "crate" | "super") {
                self.record(tokens, at, &[base, vec!["*".to_owned()]].concat(), in_tests);
            } else if of_ours.is_some() {
                self.record(tokens, at, &base, in_tests);
            }
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
            let name = if is_word(tokens, at + 1, "as") { tokens.get(at + 2).map(ToString::to_string) } else { None };
            let shown_as = self.shows.then(|| name.or_else(|| segments.last().cloned())).flatten();
            self.found.push(ModulePath { line, segments: segments.to_vec(), in_tests, shown_as });
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

/// Whether `pub` or `pub(…)` stands before this.
fn is_public(tokens: &[TokenTree], at: usize) -> bool {
    let before = |count: usize| at.checked_sub(count).and_then(|at| tokens.get(at));
    let is_scope = matches!(before(1), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
    matches!(before(if is_scope { 2 } else { 1 }), Some(TokenTree::Ident(word)) if word == "pub")
}

fn is_cfg_test(attribute: &TokenTree) -> bool {
    let text = attribute.to_string().replace(' ', "");
    text.starts_with("[cfg(test)") || text.starts_with("[cfg(all(test")
}
