//! What needs Rust alone: the rules for imports, bounds, dependencies, documentation and the gRPC API, and the bodies of the fuzz targets.

mod bounds;
mod children;
mod deps;
mod docs;
mod fuzz;
mod generated;
mod holes;
mod layering;
mod mutants;
mod program;
mod proto;
