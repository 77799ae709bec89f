//! The sentences about the choices of a chain that cannot be served.

use super::joined;

/// Collects the sentences of one chain, in the order of its choices. A choice that cannot be served
/// has one sentence. Only that of the last choice before the one that serves names the latter: a
/// fallback that cannot be served is replaced by nothing.
#[derive(Default)]
pub(super) struct Unserved {
    sentences: Vec<String>,
    /// Why the choice before cannot be served, while no choice serves.
    waiting: Option<String>,
    serves: bool,
}

impl Unserved {
    /// The next choice cannot be served. `why` has no full stop.
    pub(super) fn refused(&mut self, why: String) {
        if self.serves {
            return self.add(format!("{why}."));
        }
        match self.waiting.replace(why) {
            Some(before) if self.waiting.as_ref() != Some(&before) => {
                self.add(format!("{before}."))
            }
            _ => {}
        }
    }

    /// The next choice serves, or is a fallback of the one that does. `note`: a sentence about its
    /// settings.
    pub(super) fn served(&mut self, name: &str, note: Option<String>) {
        if let Some(why) = self.waiting.take() {
            self.add(format!("{why}; {name} is used instead."));
        }
        self.serves = true;
        note.into_iter().for_each(|note| self.add(note));
    }

    /// All sentences, if there are any. `last` is the name of what serves after all choices.
    pub(super) fn finish(mut self, last: &str) -> Option<String> {
        self.served(last, None);
        joined(self.sentences)
    }

    fn add(&mut self, sentence: String) {
        if !self.sentences.contains(&sentence) {
            self.sentences.push(sentence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(choices: &[Result<&str, &str>]) -> String {
        let mut unserved = Unserved::default();
        for choice in choices {
            match choice {
                Ok(name) => unserved.served(name, None),
                Err(why) => unserved.refused((*why).to_owned()),
            }
        }
        unserved.finish("the last one").unwrap_or_default()
    }

    #[test]
    fn each_reason_is_told_once_and_who_serves_instead_only_where_somebody_does() {
        for (choices, expected) in [
            (&[Ok("A")][..], ""),
            (&[Err("No A")], "No A; the last one is used instead."),
            (&[Err("No A"), Ok("B"), Err("No C")], "No A; B is used instead. No C."),
            (&[Err("No A"), Err("No B"), Ok("C")], "No A. No B; C is used instead."),
            (&[Err("No A"), Err("No A")], "No A; the last one is used instead."),
            (&[Ok("A"), Err("No B"), Err("No C"), Err("No B")], "No B. No C."),
        ] {
            assert_eq!(sentences(choices), expected, "{choices:?}");
        }
    }
}
