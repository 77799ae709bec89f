//! From a question to words.

pub mod knowledge;
pub mod llm;
pub mod tools;
