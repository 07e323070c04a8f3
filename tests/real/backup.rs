//! The files of a cluster's etcd at one moment, from which it is restored later.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Stdio;

use crate::cluster::Cluster;
use crate::support::eventually;
use crate::support::tied::{command, copy, signal};

/// The cluster's etcd, and its files as they were at one moment.
pub(crate) struct Backup {
    pid: u32,
    executable: PathBuf,
    arguments: Vec<String>,
    data: PathBuf,
    copy: PathBuf,
}

impl Backup {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let pid = cluster.etcd_pid();
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        let arguments: Vec<_> = line.split_terminator('\0').skip(1).map(str::to_owned).collect();
        let data = arguments.iter().skip_while(|argument| *argument != "--dir").nth(1).unwrap();
        let (data, copied) = (PathBuf::from(data), PathBuf::from(format!("{data}.backup")));
        signal(pid, "STOP");
        copy(&data, &copied);
        signal(pid, "CONT");
        let executable = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
        Self { pid, executable, arguments, data, copy: copied }
    }

    /// Runs etcd from the copy, at the same address.
    pub(crate) async fn restore(&self) -> tokio::process::Child {
        signal(self.pid, "KILL");
        // Its parent may not have asked for it yet.
        let lives = || std::fs::read(format!("/proc/{}/cmdline", self.pid)).is_ok_and(|line| !line.is_empty());
        eventually("etcd has ended", || !lives()).await;
        std::fs::remove_dir_all(&self.data).unwrap();
        std::fs::rename(&self.copy, &self.data).unwrap();
        let mut command = command(&self.executable);
        // It ends with its standard input.
        command.args(&self.arguments).stdin(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        command.spawn().unwrap()
    }
}
