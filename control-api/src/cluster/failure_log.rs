//! When to log attempts that are repeated until they succeed.

/// Whether a repeated attempt fails, so that an outage is logged once and not with each attempt.
#[derive(Default)]
pub(crate) struct FailureLog {
    is_failing: bool,
}

impl FailureLog {
    /// Whether to log a result: the first failure, and the first success after failures.
    pub(crate) fn is_new<T, E>(&mut self, result: &Result<T, E>) -> bool {
        std::mem::replace(&mut self.is_failing, result.is_err()) != result.is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_at_its_beginning_and_end() {
        let mut log = FailureLog::default();
        let results = [Ok(()), Err(()), Err(()), Ok(()), Ok(()), Err(())];
        let logged = results.map(|result| log.is_new(&result));
        assert_eq!(logged, [false, true, false, true, false, true]);
    }
}
