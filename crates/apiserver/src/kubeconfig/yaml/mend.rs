//! Where the parser, which is of YAML 1.2, refuses what go-yaml takes. Such a place is written as the parser wants it;
//! that changes nothing of what the text says to go-yaml.

use granit_parser::{ErrorKind, ScanError};

/// Deeper than what the parser compares it with.
const INDENTATION: &str = "                                                                ";

/// The text without the cause of this error if there is a way, and how much of the old one is behind that.
pub(super) fn mended(text: &str, error: &ScanError) -> Option<(String, usize)> {
    let (before, after) = text.split_at_checked(error.marker().byte_offset()?)?;
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    let (above, below) = text.split_at_checked(line)?;
    let mended = match error.kind() {
        // Lines of a quoted scalar may begin anywhere.
        ErrorKind::InvalidQuotedScalarIndent | ErrorKind::TabInIndentation => {
            let mut mended = above.to_owned();
            let mut lines = below.split_inclusive('\n');
            for line in lines.by_ref() {
                mended.extend([INDENTATION, line]);
                // The scalar ends here at the earliest.
                if line.contains(['"', '\'']) {
                    break;
                }
            }
            mended.extend(lines);
            mended
        }
        // Between brackets, tabs are white space everywhere.
        ErrorKind::TabInBlockIndentation
            if above.trim_end().ends_with(['[', '{', ',']) || below.trim_start().starts_with([']', '}', ',']) =>
        {
            format!("{above}{INDENTATION}{below}")
        }
        ErrorKind::PlainScalarStartsWithDashFlowIndicator => {
            format!("{before}\"-\"{}", after.strip_prefix('-')?)
        }
        ErrorKind::CommentNotSeparated => format!("{before} {after}"),
        _ => return None,
    };
    Some((mended, after.len()))
}
