//! The binary: passes the command line to the library and exits with the code that it returns.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    informerd::app::main()
}
