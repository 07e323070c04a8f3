//! The reasons why calls fail, each with its code. docs/grpc.md has the same table, and describes what a client does
//! in each case.

use tonic::Code;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Invalid,
    NotAcceptable,
    Unauthenticated,
    Forbidden,
    NotFound,
    UnknownResource,
    NoInformer,
    Excluded,
    NotReadable,
    Aggregated,
    OutOfScope,
    UpstreamForbidden,
    Memory,
    Unsupported,
    Stale,
    SelectionsDiffer,
    Expired,
    NotSynced,
    Undecodable,
    NotFresh,
    Upstream,
    TooLargeResourceVersion,
    Draining,
    ConnectionAge,
    Unavailable,
    TooMany,
    QueueOverflow,
    TooManyRequests,
    Deadline,
    Timeout,
    Unimplemented,
    Internal,
}

// === impl Reason ===

impl Reason {
    /// The code, and the reason as it appears in an ErrorInfo.
    pub(super) fn says(self) -> (Code, &'static str) {
        match self {
            Self::Invalid => (Code::InvalidArgument, "INVALID"),
            Self::NotAcceptable => (Code::InvalidArgument, "NOT_ACCEPTABLE"),
            Self::Unauthenticated => (Code::Unauthenticated, "UNAUTHENTICATED"),
            Self::Forbidden => (Code::PermissionDenied, "FORBIDDEN"),
            Self::NotFound => (Code::NotFound, "NOT_FOUND"),
            Self::UnknownResource => (Code::NotFound, "UNKNOWN_RESOURCE"),
            Self::NoInformer => (Code::NotFound, "NO_INFORMER"),
            Self::Excluded => (Code::FailedPrecondition, "EXCLUDED"),
            Self::NotReadable => (Code::FailedPrecondition, "NOT_READABLE"),
            Self::Aggregated => (Code::FailedPrecondition, "AGGREGATED"),
            Self::OutOfScope => (Code::FailedPrecondition, "OUT_OF_SCOPE"),
            Self::UpstreamForbidden => (Code::FailedPrecondition, "UPSTREAM_FORBIDDEN"),
            Self::Memory => (Code::FailedPrecondition, "MEMORY"),
            Self::Unsupported => (Code::FailedPrecondition, "UNSUPPORTED"),
            Self::Stale => (Code::FailedPrecondition, "STALE"),
            Self::SelectionsDiffer => (Code::FailedPrecondition, "SELECTIONS_DIFFER"),
            Self::Expired => (Code::OutOfRange, "EXPIRED"),
            Self::NotSynced => (Code::Unavailable, "NOT_SYNCED"),
            Self::Undecodable => (Code::Unavailable, "UNDECODABLE"),
            Self::NotFresh => (Code::Unavailable, "NOT_FRESH"),
            Self::Upstream => (Code::Unavailable, "UPSTREAM"),
            Self::TooLargeResourceVersion => (Code::Unavailable, "TOO_LARGE_RESOURCE_VERSION"),
            Self::Draining => (Code::Unavailable, "DRAINING"),
            Self::ConnectionAge => (Code::Unavailable, "CONNECTION_AGE"),
            Self::Unavailable => (Code::Unavailable, "UNAVAILABLE"),
            Self::TooMany => (Code::ResourceExhausted, "TOO_MANY"),
            Self::QueueOverflow => (Code::ResourceExhausted, "QUEUE_OVERFLOW"),
            Self::TooManyRequests => (Code::ResourceExhausted, "TOO_MANY_REQUESTS"),
            Self::Deadline => (Code::DeadlineExceeded, "DEADLINE"),
            Self::Timeout => (Code::DeadlineExceeded, "TIMEOUT"),
            Self::Unimplemented => (Code::Unimplemented, "UNIMPLEMENTED"),
            Self::Internal => (Code::Internal, "INTERNAL"),
        }
    }
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
        // The match above leaves none out.
        let says = |line: &str| {
            let (_, said) = line.trim().strip_prefix("Self::")?.split_once(" => (Code::")?;
            let (code, reason) = said.strip_suffix("\"),")?.split_once(", \"")?;
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
