//! The reasons why calls fail, each with its code. docs/grpc.md has the same table, and describes what a client does
//! in each case.

use tonic::Code;

/// The code, and the reason as it appears in an ErrorInfo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reason(pub(super) Code, pub(super) &'static str);

// === impl Reason ===

impl Reason {
    pub(super) const INVALID: Self = Self(Code::InvalidArgument, "INVALID");
    pub(super) const NOT_ACCEPTABLE: Self = Self(Code::InvalidArgument, "NOT_ACCEPTABLE");
    pub(super) const UNAUTHENTICATED: Self = Self(Code::Unauthenticated, "UNAUTHENTICATED");
    pub(super) const FORBIDDEN: Self = Self(Code::PermissionDenied, "FORBIDDEN");
    pub(super) const NOT_FOUND: Self = Self(Code::NotFound, "NOT_FOUND");
    pub(super) const UNKNOWN_RESOURCE: Self = Self(Code::NotFound, "UNKNOWN_RESOURCE");
    pub(super) const NO_INFORMER: Self = Self(Code::NotFound, "NO_INFORMER");
    pub(super) const EXCLUDED: Self = Self(Code::FailedPrecondition, "EXCLUDED");
    pub(super) const NOT_READABLE: Self = Self(Code::FailedPrecondition, "NOT_READABLE");
    pub(super) const AGGREGATED: Self = Self(Code::FailedPrecondition, "AGGREGATED");
    pub(super) const OUT_OF_SCOPE: Self = Self(Code::FailedPrecondition, "OUT_OF_SCOPE");
    pub(super) const UPSTREAM_FORBIDDEN: Self = Self(Code::FailedPrecondition, "UPSTREAM_FORBIDDEN");
    pub(super) const MEMORY: Self = Self(Code::FailedPrecondition, "MEMORY");
    pub(super) const UNSUPPORTED: Self = Self(Code::FailedPrecondition, "UNSUPPORTED");
    pub(super) const STALE: Self = Self(Code::FailedPrecondition, "STALE");
    pub(super) const SELECTIONS_DIFFER: Self = Self(Code::FailedPrecondition, "SELECTIONS_DIFFER");
    pub(super) const EXPIRED: Self = Self(Code::OutOfRange, "EXPIRED");
    pub(super) const NOT_SYNCED: Self = Self(Code::Unavailable, "NOT_SYNCED");
    pub(super) const UNDECODABLE: Self = Self(Code::Unavailable, "UNDECODABLE");
    pub(super) const NOT_FRESH: Self = Self(Code::Unavailable, "NOT_FRESH");
    pub(super) const UPSTREAM: Self = Self(Code::Unavailable, "UPSTREAM");
    pub(super) const TOO_LARGE_RESOURCE_VERSION: Self = Self(Code::Unavailable, "TOO_LARGE_RESOURCE_VERSION");
    pub(super) const DRAINING: Self = Self(Code::Unavailable, "DRAINING");
    pub(super) const CONNECTION_AGE: Self = Self(Code::Unavailable, "CONNECTION_AGE");
    pub(super) const UNAVAILABLE: Self = Self(Code::Unavailable, "UNAVAILABLE");
    pub(super) const TOO_MANY: Self = Self(Code::ResourceExhausted, "TOO_MANY");
    pub(super) const QUEUE_OVERFLOW: Self = Self(Code::ResourceExhausted, "QUEUE_OVERFLOW");
    pub(super) const TOO_MANY_REQUESTS: Self = Self(Code::ResourceExhausted, "TOO_MANY_REQUESTS");
    pub(super) const DEADLINE: Self = Self(Code::DeadlineExceeded, "DEADLINE");
    pub(super) const TIMEOUT: Self = Self(Code::DeadlineExceeded, "TIMEOUT");
    pub(super) const UNIMPLEMENTED: Self = Self(Code::Unimplemented, "UNIMPLEMENTED");
    pub(super) const INTERNAL: Self = Self(Code::Internal, "INTERNAL");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// `INVALID_ARGUMENT`, in the spelling of the documentation and of other languages.
    fn in_capitals(code: &str) -> String {
        let mut name = String::new();
        for c in code.chars() {
            if c.is_ascii_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(c.to_ascii_uppercase());
        }
        name
    }

    /// The words between backticks in one cell of a table.
    fn ticked(cell: &str) -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_documentation_has_every_reason_with_its_code() {
        // All of them are constants.
        let says = |line: &str| {
            let (_, said) = line.trim().strip_prefix("pub(super) const ")?.split_once(": Self = Self(Code::")?;
            let (code, reason) = said.strip_suffix("\");")?.split_once(", \"")?;
            Some((reason.to_owned(), in_capitals(code)))
        };
        let said: BTreeSet<_> = include_str!("reason.rs").lines().filter_map(says).collect();
        let text = include_str!("../../../docs/grpc.md");
        let section = text.split_once("\n## Errors\n").unwrap().1.split_once("\n## ").unwrap().0;
        let mut documented = BTreeSet::new();
        for row in section.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<_> = row.split('|').collect();
            let (codes, reasons) = (ticked(cells[1]), ticked(cells[2]));
            assert!(!cells[3].trim().is_empty(), "{row} says what a client does");
            for (index, reason) in reasons.into_iter().enumerate() {
                // If a row has several codes, they are in the order of the reasons.
                let code = if codes.len() == 1 { &codes[0] } else { &codes[index] };
                assert!(documented.insert((reason, code.clone())), "{row}: twice");
            }
        }
        assert_eq!(documented, said);
    }
}
