use proptest::prelude::*;
use starling_inputs::{Chunk, ChunkSize, Cut, chunks};

/// Four characters a token, as where nobody knows the tokenizer.
fn quarter(text: &str) -> usize {
    text.chars().count().div_ceil(4)
}

/// Another one: words and every other character by itself.
fn words(text: &str) -> usize {
    let mut tokens = 0;
    let mut in_word = false;
    for c in text.chars() {
        let letter = c.is_alphanumeric();
        tokens += usize::from(!letter || !in_word);
        in_word = letter;
    }
    tokens
}

fn size(tokens: usize, overlap: usize) -> ChunkSize {
    ChunkSize { tokens, overlap }
}

fn whole(chunks: &[Chunk<'_>]) -> String {
    chunks.iter().map(|chunk| chunk.text).collect()
}

fn of(chunk: &Chunk<'_>) -> String {
    [chunk.heading, chunk.overlap, chunk.text].concat()
}

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z]{1,9} ".boxed(),
        2 => "[A-Z][a-z]{2,8}\\. ".boxed(),
        1 => Just("\n\n".to_owned()).boxed(),
        1 => Just("\r\n".to_owned()).boxed(),
        1 => Just("\n# Heading\n".to_owned()).boxed(),
        1 => "[äöüß。！漢字e\u{301}👩\u{200d}🚀]{1,6}".boxed(),
        1 => "[\",;|{}]{1,4}".boxed(),
        1 => "[x]{30,60}".boxed(),
    ];
    proptest::collection::vec(piece, 0..400).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_character_is_in_one_chunk_and_no_chunk_is_too_large(
        text in any_text(),
        tokens in 4_usize..300,
        overlap in 0_usize..200,
        cut in prop_oneof![Just(Cut::Prose), Just(Cut::Lines), Just(Cut::Table)],
        by_words in any::<bool>(),
    ) {
        let count: &dyn Fn(&str) -> usize = if by_words { &words } else { &quarter };
        let found = chunks(&text, cut, size(tokens, overlap), count);
        prop_assert_eq!(whole(&found), text.as_str());
        for (n, chunk) in found.iter().enumerate() {
            prop_assert!(!chunk.text.is_empty());
            let held = count(chunk.heading) + count(chunk.overlap) + count(chunk.text);
            prop_assert!(held <= tokens || chunk.text.chars().count() == 1, "{} > {}: {:?}", held, tokens, chunk);
            let repeats = n.checked_sub(1).is_some_and(|before| found[before].text.ends_with(chunk.overlap));
            prop_assert!(chunk.overlap.is_empty() || repeats, "{:?}", chunk);
            prop_assert!(count(chunk.overlap) <= overlap);
            prop_assert!(chunk.heading.is_empty() || (n > 0 && text.starts_with(chunk.heading)));
        }
        prop_assert_eq!(found, chunks(&text, cut, size(tokens, overlap), count));
    }

    #[test]
    fn chunks_are_not_much_smaller_than_they_may_be(text in "([a-z]{1,9}[ \n]){200,600}", tokens in 40_usize..200) {
        let found = chunks(&text, Cut::Prose, size(tokens, 0), &quarter);
        // A heading would be worth half of it, a word or a line a quarter.
        for chunk in found.iter().rev().skip(1) {
            prop_assert!(quarter(chunk.text) * 10 >= tokens * 7, "{} of {tokens}", quarter(chunk.text));
        }
    }
}

#[test]
fn a_short_text_is_one_chunk_and_no_text_is_none() {
    let found = chunks("one\ntwo\n", Cut::Table, size(100, 10), &quarter);
    assert_eq!(found, [Chunk { heading: "", overlap: "", text: "one\ntwo\n" }]);
    assert_eq!(chunks("", Cut::Prose, size(100, 10), &quarter), []);
}

#[test]
fn the_best_boundary_near_the_end_is_taken() {
    let filler = "some words of it. ".repeat(10);
    for (text, begins) in [
        (format!("{filler}\n\nA paragraph.\n## Heading\n{filler}{filler}"), "## Heading"),
        (format!("{filler}\n\nA paragraph. {filler}{filler}"), "A paragraph."),
        (format!("{filler}and this is the end. Next {}", "word ".repeat(90)), "Next"),
        ("word ".repeat(200), "word"),
    ] {
        let found = chunks(&text, Cut::Prose, size(60, 0), &quarter);
        assert!(found[1].text.starts_with(begins), "{:?}", found[1].text);
    }
}

#[test]
fn what_a_reader_sees_as_one_character_stays_whole() {
    let astronaut = "👩\u{200d}🚀";
    let text = astronaut.repeat(50);
    for chunk in chunks(&text, Cut::Prose, size(2, 0), &quarter) {
        assert_eq!(chunk.text.replace(astronaut, ""), "", "{:?}", chunk.text);
    }
}

#[test]
fn each_chunk_of_a_table_has_its_header_and_whole_records() {
    let row = |n: usize| format!("{n},\"a text with a\nline break and \"\"quotes\"\"\"\n");
    let text = format!("number,text\n{}", (0..100).map(row).collect::<String>());
    let found = chunks(&text, Cut::Table, size(100, 0), &quarter);
    assert!(found.len() > 5);
    assert_eq!(whole(&found), text);
    for (n, chunk) in found.iter().enumerate() {
        let of = of(chunk);
        assert!(of.starts_with("number,text\n"), "{of:?}");
        assert_eq!(chunk.heading.is_empty(), n == 0);
        let rows = of.lines().filter(|line| line.ends_with("\"a text with a")).count();
        assert_eq!(of, format!("number,text\n{}", rows_from(&of, rows, row)));
    }
}

fn rows_from(of: &str, rows: usize, row: impl Fn(usize) -> String) -> String {
    let first = of.lines().nth(1).and_then(|line| line.split(',').next()).unwrap();
    let first: usize = first.parse().unwrap();
    (first..first + rows).map(row).collect()
}

#[test]
fn lines_of_json_stay_whole_and_one_that_is_too_long_does_not_spoil_the_others() {
    let long = format!("{{\"long\":\"{}\"}}\n", "word ".repeat(300));
    let line = "{\"a\":1,\"b\":[1,2,3]}\n";
    let text = format!("{}{long}{}", line.repeat(20), line.repeat(20));
    let found = chunks(&text, Cut::Lines, size(100, 0), &quarter);
    assert_eq!(whole(&found), text);
    let whole_ones = found.iter().filter(|chunk| chunk.text.replace(line, "").is_empty()).count();
    assert!(whole_ones >= 2, "{found:?}");
}

#[test]
fn the_overlap_is_the_end_of_the_chunk_before_from_a_sentence_on() {
    let text = (0..100).map(|n| format!("This is sentence number {n} of it. ")).collect::<String>();
    let found = chunks(&text, Cut::Prose, size(100, 20), &quarter);
    assert_eq!(whole(&found), text);
    for pair in found.windows(2) {
        assert!(pair[0].text.ends_with(pair[1].overlap));
        assert!(pair[1].overlap.starts_with("This is sentence"), "{:?}", pair[1].overlap);
    }
}

#[test]
fn a_long_text_takes_few_counts() {
    let text = "A sentence of some words. ".repeat(40_000);
    let counted = std::cell::Cell::new(0);
    let count = |text: &str| {
        counted.set(counted.get() + text.len());
        quarter(text)
    };
    let found = chunks(&text, Cut::Prose, size(2_000, 0), &count);
    assert!(found.len() > 125);
    assert!(counted.get() < 4 * text.len(), "{} bytes were counted of {}", counted.get(), text.len());
}
