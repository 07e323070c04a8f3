//! The Helm chart, by real helm (see tests/clients/prepare): it renders what the kustomize overlays render, a real
//! kube-apiserver takes all of it, and wrong values are refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod equal;
mod helm;
mod installed;
mod objects;
mod refused;
mod values;
