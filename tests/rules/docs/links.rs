//! Links between the pages: the files that they name exist, and so do the headings. Each page is in the index.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{read, root};

/// Directories with pages of others, or with none.
const SKIPPED: &[&str] = &["target", "node_modules", ".git", ".ci", "venv"];

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    let (mut broken, mut files, mut anchors) = (Vec::new(), 0, 0);
    for page in &pages {
        let text = fs::read_to_string(page).expect("a page is readable");
        for target in links(&text) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            if file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            let to = if file.is_empty() { page.clone() } else { page.parent().expect("a directory").join(file) };
            files += usize::from(!file.is_empty());
            let mut is_good = to.exists();
            if is_good && !anchor.is_empty() {
                anchors += 1;
                is_good = to.extension().is_some_and(|end| end == "md")
                    && headings(&fs::read_to_string(&to).expect("a page is readable")).contains(anchor);
            }
            if !is_good {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links: {broken:#?}");
    assert!(pages.len() > 15 && files > 80 && anchors > 40, "{} pages, {files} files, {anchors} anchors", pages.len());
}

#[test]
fn the_index_has_every_page() {
    let index = read("docs/README.md");
    let named: BTreeSet<_> = links(&index).collect();
    for page in super::pages() {
        let name = page.strip_prefix("docs/").unwrap_or("../README.md");
        assert!(name == "README.md" || named.contains(name), "docs/README.md does not name {name}");
    }
}

#[test]
fn anchors_are_those_that_github_makes() {
    let text = "# A `b.c`: d, e\n```sh\n# no heading\n```\n## Twice\n### Twice\n## 401 [x](y) \"z\"…\n";
    assert_eq!(headings(text), ["a-bc-d-e", "twice", "twice-1", "401-x-z"].map(str::to_owned).into());
    assert_eq!(
        links("[a](b.md#c) `[x](y)` ![d](e.svg)\n<img src=\"h.png\">\n```\n[f](g)\n```\n").collect::<Vec<_>>(),
        ["b.md#c", "e.svg", "h.png"]
    );
}

/// All pages of the repository.
fn pages() -> Vec<PathBuf> {
    fn walk(directory: &Path, pages: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).expect("a directory is readable") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() && !path.is_symlink() && !SKIPPED.contains(&&*name) {
                walk(&path, pages);
            } else if name.ends_with(".md") {
                pages.push(path);
            }
        }
    }
    let mut pages = Vec::new();
    walk(root(), &mut pages);
    pages
}

/// The lines that are no code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        code ^= is_fence;
        !code && !is_fence
    })
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    let outside_of_code = |line: &str| line.matches('`').count().is_multiple_of(2);
    prose(text).flat_map(move |line| {
        let starts = line.match_indices("](").map(|(at, _)| at);
        let written =
            starts.filter(move |at| outside_of_code(&line[..*at])).filter_map(|at| line[at + 2..].split(')').next());
        // Pictures for light and dark are written in HTML.
        written.chain(["src=\"", "srcset=\""].into_iter().filter_map(|name| line.split_once(name)?.1.split('"').next()))
    })
}

/// The anchors of the headings.
fn headings(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in prose(text) {
        let title = line.trim_start_matches('#');
        let Some(title) = title.strip_prefix(' ').filter(|_| line.starts_with('#')) else { continue };
        // The text of a link.
        let title: String =
            title.split("](").enumerate().map(|(n, part)| if n == 0 { part } else { after(part) }).collect();
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let mut name = anchor.clone();
        for n in 1.. {
            if found.insert(name) {
                break;
            }
            name = format!("{anchor}-{n}");
        }
    }
    found
}

fn after(link: &str) -> &str {
    link.split_once(')').map_or("", |(_, rest)| rest)
}
