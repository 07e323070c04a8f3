//! The memory that an allocation really takes.

/// The bytes that the allocator uses for an allocation. jemalloc has four sizes between a power of two and the next
/// one.
pub const fn allocated(bytes: usize) -> usize {
    if bytes <= 16 {
        return if bytes == 0 { 0 } else { 16 };
    }
    // Size classes differ by an eighth of the next power of two, and by at least 16 bytes.
    let above = bytes.next_power_of_two();
    let apart = if above / 8 > 16 { above / 8 } else { 16 };
    bytes.next_multiple_of(apart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_of_jemalloc() {
        for (bytes, size) in [
            (0, 0),
            (1, 16),
            (17, 32),
            (128, 128),
            (129, 160),
            (257, 320),
            (20_000, 20_480),
            (20_481, 24_576),
            (32_769, 40_960),
            (1 << 20, 1 << 20),
        ] {
            assert_eq!(allocated(bytes), size, "{bytes}");
        }
    }
}
