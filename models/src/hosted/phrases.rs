//! Words and codes by which vendors tell failures apart.

/// Words of vendors that mean an account without credit. Some send them with status 401 or 429, or
/// in a close frame.
const NO_CREDIT: [&str; 11] = [
    "payment_required",
    "payment required",
    "insufficient_quota",
    "quota_exceeded",
    "insufficient credit",
    "insufficient funds",
    "insufficient balance",
    "insufficient account balance",
    "out of credit",
    "billing_error",
    "credit balance",
];

/// Words of vendors that mean too many requests at the same time. Some send them with another status
/// than 429, or in a close frame.
const BUSY: [&str; 4] = [
    "max_active_conversations",
    "concurrency_limited",
    "too_many_concurrent_requests",
    "rate_limited",
];

/// Words of vendors that mean a key that is not valid, whatever the status.
const BAD_KEY: [&str; 6] = [
    "invalid api key",
    "invalid_api_key",
    "api_key_invalid",
    "api key not valid",
    "api key is not valid",
    "api key is invalid",
];

/// Words of vendors that mean a key that is not valid, in a close frame or a message. With status
/// 403 they may be about a model, a voice or a region.
const UNAUTHORIZED: [&str; 2] = ["unauthorized", "not authorized"];

/// The text with a capital letter at its beginning. The messages of errors have none. A name such as
/// vLLM stays as it is.
pub(crate) fn capitalized(text: &str) -> String {
    if text.chars().nth(1).is_some_and(char::is_uppercase) {
        return text.to_owned();
    }
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// The clause about an account without credit. The names of other servers begin with an article.
pub(crate) fn no_credit(vendor: &str) -> String {
    match vendor.strip_prefix("the ") {
        Some(server) => format!("the account at the {server} has no credit left"),
        None => format!("the {vendor} account has no credit left"),
    }
}

/// Whether a vendor's words or code mean an account without credit.
pub(crate) fn says_no_credit(words: &str) -> bool {
    says(&NO_CREDIT, words)
}

/// Whether `words` contain one of `phrases`, whatever their case.
pub(crate) fn says(phrases: &[&str], words: &str) -> bool {
    let words = words.to_lowercase();
    phrases.iter().any(|phrase| words.contains(phrase))
}

/// Whether a vendor's words or code clearly mean a key that is not valid.
pub(crate) fn says_bad_key(words: &str) -> bool {
    says(&BAD_KEY, words)
}

/// The same for a close frame or a message.
pub(crate) fn says_unauthorized(words: &str) -> bool {
    says_bad_key(words) || says(&UNAUTHORIZED, words)
}

/// Whether a vendor's words or code mean too many requests at the same time.
pub(crate) fn says_busy(words: &str) -> bool {
    says(&BUSY, words)
}
