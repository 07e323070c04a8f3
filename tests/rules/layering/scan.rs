//! Just enough of Rust's grammar to find the paths that lead out of a module: comments, strings and characters are
//! skipped, use trees are expanded, `super` is resolved against the module it stands in.

use std::path::{Path, PathBuf};

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

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    /// `::`
    Sep,
    Punct(char),
}

struct Scanner {
    tokens: Vec<(usize, Token)>,
    at: usize,
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
        let mut scanner = Scanner { tokens: tokens(text), at: 0, found: Vec::new() };
        scanner.items(&mut module, test_file);
        Self { file: relative.to_owned(), room: room_of(relative), paths: scanner.found }
    }
}

// === impl Scanner ===

impl Scanner {
    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead).map(|(_, token)| token)
    }

    fn is(&self, ahead: usize, punct: char) -> bool {
        self.peek(ahead) == Some(&Token::Punct(punct))
    }

    fn word(&self, ahead: usize) -> Option<&str> {
        match self.peek(ahead) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// Everything up to the brace that closes this block, or to the end of the file.
    fn items(&mut self, module: &mut Vec<String>, in_tests: bool) {
        while self.at < self.tokens.len() {
            if self.is(0, '}') {
                self.at += 1;
                return;
            }
            if self.is(0, '{') {
                self.at += 1;
                self.items(module, in_tests);
            } else if self.is(0, '#') && self.is(1, '[') && self.is_cfg_test() {
                self.attribute();
                self.test_item(module);
            } else {
                self.step(module, in_tests);
            }
        }
    }

    /// One token, or one path, or one inline module.
    fn step(&mut self, module: &mut Vec<String>, in_tests: bool) {
        let after_separator = self.at > 0 && self.tokens[self.at - 1].1 == Token::Sep;
        match self.word(0) {
            Some("mod") if self.word(1).is_some() && self.is(2, '{') => {
                module.push(self.word(1).unwrap_or_default().to_owned());
                self.at += 3;
                self.items(module, in_tests);
                module.pop();
            }
            Some("crate" | "super" | "informerd") if !after_separator => self.path(module, in_tests),
            _ => self.at += 1,
        }
    }

    fn is_cfg_test(&self) -> bool {
        self.word(2) == Some("cfg")
            && self.is(3, '(')
            && (self.word(4) == Some("test") && self.is(5, ')')
                || self.word(4) == Some("all") && self.is(5, '(') && self.word(6) == Some("test"))
    }

    fn attribute(&mut self) {
        let mut depth = 0;
        while let Some(token) = self.peek(0) {
            match token {
                Token::Punct('[') => depth += 1,
                Token::Punct(']') => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 && self.tokens[self.at - 1].1 == Token::Punct(']') {
                return;
            }
        }
    }

    /// The item behind `#[cfg(test)]`: to its closing brace, or to the semicolon or comma that ends it.
    fn test_item(&mut self, module: &mut Vec<String>) {
        let mut nesting = 0i32;
        while let Some(token) = self.peek(0).cloned() {
            match token {
                Token::Punct('{') => {
                    self.at += 1;
                    self.items(module, true);
                    return;
                }
                Token::Punct('}') => return,
                Token::Punct('(' | '[') => nesting += 1,
                Token::Punct(')' | ']') => nesting -= 1,
                Token::Punct(';' | ',') if nesting == 0 => {
                    self.at += 1;
                    return;
                }
                _ => {}
            }
            let whole_module = self.word(0) == Some("mod") && self.is(2, '{');
            if self.is(0, '#') && self.is(1, '[') {
                self.attribute();
            } else {
                self.step(module, true);
            }
            if whole_module {
                return;
            }
        }
    }

    /// A path that begins with `crate`, `super` or the library's own name.
    fn path(&mut self, module: &[String], in_tests: bool) {
        let line = self.tokens[self.at].0;
        let mut base: Option<Vec<String>> = None;
        match self.word(0) {
            Some("super") => {
                let mut up = module.to_vec();
                loop {
                    up.pop();
                    self.at += 1;
                    if self.peek(0) == Some(&Token::Sep) && self.word(1) == Some("super") {
                        self.at += 1;
                    } else {
                        break;
                    }
                }
                base = Some(up);
            }
            Some("informerd") if self.peek(1) != Some(&Token::Sep) => self.at += 1,
            // `pub(crate)` and `pub(in crate::room)` import nothing.
            Some("crate") if self.at > 0 && self.tokens[self.at - 1].1 == Token::Punct('(') && self.is(1, ')') => {
                self.at += 1;
            }
            _ => {
                self.at += 1;
                base = Some(Vec::new());
            }
        }
        let Some(base) = base else { return };
        if self.peek(0) == Some(&Token::Sep) {
            self.at += 1;
            self.tree(line, &base, in_tests);
        } else if self.word(0) == Some("as") {
            self.record(line, base, "*", in_tests);
        }
    }

    /// What follows a `::`: a name and more, a group, or a star.
    fn tree(&mut self, line: usize, base: &[String], in_tests: bool) {
        let mut segments = base.to_vec();
        loop {
            if self.is(0, '{') {
                self.at += 1;
                while self.at < self.tokens.len() && !self.is(0, '}') {
                    if self.is(0, ',') {
                        self.at += 1;
                    } else if matches!(self.peek(0), Some(Token::Word(_)) | Some(Token::Punct('{' | '*'))) {
                        let line = self.tokens[self.at].0;
                        self.tree(line, &segments, in_tests);
                    } else {
                        self.at += 1;
                    }
                }
                self.at += 1;
                return;
            }
            if self.is(0, '*') {
                self.at += 1;
                return self.record(line, segments, "*", in_tests);
            }
            let Some(word) = self.word(0).map(str::to_owned) else {
                // A turbofish: the path is over.
                return self.record(line, segments, "", in_tests);
            };
            self.at += 1;
            match word.as_str() {
                "super" => {
                    segments.pop();
                }
                "self" => {}
                _ => segments.push(word),
            }
            if self.peek(0) != Some(&Token::Sep) {
                if self.word(0) == Some("as") {
                    self.at += 2;
                }
                return self.record(line, segments, "", in_tests);
            }
            self.at += 1;
        }
    }

    fn record(&mut self, line: usize, mut segments: Vec<String>, last: &str, in_tests: bool) {
        if !last.is_empty() {
            segments.push(last.to_owned());
        }
        if !segments.is_empty() {
            self.found.push(ModulePath { line, segments, in_tests });
        }
    }
}

/// Words, `::` and single punctuation marks, each with its line.
fn tokens(text: &str) -> Vec<(usize, Token)> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    let get = |at: usize| chars.get(at).copied().unwrap_or('\0');
    while at < chars.len() {
        let start = at;
        match (get(at), get(at + 1)) {
            ('/', '/') => {
                while at < chars.len() && get(at) != '\n' {
                    at += 1;
                }
            }
            ('/', '*') => {
                let mut depth = 0;
                while at < chars.len() {
                    match (get(at), get(at + 1)) {
                        ('/', '*') => (depth, at) = (depth + 1, at + 2),
                        ('*', '/') => (depth, at) = (depth - 1, at + 2),
                        _ => at += 1,
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            ('"', _) => at = quoted(&chars, at),
            ('r' | 'b' | 'c', _) if prefixed_string(&chars, at).is_some() => {
                at = prefixed_string(&chars, at).unwrap_or(at + 1);
            }
            // A character, or a lifetime.
            ('\'', next) => {
                if next == '\\' {
                    at += 3;
                    while at < chars.len() && get(at) != '\'' {
                        at += 1;
                    }
                    at += 1;
                } else if get(at + 2) == '\'' {
                    at += 3;
                } else {
                    at += 1;
                }
            }
            (':', ':') => {
                tokens.push((line, Token::Sep));
                at += 2;
            }
            (c, _) if c.is_alphanumeric() || c == '_' => {
                while get(at).is_alphanumeric() || get(at) == '_' {
                    at += 1;
                }
                tokens.push((line, Token::Word(chars[start..at].iter().collect())));
            }
            (c, _) => {
                if !c.is_whitespace() && c != '$' {
                    tokens.push((line, Token::Punct(c)));
                }
                at += 1;
            }
        }
        line += chars[start..at.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    tokens
}

/// The end of a string that opens at `at`.
fn quoted(chars: &[char], mut at: usize) -> usize {
    at += 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// The end of `b"…"`, `r"…"`, `br#"…"#` and their like; `None` where it is a word.
fn prefixed_string(chars: &[char], start: usize) -> Option<usize> {
    let mut at = start;
    let mut raw = false;
    while matches!(chars.get(at), Some('r' | 'b' | 'c')) && at - start < 2 {
        raw |= chars[at] == 'r';
        at += 1;
    }
    let mut hashes = 0;
    while raw && chars.get(at) == Some(&'#') {
        hashes += 1;
        at += 1;
    }
    if chars.get(at) != Some(&'"') {
        return None;
    }
    if !raw {
        return Some(quoted(chars, at));
    }
    at += 1;
    while at < chars.len() {
        if chars[at] == '"' && chars[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes {
            return Some(at + 1 + hashes);
        }
        at += 1;
    }
    Some(at)
}
