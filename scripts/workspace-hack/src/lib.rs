//! A package without code. Cargo unifies features among the packages that one command selects, so
//! `cargo build --bin visavis` and `cargo test --workspace` would compile hundreds of dependencies
//! twice. Every package of the workspace depends on this one, which asks for the union of all
//! features.
