//! The stubs of `informerd.v1`, made by build.rs.

pub mod v1 {
    tonic::include_proto!("informerd.v1");
}

/// Whether the same request will not fare better.
pub fn is_hopeless(status: &tonic::Status) -> bool {
    use tonic::Code::{InvalidArgument, PermissionDenied, Unauthenticated, Unimplemented};
    matches!(status.code(), InvalidArgument | PermissionDenied | Unauthenticated | Unimplemented)
}
