use super::first_document as read;
use super::*;

// What is read is compared with what kubectl reads in `tests/real/kubeconfigs/yaml.rs`.

#[test]
fn what_is_nested_has_a_bound() {
    for (open, close) in [("[", "]"), ("{a: ", "}")] {
        let nested = |depth| read(&format!("{}{}", open.repeat(depth), close.repeat(depth)));
        assert!(nested(MOST_NESTED).is_ok());
        assert!(nested(MOST_NESTED + 1).unwrap_err().lines().count() == 1);
    }
    assert!(read(&"- ".repeat(MOST_NESTED)).is_ok());
    assert!(read(&"- ".repeat(MOST_NESTED + 1)).is_err());
}

#[test]
fn what_aliases_stand_for_has_a_bound() {
    // The anchor holds it once, and each alias once more.
    let text = |copies: usize| {
        let long = "x".repeat(LARGEST_COPIED / 8 - NODE);
        format!("a: &a {long}\nb: [{}]", "*a, ".repeat(copies - 1))
    };
    assert!(read(&text(8)).is_ok());
    assert!(read(&text(9)).unwrap_err().contains("line 2: its aliases"));
    let mut laughs = "a0: &a0 x\n".to_owned();
    (1..64).for_each(|of| laughs += &format!("a{of}: &a{of} [*a{0}, *a{0}]\n", of - 1));
    assert!(read(&laughs).unwrap_err().contains("too much"));
}

#[test]
fn texts_of_many_lines_are_mended_at_once_and_many_texts_have_a_bound() {
    let text = |texts: usize, lines: usize| {
        (0..texts).map(|text| format!("t{text}: \"{}a\"\n", "a\n".repeat(lines))).collect::<String>()
    };
    assert_eq!(read(&text(1, 5_000)).unwrap()["t0"].as_str().unwrap().len(), 10_001);
    assert!(read(&text(999, 1)).is_ok());
    assert!(read(&text(1_000, 1)).unwrap_err().contains("too many"));
}

/// Each holds the one before it.
#[test]
fn aliases_nest_no_deeper_than_what_is_written() {
    let text = |nested: usize, anchors: usize| {
        let (open, close) = ("[".repeat(nested), "]".repeat(nested));
        let each = |n: usize| match n {
            0 => format!("a0: &a0 {open}x{close}\n"),
            n => format!("a{n}: &a{n} {open}*a{}{close}\n", n - 1),
        };
        (0..anchors).map(each).collect::<String>()
    };
    assert!(read(&text(100, 9)).is_ok());
    assert!(read(&text(100, 10)).unwrap_err().contains("too much"));
    assert!(read(&text(990, 16)).unwrap_err().contains("too much"));
}
