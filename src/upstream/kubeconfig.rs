//! Reads kubeconfig files. All code that needs one uses this function.

use std::path::Path;

use kube::config::{Kubeconfig, KubeconfigError};

/// Reads one file.
///
/// # Errors
/// The file cannot be read, or it is not a kubeconfig.
pub fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    // The library panics on UTF-16 input that ends in the middle of a character.
    let bytes = std::fs::read(path).map_err(|error| KubeconfigError::ReadConfig(error, path.to_owned()))?;
    if matches!(*bytes, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) && bytes.len() % 2 == 1 {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidData, "UTF-16 of an odd number of bytes");
        return Err(KubeconfigError::ReadConfig(error, path.to_owned()));
    }
    Kubeconfig::read_from(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf16_that_is_cut_off_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        for bytes in [&b"\xff\xfea"[..], b"\xfe\xff\0a\0"] {
            std::fs::write(&path, bytes).unwrap();
            assert!(read(&path).unwrap_err().to_string().contains("config"));
        }
        std::fs::write(&path, b"\xff\xfe{\0}\0").unwrap();
        assert!(read(&path).is_ok());
    }
}
