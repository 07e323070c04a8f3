//! Text for a terminal of a certain width.

use super::terminal::escaped;

/// How text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Problems are shown in red.
    pub colors: bool,
    /// The most columns of a line.
    pub width: usize,
}

/// A column is not cut to less than this many characters.
const NARROWEST: usize = 8;
const GAP: usize = 2;

// === impl Style ===

impl Style {
    /// For a file: no colors, and lines as long as they are.
    pub const PLAIN: Self = Self { colors: false, width: usize::MAX };

    /// A paragraph in lines. All but the first are indented.
    pub(crate) fn paragraph(self, text: &str, indent: usize) -> String {
        self.wrapped(text, indent).into_iter().map(|line| line + "\n").collect()
    }

    /// The same in red, if colors are on.
    pub(crate) fn red(self, text: &str, indent: usize) -> String {
        if !self.colors {
            return self.paragraph(text, indent);
        }
        let red = |line: String| format!("\x1b[31m{line}\x1b[0m\n");
        self.wrapped(text, indent).into_iter().map(red).collect()
    }

    /// Breaks between words only. Text that fits stays as it is.
    fn wrapped(self, text: &str, indent: usize) -> Vec<String> {
        let text = escaped(text);
        if text.chars().count() <= self.width {
            return vec![text];
        }
        let mut lines: Vec<String> = Vec::new();
        let mut line = String::new();
        let mut begun = false;
        for word in text.split(' ') {
            if begun && line.chars().count() + 1 + word.chars().count() > self.width {
                lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            } else if begun {
                line.push(' ');
            }
            line.push_str(word);
            begun = true;
        }
        lines.push(line);
        lines
    }

    /// Formats rows as a table. If it is too wide, the columns in `spare` are left out in that order, and then the widest
    /// cells are cut. Where not even cut cells would fit, the columns in `last` are left out first.
    pub(crate) fn table(self, rows: &[Vec<String>], spare: &[usize], last: &[usize]) -> String {
        let rows: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(|cell| escaped(cell)).collect()).collect();
        let columns = rows.first().map_or(0, Vec::len);
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let mut shown: Vec<(usize, usize)> = (0..columns).map(|column| (column, width(column))).collect();
        let total =
            |shown: &[(usize, usize)]| shown.iter().map(|(_, width)| width + GAP).sum::<usize>().saturating_sub(GAP);
        for left_out in spare {
            if total(&shown) > self.width {
                shown.retain(|(column, _)| column != left_out);
            }
        }
        for left_out in last {
            let cut: Vec<_> = shown.iter().map(|(column, width)| (*column, *width.min(&NARROWEST))).collect();
            if total(&cut) > self.width {
                shown.retain(|(column, _)| column != left_out);
            }
        }
        while total(&shown) > self.width {
            let over = total(&shown) - self.width;
            let Some((_, widest)) = shown.iter_mut().max_by_key(|(_, width)| *width) else { break };
            if *widest <= NARROWEST {
                break;
            }
            // One at a time, so that two long columns share what is missing.
            *widest = (*widest - over.min(1)).max(NARROWEST);
        }
        let line = |row: &Vec<String>| {
            let cells: Vec<_> =
                shown.iter().map(|(column, width)| format!("{:width$}", cut(&row[*column], *width))).collect();
            format!("{}\n", cells.join("  ").trim_end())
        };
        rows.iter().map(line).collect()
    }
}

fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    cell.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        vec![row(["NAME", "STATE", "LISTS", "BYTES"]), row(["endpointslices.discovery.k8s.io", "watching", "0", "1Ki"])]
    }

    #[test]
    fn tables_lose_columns_before_cells_are_cut() {
        let of = |width| Style { colors: false, width }.table(&rows(), &[2, 1], &[3]);
        let wide = of(usize::MAX);
        assert_eq!(wide.lines().next().unwrap(), "NAME                             STATE     LISTS  BYTES");
        assert_eq!(of(55), wide);
        assert_eq!(of(54).lines().next().unwrap(), "NAME                             STATE     BYTES");
        assert_eq!(of(40).lines().next().unwrap(), "NAME                             BYTES");
        assert_eq!(of(20).lines().nth(1).unwrap(), "endpointslic…  1Ki");
        assert_eq!(of(14), "NAME\nendpointslice…\n", "cells are cut to 8 characters at least");
        for width in 8..60 {
            assert!(of(width).lines().all(|line| line.chars().count() <= width), "{width}");
        }
        assert_eq!(Style::PLAIN.table(&[], &[], &[]), "");
    }

    #[test]
    fn paragraphs_break_between_words() {
        let style = Style { colors: true, width: 12 };
        assert_eq!(style.paragraph("one  two three", 2), "one  two\n  three\n");
        assert_eq!(style.paragraph("short", 2), "short\n");
        assert_eq!(
            style.red("one two three four", 4),
            "\x1b[31mone two\x1b[0m\n\x1b[31m    three\x1b[0m\n\x1b[31m    four\x1b[0m\n"
        );
        assert_eq!(style.paragraph("unbreakable-as-it-is", 4), "unbreakable-as-it-is\n");
    }
}
