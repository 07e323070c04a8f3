//! The files of the status page. Nothing is loaded from elsewhere.

/// Path, type and content.
type Asset = (&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

const ASSETS: &[Asset] = &[
    ("/status", HTML, include_str!("status/page.html")),
    ("/status.css", CSS, include_str!("status/page.css")),
    ("/status.js", JS, include_str!("status/page.js")),
    ("/status/tables.css", CSS, include_str!("status/tables.css")),
    ("/status/format.js", JS, include_str!("status/format.js")),
    ("/status/history.js", JS, include_str!("status/history.js")),
    ("/status/lists.js", JS, include_str!("status/lists.js")),
    ("/status/picture.js", JS, include_str!("status/picture.js")),
    ("/status/plots.js", JS, include_str!("status/plots.js")),
    ("/status/table.js", JS, include_str!("status/table.js")),
    // uPlot 1.6.32 as its author has published it. The MIT licence wants its text to be in all copies, so in the program, too.
    ("/status/uplot.license", TEXT, include_str!("status/vendor/LICENSE")),
    ("/status/uplot.css", CSS, include_str!("status/vendor/uPlot.min.css")),
    ("/status/uplot.js", JS, include_str!("status/vendor/uPlot.iife.min.js")),
];

/// The type and the content of the file at this path.
pub(super) fn find(path: &str) -> Option<(&'static str, &'static str)> {
    ASSETS.iter().find(|(at, _, _)| *at == path).map(|(_, content_type, text)| (*content_type, *text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_page_names_is_there() {
        for (path, _, text) in ASSETS.iter().filter(|(path, _, _)| !path.contains("uplot")) {
            let base = path.rsplit_once('/').map_or("", |(base, _)| base);
            let named = |before: &str| -> Vec<String> {
                let names = text.split(before).skip(1).filter_map(|rest| rest.split(['"', '\'']).next());
                names
                    .filter(|name| !name.contains(':'))
                    .map(|name| format!("{base}/{}", name.trim_start_matches("./")))
                    .collect()
            };
            for name in [named("href=\""), named("src=\""), named(" from '")].concat() {
                assert!(find(&name).is_some(), "{path} names {name}");
            }
            assert!(text.lines().count() < 300, "{path} is to be split");
        }
    }

    #[test]
    fn the_licence_of_what_others_wrote_is_kept() {
        let (_, code) = find("/status/uplot.js").unwrap();
        assert!(code.starts_with("/*! https://github.com/leeoniya/uPlot (v1.6.32) */"));
        let (_, licence) = find("/status/uplot.license").unwrap();
        assert!(licence.starts_with("The MIT License (MIT)\n\nCopyright (c) 2022 Leon Sorokin\n"), "{licence}");
    }
}
