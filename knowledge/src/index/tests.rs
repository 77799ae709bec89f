use super::*;

fn clinic_index() -> Index<&'static str> {
    let mut index = Index::new();
    index.insert(
        &"hours",
        "We are open from nine to five on weekdays. On Saturday we close at noon. \
         On Sunday we are closed.",
    );
    index.insert(
        &"parking",
        "There is a car park behind the building. Parking costs 2 euros an hour.",
    );
    index.insert(
        &"people",
        "Doctor Zorblax is the head of surgery. His room is 427 on the fourth floor. \
         Nurse Quillontra runs the front desk.",
    );
    index.insert(&"prices", "A check-up costs 42 euros. An X-ray costs 105 euros.");
    index
}

fn first_hit<'a>(index: &'a Index<&'static str>, query: &str) -> Option<&'a str> {
    index.search(query, 3).first().map(|hit| *hit.id)
}

#[test]
fn plain_questions_find_their_document() {
    let index = clinic_index();
    assert_eq!(first_hit(&index, "When do you open on weekdays?"), Some("hours"));
    assert_eq!(first_hit(&index, "where can i park my car"), Some("parking"));
    assert_eq!(first_hit(&index, "how much is a check up"), Some("prices"));
    assert_eq!(first_hit(&index, "who is the head of surgery"), Some("people"));
}

#[test]
fn a_query_without_known_words_finds_nothing() {
    let index = clinic_index();
    assert!(index.search("what is the capital of mongolia", 3).is_empty());
    assert!(index.search("and what is it", 3).is_empty());
    assert!(Index::<u8>::new().search("anything", 3).is_empty());
    assert!(index.search("surgery", 0).is_empty());
}

#[test]
fn numbers_in_words_find_digits_and_the_other_way_round() {
    let index = clinic_index();
    assert_eq!(first_hit(&index, "what costs forty two euros"), Some("prices"));
    assert_eq!(first_hit(&index, "one hundred and five"), Some("prices"));
    assert_eq!(first_hit(&index, "who is in four two seven"), Some("people"));
    let mut words = Index::new();
    words.insert(&1, "The password is ninety nine.");
    assert_eq!(*words.search("99", 1)[0].id, 1);
}

#[test]
fn misheard_names_are_found_by_their_sound() {
    let index = clinic_index();
    for query in ["where is doctor sore blacks", "zorblacks", "doctor zor blacks", "sorblax"] {
        assert_eq!(first_hit(&index, query), Some("people"), "{query}");
    }
    for query in ["quillontrah", "who is kwillontra", "quill on tra"] {
        assert_eq!(first_hit(&index, query), Some("people"), "{query}");
    }
}

#[test]
fn misspelt_words_are_found_by_their_letters() {
    let index = clinic_index();
    assert_eq!(first_hit(&index, "saturdey"), Some("hours"));
    assert_eq!(first_hit(&index, "surgary"), Some("people"));
    assert_eq!(first_hit(&index, "bilding"), Some("parking"));
}

#[test]
fn a_word_that_was_torn_apart_is_found() {
    let mut index = Index::new();
    index.insert(&"a", "The database is backed up every night.");
    index.insert(&"b", "The printer stands in the hall.");
    assert_eq!(first_hit(&index, "is the data base safe"), Some("a"));
}

#[test]
fn coverage_tells_how_much_of_the_question_is_there() {
    let index = clinic_index();
    let whole = index.search("head of surgery", 1)[0].coverage;
    let part = index.search("head of the mongolian navy", 1)[0].coverage;
    assert!(whole > 0.99 && part < 0.5, "{whole} {part}");
}

#[test]
fn the_earlier_part_of_a_weighted_query_only_helps() {
    let index = clinic_index();
    let hits = index.search_weighted(&[("and on sunday", 1.0), ("parking costs", 0.3)], 2);
    assert_eq!((*hits[0].id, *hits[1].id), ("hours", "parking"));
}

#[test]
fn removed_documents_are_gone_and_their_place_is_used_again() {
    let mut index = clinic_index();
    let before = index.len();
    index.remove(&"people");
    assert_eq!(index.len(), before - 1);
    assert!(index.search("zorblax quillontra surgery", 3).is_empty());
    index.insert(&"news", "Doctor Merrow is the head of surgery.");
    assert_eq!(index.len(), before);
    assert_eq!(first_hit(&index, "who is the head of surgery"), Some("news"));
    index.remove(&"nobody");
    assert_eq!(index.len(), before);
}

#[test]
fn equal_chunks_come_in_the_order_they_were_added() {
    let mut index = Index::new();
    for id in 0..20 {
        index.insert(&id, "The same words everywhere.");
    }
    let ids: Vec<i32> = index.search("same words", 5).iter().map(|hit| *hit.id).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4]);
}

#[test]
fn no_word_within_the_edits_is_passed_over() {
    let mut state = 1_u32;
    let mut random_below = move |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    let alphabet: Vec<char> = "abcdefghijklmnopqrstuvwxyz0189äßéж".chars().collect();
    for _ in 0..20_000 {
        let word: Vec<char> =
            (0..3 + random_below(10)).map(|_| alphabet[random_below(alphabet.len())]).collect();
        let mut changed = word.clone();
        let edits = 1 + random_below(2) as u32;
        for _ in 0..edits {
            let at = random_below(changed.len());
            match random_below(4) {
                0 => changed[at] = alphabet[random_below(alphabet.len())],
                1 => changed.insert(at, alphabet[random_below(alphabet.len())]),
                2 if changed.len() > 1 => drop(changed.remove(at)),
                _ if at > 0 => changed.swap(at, at - 1),
                _ => {}
            }
        }
        let [a, b] = [word, changed].map(|word| word.into_iter().collect::<String>());
        assert!(
            WordSignature::new(&a).may_be_within(WordSignature::new(&b), edits),
            "{a} {b} {edits}"
        );
    }
}

#[test]
fn exact_words_score_by_the_formula_as_it_is_written() {
    // Words that are no stop words, each its own stem.
    let chunks = ["cat dog cat", "dog bird", "fish bird fish fish", "horn"];
    let mut index = Index::new();
    for (id, text) in chunks.iter().enumerate() {
        index.insert(&id, text);
    }
    let words: Vec<Vec<&str>> = chunks.iter().map(|c| c.split(' ').collect()).collect();
    let (n, average) = (4.0_f64, words.iter().map(Vec::len).sum::<usize>() as f64 / 4.0);
    for query in [vec!["cat"], vec!["dog", "bird"], vec!["fish", "horn", "dog"]] {
        let hits = index.search(&query.join(" "), 10);
        let mut found = 0;
        for (id, chunk) in words.iter().enumerate() {
            let mut score = 0.0;
            for word in &query {
                let df = words.iter().filter(|c| c.contains(word)).count() as f64;
                let tf = chunk.iter().filter(|w| *w == word).count() as f64;
                let idf = (1.0 + (n - df + 0.5) / (df + 0.5)).ln();
                score += idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * chunk.len() as f64 / average));
            }
            if score > 0.0 {
                let hit =
                    hits.iter().find(|hit| *hit.id == id).expect("it has a word of the query");
                assert!(
                    (f64::from(hit.score) - score).abs() < 1e-5,
                    "{query:?} in {id}: {hit:?} for {score}"
                );
                found += 1;
            }
        }
        assert_eq!(hits.len(), found, "{query:?}");
    }
}
