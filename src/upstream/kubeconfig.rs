//! Reads kubeconfig files. All code that needs one uses these functions.

use std::path::{Path, PathBuf};

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

/// Reads several files and merges them as kubectl does: the first file that has a value wins.
///
/// # Errors
/// One of the files cannot be read, or is not a kubeconfig.
pub fn read_all(paths: &[PathBuf]) -> Result<Kubeconfig, KubeconfigError> {
    let merge = |merged: Kubeconfig, path: &PathBuf| merged.merge(read(path)?);
    paths.iter().try_fold(Kubeconfig::default(), merge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_wins() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["one", "two"].map(|name| directory.path().join(name));
        for (path, server) in paths.iter().zip(["http://1", "http://2"]) {
            let name = path.file_name().unwrap().to_string_lossy();
            let text = format!(
                "clusters: [{{name: both, cluster: {{server: '{server}'}}}}, {{name: {name}, cluster: {{server: '{server}'}}}}]\n\
                 current-context: {name}\n"
            );
            std::fs::write(path, text).unwrap();
        }
        let merged = read_all(&paths).unwrap();
        let servers: Vec<_> = merged
            .clusters
            .iter()
            .map(|named| (named.name.as_str(), named.cluster.as_ref().unwrap().server.as_deref().unwrap()))
            .collect();
        assert_eq!(servers, [("both", "http://1"), ("one", "http://1"), ("two", "http://2")]);
        assert_eq!(merged.current_context.as_deref(), Some("one"));
        assert!(read_all(&[paths[0].clone(), "/no/such".into()]).is_err());
    }

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
