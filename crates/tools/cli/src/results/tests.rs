//! Parses the result formats in tests.

/// The elements of an XML text, in order. Panics if the text is not well formed.
pub fn elements(mut text: &str) -> Vec<String> {
    let (mut open, mut all) = (Vec::new(), Vec::new());
    text = text.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").expect("a declaration");
    while let Some((before, rest)) = text.split_once('<') {
        assert!(before.trim().is_empty() || !open.is_empty(), "text outside: {before}");
        entities(before);
        let (tag, after) = rest.split_once('>').expect("a tag has an end");
        text = after;
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name)),
            None => {
                let name = tag.split(' ').next().unwrap();
                // Quotes come in pairs around values.
                assert_eq!(tag.matches('"').count(), 2 * tag.matches("=\"").count(), "{tag}");
                entities(tag);
                open.push(name.to_owned());
                all.push(tag.to_owned());
            }
        }
    }
    assert!(open.is_empty() && text.trim().is_empty(), "{open:?} {text}");
    all
}

fn entities(text: &str) {
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    for (at, _) in text.match_indices('&') {
        let known = ["&amp;", "&lt;", "&gt;", "&quot;", "&#10;", "&#9;"];
        assert!(known.iter().any(|e| text[at..].starts_with(e)), "{text}");
    }
}
