//! What needs Rust alone: the rules for imports, dependencies, documentation and the gRPC API, and the bodies of the fuzz targets.

mod children;
mod deps;
mod docs;
mod fuzz;
mod generated;
mod layering;
mod proto;
