//! What this program is: its version, and what its builder says of the sources.

/// The commit of the sources and the day of that commit: from the builder, or from the checkout by `build/version.rs`. Both
/// belong to the sources, so that the same sources still make the same program.
const COMMIT: Option<&str> = option_env!("INFORMERD_BUILD_COMMIT");
const DATE: Option<&str> = option_env!("INFORMERD_BUILD_DATE");

/// For example `0.1.0 (commit 0123abc of 2026-01-31, x86_64-linux-musl)`.
pub(super) fn full() -> String {
    render(COMMIT, DATE)
}

fn render(commit: Option<&str>, date: Option<&str>) -> String {
    let given = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
    let commit = match (given(commit), given(date)) {
        (Some(commit), Some(date)) => format!("commit {commit} of {date}, "),
        (Some(commit), None) => format!("commit {commit}, "),
        (None, _) => String::new(),
    };
    let libc = if cfg!(target_env = "musl") {
        "-musl"
    } else if cfg!(target_env = "gnu") {
        "-gnu"
    } else {
        ""
    };
    let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
    format!("{} ({commit}{arch}-{os}{libc})", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_commit_where_it_is_known() {
        let of = |commit, date| render(commit, date).split_once(" (").unwrap().1.to_owned();
        assert!(of(Some("0123abc"), Some("2026-01-31")).starts_with("commit 0123abc of 2026-01-31, "));
        assert!(of(Some("0123abc"), None).starts_with("commit 0123abc, "));
        assert_eq!(of(None, None), of(Some(""), Some("2026-01-31")));
        assert!(of(None, None).starts_with(std::env::consts::ARCH));
    }
}
