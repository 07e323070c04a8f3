//! The runtime of the targets that need one.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};

thread_local! {
    static RUNTIME: LazyLock<Runtime> =
        const { LazyLock::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime")) };
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| runtime.block_on(future))
}
